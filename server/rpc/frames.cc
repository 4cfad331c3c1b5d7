#include "server/rpc/frames.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "absl/strings/str_cat.h"

namespace lowkey {

std::string RpcPrefix(size_t n_bytes) {
  std::string prefix(kRpcPrefixBytes, '\0');
  for (size_t i = kRpcPrefixBytes - 1; i > 0; --i, n_bytes >>= 8) {
    prefix[i] = static_cast<char>(n_bytes & 0xFF);
  }
  return prefix;
}

absl::StatusOr<std::optional<std::string>> RpcFrameReader::Take(std::string_view& bytes) {
  if (!expected_.has_value()) {
    const size_t n = std::min(kRpcPrefixBytes - prefix_.size(), bytes.size());
    prefix_.append(bytes.substr(0, n));
    bytes.remove_prefix(n);
    if (!prefix_.empty() && prefix_[0] != 0) {
      return absl::InternalError("message: compressed, expected grpc-encoding identity");
    }
    if (prefix_.size() < kRpcPrefixBytes) return std::optional<std::string>();
    size_t length = 0;
    for (size_t i = 1; i < kRpcPrefixBytes; ++i) {
      length = length << 8 | static_cast<uint8_t>(prefix_[i]);
    }
    if (length > max_message_bytes_) {
      return absl::ResourceExhaustedError(
          absl::StrCat("message: ", length, " bytes, expected at most ", max_message_bytes_));
    }
    expected_ = length;
  }
  const size_t n = std::min(*expected_ - message_.size(), bytes.size());
  // Grows with the bytes that come: nobody gets memory for a length alone.
  message_.append(bytes.substr(0, n));
  bytes.remove_prefix(n);
  if (message_.size() < *expected_) return std::optional<std::string>();
  prefix_.clear();
  expected_.reset();
  return std::optional<std::string>(std::exchange(message_, std::string()));
}

std::optional<size_t> RpcFrameReader::expected_bytes() const { return expected_; }

bool RpcFrameReader::is_within_message() const { return !prefix_.empty(); }

}  // namespace lowkey
