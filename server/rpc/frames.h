#ifndef LOWKEY_SERVER_RPC_FRAMES_H_
#define LOWKEY_SERVER_RPC_FRAMES_H_

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace lowkey {

// A message on the wire has a byte that says whether it is compressed and its length in four bytes,
// most significant first (gRPC over HTTP/2, "Length-Prefixed-Message").
inline constexpr size_t kRpcPrefixBytes = 5;

// Returns the five bytes before a message of n_bytes.
std::string RpcPrefix(size_t n_bytes);

// Puts messages together from the pieces of a body.
class RpcFrameReader {
 public:
  explicit RpcFrameReader(size_t max_message_bytes) : max_message_bytes_(max_message_bytes) {}

  // Takes bytes off the front of `bytes`. Returns a message once it is whole; call it again while
  // bytes are left. Nullopt: all bytes are taken and a message is not whole yet. A length is
  // checked before memory is taken for it: RESOURCE_EXHAUSTED past the limit. INTERNAL for a
  // compressed message. After an error the reader must not be used.
  absl::StatusOr<std::optional<std::string>> Take(std::string_view& bytes);

  // The length of the message whose prefix has come and which is not whole.
  std::optional<size_t> expected_bytes() const;
  // Returns whether a message has begun and is not whole.
  bool is_within_message() const;
  // Bytes of that message that have come.
  size_t received_bytes() const { return message_.size(); }

 private:
  const size_t max_message_bytes_;
  std::string prefix_;
  std::optional<size_t> expected_;
  std::string message_;
};

}  // namespace lowkey

#endif  // LOWKEY_SERVER_RPC_FRAMES_H_
