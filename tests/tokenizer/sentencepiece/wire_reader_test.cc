#include "tokenizer/sentencepiece/wire_reader.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/tokenizer/sentencepiece/model_builder.h"
#include "tests/tokenizer/status_matchers.h"

namespace lowkey {
namespace {

absl::Status Walk(std::string_view message, std::vector<WireField>* fields = nullptr) {
  return ForEachWireField(message, [&](const WireField& field) {
    if (fields != nullptr) fields->push_back(field);
    return absl::OkStatus();
  });
}

TEST(WireReaderTest, ReadsEveryWireType) {
  const std::string message = WireWriter().Varint(1, ~uint64_t{0}).Fixed32(2, 0xDEADBEEF).data() +
                              std::string("\x19\x08\x07\x06\x05\x04\x03\x02\x01", 9) +
                              WireWriter().Bytes(536870911, "bytes").data();
  std::vector<WireField> fields;
  ASSERT_THAT(Walk(message, &fields), IsOk());
  ASSERT_EQ(fields.size(), 4u);
  EXPECT_EQ(*fields[0].AsVarint(), ~uint64_t{0});
  EXPECT_EQ(*fields[1].AsFixed32(), 0xDEADBEEF);
  EXPECT_EQ(fields[2].number, 3u);
  EXPECT_EQ(fields[2].value, 0x0102030405060708u);
  EXPECT_EQ(fields[3].number, 536870911u);
  EXPECT_EQ(*fields[3].AsBytes(), "bytes");
}

TEST(WireReaderTest, EmptyMessageHasNoFields) { EXPECT_THAT(Walk(""), IsOk()); }

TEST(WireReaderTest, RejectsEveryTruncation) {
  const std::string message = WireWriter().Varint(1, 300).data();
  const std::string fixed = WireWriter().Fixed32(2, 7).data();
  const std::string bytes = WireWriter().Bytes(3, "hello").data();
  for (const std::string& whole : {message, fixed, bytes}) {
    for (size_t n = 1; n < whole.size(); ++n) {
      EXPECT_THAT(Walk(whole.substr(0, n)), IsInvalid("ends inside the field at byte 0")) << n;
    }
  }
}

TEST(WireReaderTest, RejectsLengthBeyondTheMessage) {
  EXPECT_THAT(Walk("\x0A\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x01"), IsInvalid("malformed message"));
  EXPECT_THAT(Walk("\x0A\x02x"), IsInvalid("malformed message"));
}

TEST(WireReaderTest, RejectsVarintOver64Bits) {
  EXPECT_THAT(Walk("\x08\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x02"), IsInvalid("malformed"));
  EXPECT_THAT(Walk("\x08\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF\x01"), IsInvalid("malformed"));
}

TEST(WireReaderTest, RejectsFieldNumberZeroAndTooLarge) {
  EXPECT_THAT(Walk(std::string_view("\x00\x01", 2)), IsInvalid("field number 0"));
  EXPECT_THAT(Walk(WireWriter().Varint(536870912, 1).data()), IsInvalid("field number 536870912"));
}

TEST(WireReaderTest, RejectsGroupsAndUnknownWireTypes) {
  for (const char* message : {"\x0B", "\x0C", "\x0E", "\x0F"}) {
    EXPECT_THAT(Walk(message), IsInvalid("wire type"));
  }
}

TEST(WireReaderTest, NamesTheWireTypeThatAFieldLacks) {
  std::vector<WireField> fields;
  ASSERT_THAT(Walk(WireWriter().Varint(4, 1).data(), &fields), IsOk());
  EXPECT_THAT(fields[0].AsBytes(), IsInvalid("field 4: wire type 0, expected 2"));
  EXPECT_THAT(fields[0].AsFixed32(), IsInvalid("field 4: wire type 0, expected 5"));
}

TEST(WireReaderTest, StopsAtTheVisitorsError) {
  int n_visited = 0;
  const absl::Status status =
      ForEachWireField(WireWriter().Varint(1, 1).Varint(2, 1).data(), [&](const WireField&) {
        ++n_visited;
        return absl::CancelledError("enough");
      });
  EXPECT_THAT(status, FailsWith(absl::StatusCode::kCancelled, "enough"));
  EXPECT_EQ(n_visited, 1);
}

}  // namespace
}  // namespace lowkey
