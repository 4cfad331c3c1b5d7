#ifndef LOWKEY_SERVER_HTTP_BYTE_BUDGET_H_
#define LOWKEY_SERVER_HTTP_BYTE_BUDGET_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

namespace lowkey {

// Bytes that several owners share. Thread-safe.
class ByteBudget {
 public:
  // Takes every byte from `whole` as well, unless that is null. It must outlive this budget.
  explicit ByteBudget(int64_t n_bytes, ByteBudget* whole = nullptr)
      : n_bytes_(n_bytes), left_(n_bytes), whole_(whole) {}

  // False, and nothing is taken, if fewer are left.
  bool Take(int64_t n_bytes) {
    if (left_.fetch_sub(n_bytes) >= n_bytes && (whole_ == nullptr || whole_->Take(n_bytes))) {
      return true;
    }
    left_ += n_bytes;
    return false;
  }
  void Give(int64_t n_bytes) {
    left_ += n_bytes;
    if (whole_ != nullptr) whole_->Give(n_bytes);
  }
  int64_t left() const { return left_; }
  int64_t held() const { return n_bytes_ - left_; }

 private:
  const int64_t n_bytes_;
  std::atomic<int64_t> left_;
  ByteBudget* const whole_;
};

// Bytes taken of a budget, which has them again after this object's end.
class HeldBytes {
 public:
  explicit HeldBytes(std::shared_ptr<ByteBudget> budget) : budget_(std::move(budget)) {}
  ~HeldBytes() { budget_->Give(n_bytes_); }
  HeldBytes(const HeldBytes&) = delete;
  HeldBytes& operator=(const HeldBytes&) = delete;

  // Null if the budget has fewer left.
  static std::shared_ptr<const HeldBytes> Take(std::shared_ptr<ByteBudget> budget,
                                               int64_t n_bytes) {
    auto held = std::make_shared<HeldBytes>(std::move(budget));
    if (!held->budget_->Take(n_bytes)) return nullptr;
    held->n_bytes_ = n_bytes;
    return held;
  }

 private:
  const std::shared_ptr<ByteBudget> budget_;
  int64_t n_bytes_ = 0;
};

// The bytes that all connections of a server may take together.
struct HttpBudgets {
  ByteBudget answers{int64_t{256} << 20};  // that wait for their readers
  ByteBudget bodies{int64_t{64} << 20};    // that come, or wait to be read
};

}  // namespace lowkey

#endif  // LOWKEY_SERVER_HTTP_BYTE_BUDGET_H_
