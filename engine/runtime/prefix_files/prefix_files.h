#ifndef LOWKEY_ENGINE_RUNTIME_PREFIX_FILES_PREFIX_FILES_H_
#define LOWKEY_ENGINE_RUNTIME_PREFIX_FILES_PREFIX_FILES_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "engine/attention/attention.h"
#include "engine/runtime/engine.h"
#include "engine/runtime/prefix_files/piece_folder.h"

namespace lowkey {

// Prefixes in files, below those in memory: they outlive the process, and several processes on one
// machine share them. A prefix is written piece by piece (AttentionMechanism::piece_shape) by one
// thread and read by another one, so that no step waits for the disk. Files change no output.
//
// A caller names a space for each prefix: everything that the bytes follow from beside the tokens.
// The engine's thread calls.
class PrefixFiles {
 public:
  // Asks for the pieces of `tokens` from first_piece on.
  struct Read {
    RequestId request = 0;
    std::string space;
    std::vector<int32_t> tokens;
    PieceShape shape;
    int64_t first_piece = 0;
    absl::Time used;  // a date, the same for all reads and writes of a request
  };
  // Holds pieces that follow one another, of about kReadBytes at most.
  struct Found {
    Read read;
    std::vector<Buffer> pieces;
    bool is_end = false;  // there are no further ones
  };
  // A prefix of whole pieces, whose options are set.
  struct Write {
    std::string space;
    std::vector<int32_t> tokens;
    PieceShape shape;
    SequenceCache prefix;
    std::vector<absl::Span<const std::byte>> pieces;  // the prefix's
    absl::Time used;                                  // a date
  };
  struct Stats {
    int64_t n_bytes_read = 0, n_bytes_written = 0;
    int64_t n_errors = 0;  // pieces that could not be written, and files that were not as written
  };

  static constexpr int64_t kReadBytes = int64_t{32} << 20;
  static constexpr size_t kMaxReads = 8, kMaxWrites = 64;

  // PieceFolder::Open's errors.
  static absl::StatusOr<std::unique_ptr<PrefixFiles>> Open(const PrefixFileOptions& options);
  // Gives writes that wait kFlushTime.
  ~PrefixFiles();

  // Starts the threads. One of them calls `deliver` with the answer to each read; it must not
  // throw. Prefixes that wait to be written hold at most max_waiting_bytes, or are a single one.
  void Start(std::function<void(std::list<Found>)> deliver, int64_t max_waiting_bytes);

  // Returns false while kMaxReads have no EndRead: the caller goes on without files.
  bool StartRead(Read read);
  // Notes that an answer was taken.
  void EndRead() { --n_reads_; }
  // Writes the pieces that no file has, as far as they take half of all room. A prefix beyond
  // kMaxWrites, or beyond the bytes that may wait, is not written.
  void StartWrite(Write write);
  // Drops the prefixes whose pieces are written.
  void Collect();
  // Drops a prefix that waits to be written, the latest first, or one that was; false when there is
  // none. For when the cache needs its memory.
  bool DropWrite();

  Stats stats() const;

 private:
  static constexpr absl::Duration kFlushTime = absl::Seconds(2);

  struct Job {
    Write write;  // the engine's thread alone changes it
    int64_t n_bytes = 0;
    absl::Mutex mutex;  // held while bytes of the prefix are read, and while it is dropped
    std::atomic<bool> is_over = false;  // written or dropped: the bytes may be gone
  };

  PrefixFiles(PieceFolder folder, const PrefixFileOptions& options)
      : options_(options), folder_(std::move(folder)) {}

  void RunReads();
  void RunWrites();
  void ReadPieces(const Read& read, Found& found);
  void WritePieces(Job& job);
  void Drop(Job& job);
  // Counts an error and reports it, at most once a minute.
  void NoteError(const absl::Status& status);

  const PrefixFileOptions options_;
  PieceFolder folder_;
  std::function<void(std::list<Found>)> deliver_;

  mutable absl::Mutex mutex_;
  std::deque<Read> reads_ ABSL_GUARDED_BY(mutex_);
  std::list<std::shared_ptr<Job>> writes_ ABSL_GUARDED_BY(mutex_);
  bool is_stopping_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Time stop_writing_ ABSL_GUARDED_BY(mutex_) = absl::InfiniteFuture();
  absl::Time next_report_ ABSL_GUARDED_BY(mutex_) = absl::InfinitePast();
  std::atomic<int64_t> n_bytes_read_{0}, n_bytes_written_{0}, n_errors_{0};

  // Belongs to the engine's thread, which drops the prefixes.
  std::list<std::shared_ptr<Job>> jobs_;
  int64_t n_waiting_bytes_ = 0, max_waiting_bytes_ = 0;  // of jobs_
  size_t n_reads_ = 0;
  std::thread reader_, writer_;
};

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_RUNTIME_PREFIX_FILES_PREFIX_FILES_H_
