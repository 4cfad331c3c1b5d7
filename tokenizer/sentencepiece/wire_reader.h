#ifndef LOWKEY_TOKENIZER_SENTENCEPIECE_WIRE_READER_H_
#define LOWKEY_TOKENIZER_SENTENCEPIECE_WIRE_READER_H_

#include <cstdint>
#include <string_view>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace lowkey {

// One field of a message in protobuf's wire format.
struct WireField {
  uint32_t number = 0;
  uint32_t wire_type = 0;  // 0 varint, 1 fixed64, 2 length-delimited, 5 fixed32
  uint64_t value = 0;      // a varint or fixed
  std::string_view bytes;  // a length-delimited field; points into the message

  // Return the value, or INVALID_ARGUMENT if the field has another wire type.
  absl::StatusOr<uint64_t> AsVarint() const;
  absl::StatusOr<uint32_t> AsFixed32() const;
  absl::StatusOr<std::string_view> AsBytes() const;
};

// Calls `visit` for each field of `message` in order, and stops at the first error. Allocates
// nothing. INVALID_ARGUMENT: truncated, a varint over 64 bits, field number 0, a group, or a wire
// type that does not exist. Other errors are the visitor's.
absl::Status ForEachWireField(std::string_view message,
                              absl::FunctionRef<absl::Status(const WireField&)> visit);

}  // namespace lowkey

#endif  // LOWKEY_TOKENIZER_SENTENCEPIECE_WIRE_READER_H_
