#ifndef LOWKEY_SERVER_RPC_WIRE_CHECK_H_
#define LOWKEY_SERVER_RPC_WIRE_CHECK_H_

#include <cstdint>
#include <string_view>

#include "absl/status/status.h"

namespace google::protobuf {
class Descriptor;
class Message;
}  // namespace google::protobuf

namespace lowkey {

inline constexpr int64_t kMaxWireElements = 100'000;
inline constexpr int kMaxWireDepth = 32;

// Walks a serialized message by its type before it is parsed: protobuf makes objects of 50 bytes
// and more from two bytes on the wire. Counts messages, strings, bytes, map entries and scalars
// that are not packed as one element each, and unknown fields too; packed scalars as one for 64
// bytes. Takes no memory. INVALID_ARGUMENT: more than kMaxWireElements elements, a deeper nesting
// than kMaxWireDepth, or bytes that are no message of this type. What packed fields hold is not
// read, and extensions, which proto3 has not, count as unknown fields.
absl::Status CheckWire(std::string_view bytes, const google::protobuf::Descriptor& type);

// Parses a message that passed CheckWire. INVALID_ARGUMENT naming the first string field that is
// not UTF-8 ("text: not UTF-8, expected UTF-8 text"), which protobuf itself names only in its log,
// or "message: malformed, expected a protobuf of its type". Nothing is logged.
absl::Status ParseMessage(std::string_view bytes, google::protobuf::Message& message);

}  // namespace lowkey

#endif  // LOWKEY_SERVER_RPC_WIRE_CHECK_H_
