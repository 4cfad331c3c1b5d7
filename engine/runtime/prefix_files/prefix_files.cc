#include "engine/runtime/prefix_files/prefix_files.h"

#include <algorithm>
#include <utility>

#include "engine/base/clock.h"
#include "engine/base/contained.h"
#include "engine/base/status_macros.h"

namespace lowkey {
namespace {

constexpr absl::Duration kReportEvery = absl::Minutes(1);

// Returns when a piece of a prefix counts as used (PieceFolder).
absl::Time UseOf(absl::Time prefix_used, int64_t piece) {
  return prefix_used - piece * absl::Microseconds(1);
}

absl::Span<const int32_t> TokensOf(const std::vector<int32_t>& tokens, const PieceShape& shape,
                                   int64_t piece) {
  return absl::MakeConstSpan(tokens).subspan(piece * shape.n_tokens, shape.n_tokens);
}

}  // namespace

absl::StatusOr<std::unique_ptr<PrefixFiles>> PrefixFiles::Open(const PrefixFileOptions& options) {
  LK_ASSIGN_OR_RETURN(PieceFolder folder, PieceFolder::Open(options.folder, options.max_bytes));
  return std::unique_ptr<PrefixFiles>(new PrefixFiles(std::move(folder), options));
}

PrefixFiles::~PrefixFiles() {
  {
    absl::MutexLock lock(&mutex_);
    is_stopping_ = true;
    stop_writing_ = SteadyNow() + kFlushTime;
    reads_.clear();
  }
  if (reader_.joinable()) reader_.join();
  if (writer_.joinable()) writer_.join();
}

void PrefixFiles::Start(std::function<void(std::list<Found>)> deliver, int64_t max_waiting_bytes) {
  deliver_ = std::move(deliver);
  max_waiting_bytes_ = max_waiting_bytes;
  reader_ = std::thread([this] { RunReads(); });
  writer_ = std::thread([this] { RunWrites(); });
}

bool PrefixFiles::StartRead(Read read) {
  if (n_reads_ >= kMaxReads) return false;
  absl::MutexLock lock(&mutex_);
  reads_.push_back(std::move(read));
  ++n_reads_;
  return true;
}

void PrefixFiles::RunReads() {
  while (true) {
    std::list<Found> one;
    RunInTheEnd([&one] { one.emplace_back(); });
    Found& found = one.front();
    {
      absl::MutexLock lock(&mutex_);
      const auto has_work = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
        return is_stopping_ || !reads_.empty();
      };
      mutex_.Await(absl::Condition(&has_work));
      if (is_stopping_) return;
      found.read = std::move(reads_.front());
      reads_.pop_front();
    }
    // Without memory the request goes on with what was read.
    if (!RunContained([&] { ReadPieces(found.read, found); })) found.is_end = true;
    deliver_(std::move(one));
  }
}

void PrefixFiles::ReadPieces(const Read& read, Found& found) {
  PieceChain chain(read.space);
  const int64_t n_pieces = static_cast<int64_t>(read.tokens.size()) / read.shape.n_tokens;
  int64_t n_bytes = 0;
  for (int64_t i = 0; i < n_pieces; ++i) {
    const PieceKey& key = chain.Append(TokensOf(read.tokens, read.shape, i));
    if (i < read.first_piece) continue;
    if (n_bytes >= kReadBytes) return;
    auto piece = folder_.Read(key, UseOf(read.used, i), read.shape.max_bytes);
    if (!piece.ok()) NoteError(piece.status());
    if (!piece.ok() || !piece->has_value()) break;
    n_bytes += static_cast<int64_t>((*piece)->size_bytes());
    n_bytes_read_ += static_cast<int64_t>((*piece)->size_bytes());
    found.pieces.push_back(**std::move(piece));
  }
  found.is_end = true;
}

void PrefixFiles::StartWrite(Write write) {
  Collect();
  int64_t n_bytes = 0;
  for (const auto& piece : write.pieces) n_bytes += static_cast<int64_t>(piece.size());
  if (jobs_.size() >= kMaxWrites) return;
  if (!jobs_.empty() && n_waiting_bytes_ + n_bytes > max_waiting_bytes_) return;
  // Memory is taken before anything changes. The writer's thread never holds the last reference to
  // a prefix.
  std::list<std::shared_ptr<Job>> kept(1, std::make_shared<Job>()), waiting = kept;
  kept.front()->write = std::move(write);
  kept.front()->n_bytes = n_bytes;
  jobs_.splice(jobs_.end(), kept);
  n_waiting_bytes_ += n_bytes;
  absl::MutexLock lock(&mutex_);
  writes_.splice(writes_.end(), waiting);
}

void PrefixFiles::RunWrites() {
  while (true) {
    std::shared_ptr<Job> job;
    {
      absl::MutexLock lock(&mutex_);
      const auto has_work = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
        return is_stopping_ || !writes_.empty();
      };
      mutex_.Await(absl::Condition(&has_work));
      if (writes_.empty() || SteadyNow() > stop_writing_) return;
      job = std::move(writes_.front());
      writes_.pop_front();
    }
    RunContained([&] { WritePieces(*job); });
    job->is_over = true;
  }
}

void PrefixFiles::WritePieces(Job& job) {
  const Write& write = job.write;
  PieceChain chain(write.space);
  std::vector<std::byte> copy;
  int64_t n_bytes = 0;
  for (size_t i = 0; i < write.pieces.size(); ++i) {
    const auto number = static_cast<int64_t>(i);
    const absl::Time used = UseOf(write.used, number);
    const PieceKey& key = chain.Append(TokensOf(write.tokens, write.shape, number));
    n_bytes += static_cast<int64_t>(write.pieces[i].size());
    if (n_bytes > folder_.max_bytes() / 2) return;  // one prefix does not take all the room
    if (folder_.Touch(key, used)) continue;
    {
      absl::MutexLock lock(&mutex_);
      if (SteadyNow() > stop_writing_) return;
    }
    {
      absl::MutexLock lock(&job.mutex);
      if (job.is_over) return;
      copy.assign(write.pieces[i].begin(), write.pieces[i].end());
    }
    if (const absl::Status status = folder_.Write(key, used, copy); !status.ok()) {
      return NoteError(status);
    }
    n_bytes_written_ += static_cast<int64_t>(copy.size());
  }
}

void PrefixFiles::Collect() {
  std::erase_if(jobs_, [this](const std::shared_ptr<Job>& job) {
    if (!job->is_over) return false;
    Drop(*job);
    return true;
  });
}

void PrefixFiles::Drop(Job& job) {
  n_waiting_bytes_ -= job.n_bytes;
  job.write.prefix = {};
}

bool PrefixFiles::DropWrite() {
  if (jobs_.empty()) return false;
  const std::shared_ptr<Job> job = std::move(jobs_.back());
  jobs_.pop_back();
  {
    absl::MutexLock lock(&mutex_);
    writes_.remove(job);
  }
  absl::MutexLock lock(&job->mutex);
  job->is_over = true;
  Drop(*job);
  return true;
}

PrefixFiles::Stats PrefixFiles::stats() const {
  return {n_bytes_read_, n_bytes_written_, n_errors_};
}

void PrefixFiles::NoteError(const absl::Status& status) {
  ++n_errors_;
  {
    absl::MutexLock lock(&mutex_);
    if (SteadyNow() < next_report_) return;
    next_report_ = SteadyNow() + kReportEvery;
  }
  if (options_.on_error != nullptr) options_.on_error(status);
}

}  // namespace lowkey
