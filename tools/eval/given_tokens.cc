#include "tools/eval/given_tokens.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace lowkey {
namespace {

class GivenTokens : public TokenConstraint {
 public:
  GivenTokens(std::shared_ptr<const std::vector<int32_t>> tokens, int32_t vocab_size)
      : tokens_(std::move(tokens)), mask_((vocab_size + 63) / 64, 0) {}

  absl::StatusOr<absl::Span<const uint64_t>> Mask() override {
    if (n_taken_ == tokens_->size()) return absl::FailedPreconditionError("the text has ended");
    std::fill(mask_.begin(), mask_.end(), 0);
    const int32_t next = (*tokens_)[n_taken_];
    mask_[next / 64] = uint64_t{1} << (next % 64);
    return mask_;
  }

  absl::Status Advance(int32_t token) override {
    if (n_taken_ == tokens_->size() || token != (*tokens_)[n_taken_]) {
      return absl::InvalidArgumentError(absl::StrCat("token ", token, " is not the text's"));
    }
    ++n_taken_;
    return absl::OkStatus();
  }

  std::unique_ptr<TokenConstraint> Copy() const override {
    return std::make_unique<GivenTokens>(*this);
  }

  std::vector<int32_t> ForcedTokens(int64_t most) override {
    const auto n = std::min<size_t>(tokens_->size() - n_taken_, most);
    return {tokens_->begin() + n_taken_, tokens_->begin() + n_taken_ + n};
  }

 private:
  const std::shared_ptr<const std::vector<int32_t>> tokens_;
  std::vector<uint64_t> mask_;
  size_t n_taken_ = 0;
};

class GivenTokensFactory : public TokenConstraintFactory {
 public:
  GivenTokensFactory(std::vector<int32_t> tokens, int32_t vocab_size)
      : tokens_(std::make_shared<const std::vector<int32_t>>(std::move(tokens))),
        vocab_size_(vocab_size) {}

  int32_t vocab_size() const override { return vocab_size_; }
  std::unique_ptr<TokenConstraint> Begin() const override {
    return std::make_unique<GivenTokens>(tokens_, vocab_size_);
  }

 private:
  const std::shared_ptr<const std::vector<int32_t>> tokens_;
  const int32_t vocab_size_;
};

}  // namespace

std::shared_ptr<const TokenConstraintFactory> GiveTokens(std::vector<int32_t> tokens,
                                                         int32_t vocab_size) {
  return std::make_shared<GivenTokensFactory>(std::move(tokens), vocab_size);
}

}  // namespace lowkey
