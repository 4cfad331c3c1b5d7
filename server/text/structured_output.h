#ifndef LOWKEY_SERVER_TEXT_STRUCTURED_OUTPUT_H_
#define LOWKEY_SERVER_TEXT_STRUCTURED_OUTPUT_H_

#include <cstdint>
#include <list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "engine/sampler/token_constraint.h"
#include "server/grammar/constraint.h"
#include "server/request/response_format.h"
#include "tokenizer/tokenizer.h"

namespace lowkey {

// Compiles the response formats of requests to one model, and keeps those that were used last.
// Thread-safe.
class StructuredOutput {
 public:
  static constexpr int64_t kMaxCachedBytes = int64_t{64} << 20;

  // `tokenizer` must outlive this and the constraints that were made. `end_tokens` end a text.
  StructuredOutput(const Tokenizer& tokenizer, int32_t vocab_size, std::vector<int32_t> end_tokens,
                   int64_t max_cached_bytes = kMaxCachedBytes)
      : tokenizer_(tokenizer),
        vocab_size_(vocab_size),
        end_tokens_(std::move(end_tokens)),
        max_cached_bytes_(max_cached_bytes) {}

  // Blocks while it compiles, for a tenth of a second at most. No tenant can find out from the time
  // what another asked for. INVALID_ARGUMENT naming the fault and its place, and beginning with
  // "response_format", or with the field of a tool; FAILED_PRECONDITION if the model has no end
  // tokens; the interrupt's error.
  absl::StatusOr<std::shared_ptr<const TokenConstraintFactory>> Compile(
      const ResponseFormat& format, const std::string& tenant, Interrupt& interrupt)
      ABSL_LOCKS_EXCLUDED(mutex_);

  // INVALID_ARGUMENT, as Compile's, for more text than is compiled.
  static absl::Status CheckSize(const ResponseFormat& format);

  int64_t cached_bytes() const ABSL_LOCKS_EXCLUDED(mutex_);

 private:
  using Factory = std::shared_ptr<const grammar::GrammarConstraintFactory>;
  struct Entry {
    std::string key;
    Factory factory;
    int64_t size_bytes = 0;
  };

  // The vocabulary is laid out when it is asked for first: some 50 ms.
  std::shared_ptr<const grammar::Vocabulary> VocabularyOnce() ABSL_LOCKS_EXCLUDED(mutex_);
  Factory Find(const std::string& key) ABSL_LOCKS_EXCLUDED(mutex_);
  void Keep(Entry entry) ABSL_LOCKS_EXCLUDED(mutex_);

  const Tokenizer& tokenizer_;
  const int32_t vocab_size_;
  const std::vector<int32_t> end_tokens_;
  const int64_t max_cached_bytes_;
  const std::shared_ptr<grammar::MaskCache> masks_ = std::make_shared<grammar::MaskCache>();

  mutable absl::Mutex mutex_;
  std::shared_ptr<const grammar::Vocabulary> vocabulary_ ABSL_GUARDED_BY(mutex_);
  std::list<Entry> entries_ ABSL_GUARDED_BY(mutex_);  // the one used last comes first
  absl::flat_hash_map<std::string, std::list<Entry>::iterator> found_ ABSL_GUARDED_BY(mutex_);
  int64_t size_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace lowkey

#endif  // LOWKEY_SERVER_TEXT_STRUCTURED_OUTPUT_H_
