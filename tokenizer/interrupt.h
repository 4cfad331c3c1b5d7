#ifndef LOWKEY_TOKENIZER_INTERRUPT_H_
#define LOWKEY_TOKENIZER_INTERRUPT_H_

#include <cstddef>
#include <functional>
#include <utility>

#include "absl/status/status.h"

namespace lowkey {

// Asks its owner now and then whether work that can take long should go on. Not thread-safe.
class Interrupt {
 public:
  // Returns OK to go on, or the error that ends the work.
  using Check = std::function<absl::Status()>;

  // Asks once before any work, and then each time that so much has been done: a few milliseconds.
  static constexpr size_t kUnitsPerCheck = size_t{1} << 15;

  explicit Interrupt(Check check) : check_(std::move(check)) {}

  // Counts `n` units of work, of which one is about a character. Returns the check's error.
  absl::Status Count(size_t n = 1) {
    if (n <= units_left_) {
      units_left_ -= n;
      return absl::OkStatus();
    }
    units_left_ = kUnitsPerCheck;
    return check_();
  }

 private:
  const Check check_;
  size_t units_left_ = 0;
};

// Counts if there is an interrupt; null means that nobody asks.
inline absl::Status Count(Interrupt* interrupt, size_t n = 1) {
  return interrupt == nullptr ? absl::OkStatus() : interrupt->Count(n);
}

}  // namespace lowkey

#endif  // LOWKEY_TOKENIZER_INTERRUPT_H_
