#ifndef LOWKEY_ENGINE_BASE_LOAD_ACCOUNT_H_
#define LOWKEY_ENGINE_BASE_LOAD_ACCOUNT_H_

#include <cstddef>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace lowkey {

// LoadAccount holds what the untrusted files of one load may still cost. Readers charge the bytes
// that they read and the memory that they make of them, before they do either: a short or sparse
// file can ask for gigabytes, and many names can lead to one file. Weights are not charged: they
// cost what they measure. Not thread-safe.
class LoadAccount {
 public:
  // The costliest public models (vocabularies of 262,144 tokens, 100,000 tensors) take a half.
  static constexpr size_t kMaxBytes = size_t{512} << 20;

  explicit LoadAccount(size_t max_bytes = kMaxBytes)
      : max_bytes_(max_bytes), n_left_bytes_(max_bytes) {}

  // INVALID_ARGUMENT, naming the file: the account is overdrawn.
  absl::Status Charge(const std::string& file, size_t n_bytes) {
    if (n_bytes <= n_left_bytes_) {
      n_left_bytes_ -= n_bytes;
      return absl::OkStatus();
    }
    return absl::InvalidArgumentError(
        absl::StrCat(file, ": takes over ", max_bytes_,
                     " bytes of memory to read, with the files before it; expected at most that"));
  }

 private:
  size_t max_bytes_;
  size_t n_left_bytes_;
};

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_BASE_LOAD_ACCOUNT_H_
