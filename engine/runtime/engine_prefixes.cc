// The engine's thread keeps prefixes here, and finds them again: in memory, and in files.
#include <algorithm>
#include <list>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/clock.h"
#include "engine/runtime/engine_impl.h"
#include "engine/runtime/guarded.h"

namespace lowkey {

// Keeps the prefix of a prompt that is computed up to its end or to one of its stops.
void EngineImpl::SavePrefixAt(const RequestState& state, int64_t n_computed) {
  const AttentionMechanism& mechanism = runner_->mechanism(state.request.attention.mechanism);
  const int64_t n_prompt = state.n_prompt_tokens();
  if (n_computed == n_prompt ||
      (n_computed < n_prompt && IsPrefixStop(state.request, mechanism, n_computed))) {
    SavePrefix(state, n_computed);
  }
}

// Keeps the prefix for prompts that begin alike.
void EngineImpl::SavePrefix(const RequestState& state, int64_t n_computed) {
  if (!keeps_prefixes_) return;
  // A prefix that cannot be saved will be computed again.
  (void)Guarded([&] {
    const EngineRequest& request = state.request;
    PrefixesFor(request).Save(state, runner_->mechanism(request.attention.mechanism), n_computed);
    if (files_ != nullptr && n_computed >= state.n_prompt_tokens()) WriteFiles(state, n_computed);
  });
}

// The scheduler calls this when it admits a request; returns the rows of its prompt in the cache.
int64_t EngineImpl::RestorePrefix(RequestState& state) {
  if (!keeps_prefixes_) return 0;
  int64_t n_tokens = 0;
  const AttentionMechanism& mechanism = runner_->mechanism(state.request.attention.mechanism);
  PrefixCache& prefixes = PrefixesFor(state.request);
  if (!Guarded([&] { n_tokens = prefixes.Restore(state, mechanism); }).ok()) state.ReleaseCache();
  if (state.started.has_value()) return n_tokens;  // preempted: the caller was told already
  state.n_cached_tokens = static_cast<int32_t>(n_tokens);
  counters_.n_prefix_queries += state.n_prompt_tokens();
  counters_.n_prefix_tokens += n_tokens;
  return n_tokens;
}

// Gives memory of a cache up: its prefixes that were used longest ago, then those that wait to be
// written, which a place with one cache alone has. Prefixes in another cache stay: they would be
// lost for nothing.
bool EngineImpl::Reclaim(size_t cache) {
  const int64_t n_used = runner_->used_bytes_of_cache(cache);
  while (prefixes_[cache].DropOldest()) {
    if (runner_->used_bytes_of_cache(cache) < n_used) return true;
  }
  return files_ != nullptr && files_->DropWrite();
}

// Returns the space of the request's prefix files (PrefixFiles). Mechanism standard alone has some.
std::string EngineImpl::FileSpace(const EngineRequest& request) const {
  const StandardOptions& standard = request.attention.standard;
  return absl::StrCat(file_space_, "\n", std::string(NameOf(standard.storage)), "\n",
                      PrefixStorageString(standard.prefix_storage), "\n", request.tenant);
}

// Begins to write what was computed, where it can be cut into pieces.
void EngineImpl::WriteFiles(const RequestState& state, int64_t n_computed) {
  const EngineRequest& request = state.request;
  const AttentionMechanism& mechanism = runner_->mechanism(request.attention.mechanism);
  const auto shape = mechanism.piece_shape(request.attention);
  if (!shape.has_value()) return;
  // A prompt that is computed in blocks has its blocks for pieces.
  const bool has_blocks = mechanism.prompt_block(request.attention).has_value();
  const int64_t n_known = has_blocks ? std::min(n_computed, state.n_prompt_tokens()) : n_computed;
  const int64_t n_pieces = n_known / shape->n_tokens, n_tokens = n_pieces * shape->n_tokens;
  if (n_pieces == 0) return;
  auto prefix = mechanism.Prefix(state.choices[0].cache, n_computed, n_tokens);
  if (!prefix.has_value()) return;
  prefix->options = request.attention;
  PrefixFiles::Write write{
      FileSpace(request), state.FirstTokens(n_tokens), *shape, *std::move(prefix), {}, state.used};
  for (int64_t i = 0; i < n_pieces; ++i) {
    write.pieces.push_back(mechanism.PieceBytes(write.prefix, i));
  }
  files_->StartWrite(std::move(write));
}

// Begins to read what files may have of the prompt beyond what the prefix cache has, or beyond
// pieces that are on their way into it. Returns whether an answer will come (TakeFound).
bool EngineImpl::ReadFiles(const RequestState& state, const PrefixFiles::Found* coming) {
  if (files_ == nullptr) return false;
  const EngineRequest& request = state.request;
  const auto shape = runner_->mechanism(request.attention.mechanism).piece_shape(request.attention);
  if (!shape.has_value()) return false;
  const int64_t n_pieces = PrefixCache::MostTokens(state) / shape->n_tokens;
  bool is_reading = false;
  // Without memory the prompt is computed.
  (void)Guarded([&] {
    int64_t first_piece = PrefixesFor(request).NumTokens(state) / shape->n_tokens;
    if (coming != nullptr) {
      if (first_piece < coming->read.first_piece) return;  // what they follow is gone
      const auto n_coming = static_cast<int64_t>(coming->pieces.size());
      first_piece = std::max(first_piece, coming->read.first_piece + n_coming);
    }
    if (first_piece >= n_pieces) return;
    PrefixFiles::Read read{state.id, FileSpace(request), request.prompt,
                           *shape,   first_piece,        state.used};
    read.tokens.resize(n_pieces * shape->n_tokens);
    is_reading = files_->StartRead(std::move(read));
  });
  return is_reading;
}

// Takes the pieces that were read into the prefix cache.
void EngineImpl::TakeFound() {
  if (files_ == nullptr) return;
  files_->Collect();
  std::list<PrefixFiles::Found> all;
  {
    absl::MutexLock lock(&mutex_);
    all.swap(found_);
  }
  while (!all.empty()) {
    const PrefixFiles::Found& found = all.front();
    files_->EndRead();
    RequestState* const state = FindLive(found.read.request);
    if (state != nullptr && state->reads_since.has_value()) TakeAnswer(*state, found);
    all.pop_front();
  }
}

// Takes one answer's pieces while the next ones are read. Once there are none, the request goes on.
void EngineImpl::TakeAnswer(RequestState& state, const PrefixFiles::Found& found) {
  const bool goes_on = !found.is_end && ReadFiles(state, &found);
  if (!found.pieces.empty()) Extend(state, found);
  if (!goes_on) return EndReading(state);
  state.reads_since = SteadyNow();
}

void EngineImpl::Extend(const RequestState& state, const PrefixFiles::Found& found) {
  const PieceShape& shape = found.read.shape;
  const int64_t n_before = found.read.first_piece * shape.n_tokens;
  const int64_t n_after = n_before + static_cast<int64_t>(found.pieces.size()) * shape.n_tokens;
  int64_t n_tokens = n_before;
  (void)Guarded([&] {
    PrefixCache& prefixes = PrefixesFor(state.request);
    if (prefixes.NumTokens(state) >= n_after) return;  // another request has taken them
    AttentionMechanism& mechanism = runner_->mechanism(state.request.attention.mechanism);
    n_tokens = prefixes.Extend(state, mechanism, n_before, found.pieces).value_or(n_before);
  });
  counters_.n_prefix_file_tokens += n_tokens - n_before;
}

void EngineImpl::EndReading(RequestState& state) {
  state.reads_since.reset();
  absl::MutexLock lock(&mutex_);
  NoteCachedRows(state, true);
  next_deadline_ = std::min(next_deadline_, state.start_by());
  if (SteadyNow() < state.start_by()) scheduler_.SetPaused(state.id, false);
}

}  // namespace lowkey
