#include "server/rpc/wire_check.h"

#include <google/protobuf/descriptor.h>
#include <google/protobuf/struct.pb.h>
#include <google/protobuf/stubs/logging.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "lowkey/v1/generation.pb.h"

namespace lowkey {
namespace {

using std::string_literals::operator""s;

int n_log_lines = 0;

class WireCheckTest : public testing::Test {
 protected:
  WireCheckTest() {
    n_log_lines = 0;
    google::protobuf::SetLogHandler(
        [](google::protobuf::LogLevel, const char*, int, const std::string&) { ++n_log_lines; });
  }
  ~WireCheckTest() override {
    EXPECT_EQ(n_log_lines, 0);
    google::protobuf::SetLogHandler(nullptr);
  }
};

template <typename Message>
absl::Status Check(const std::string& bytes) {
  return CheckWire(bytes, *Message::descriptor());
}

std::string Varint(uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes.push_back(static_cast<char>(value | 0x80));
  bytes.push_back(static_cast<char>(value));
  return bytes;
}

std::string Field(int number, const std::string& content) {
  return Varint(static_cast<uint64_t>(number) << 3 | 2) + Varint(content.size()) + content;
}

std::string Repeated(const std::string& bytes, int64_t n) {
  std::string all;
  for (int64_t i = 0; i < n; ++i) all += bytes;
  return all;
}

// Whether n copies of a field are the most that may come, each of so many elements.
template <typename Message>
void ExpectCount(const std::string& field, int64_t n_elements) {
  const int64_t n = kMaxWireElements / n_elements;
  EXPECT_TRUE(Check<Message>(Repeated(field, n)).ok());
  const absl::Status status = Check<Message>(Repeated(field, n + 1));
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(), "message: too many elements, expected at most 100000");
}

TEST_F(WireCheckTest, AcceptsARealRequest) {
  v1::GenerateRequest request;
  request.set_model("tales");
  v1::ChatMessage& message = *request.mutable_chat()->add_messages();
  message.set_content("h\xC3\xA9llo");
  message.add_tool_calls()->set_arguments_json("{}");
  (*request.mutable_sampling()->mutable_logit_bias())[-1] = 2.5f;
  request.mutable_sampling()->set_seed(~uint64_t{0});
  request.mutable_attention()->set_max_perplexity_ratio(1.5);
  request.add_stop_token_ids(-5);
  const std::string bytes = request.SerializeAsString();
  ASSERT_TRUE(Check<v1::GenerateRequest>(bytes).ok());
  v1::GenerateRequest parsed;
  ASSERT_TRUE(ParseMessage(bytes, parsed).ok());
  EXPECT_EQ(parsed.SerializeAsString(), bytes);
  for (size_t n = 0; n < bytes.size(); ++n) {
    const std::string cut = bytes.substr(0, n);
    if (Check<v1::GenerateRequest>(cut).ok()) {
      EXPECT_TRUE(ParseMessage(cut, parsed).ok()) << n;
    }
  }
}

TEST_F(WireCheckTest, CountsElements) {
  ExpectCount<v1::Chat>(Field(1, ""), 1);                       // empty messages
  ExpectCount<v1::Chat>(Field(1, Field(5, "")), 2);             // and messages in them
  ExpectCount<v1::Chat>(Field(2, "ab"), 1);                     // a string that is replaced
  ExpectCount<v1::GenerateRequest>(Field(9, ""), 1);            // strings
  ExpectCount<v1::TokenIds>("\x08\x01", 1);                     // scalars that are not packed
  ExpectCount<v1::TokenIds>(Field(1, std::string(130, 1)), 3);  // packed: 64 bytes
  ExpectCount<v1::TokenIds>(Field(77, "ab"), 1);                // unknown fields
  ExpectCount<v1::SamplingOptions>(Field(8, ""), 1);            // map entries
  ExpectCount<v1::SamplingOptions>(Field(8, "\x08\x01"), 2);
  ExpectCount<v1::DetokenizeResponse>(Field(1, "long text that is one element"), 1);
}

TEST_F(WireCheckTest, Refuses4MibOfEmptyMessages) {
  const std::string bytes = Field(5, Repeated(Field(1, ""), int64_t{2} << 20));
  EXPECT_EQ(Check<v1::GenerateRequest>(bytes).code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(WireCheckTest, RefusesDeepNesting) {
  // No request of ours nests without end; google.protobuf.Struct does.
  const auto& type = *google::protobuf::Value::descriptor();
  // Value.list_value (6), ListValue.values (1).
  std::string bytes;
  for (int depth = 1; depth + 2 <= kMaxWireDepth; depth += 2) bytes = Field(6, Field(1, bytes));
  EXPECT_TRUE(CheckWire(bytes, type).ok());
  bytes = Field(6, Field(1, bytes));
  EXPECT_EQ(CheckWire(bytes, type).message(),
            "message: nested too deep, expected at most 32 levels");
  for (int i = 0; i < 1000; ++i) bytes = Field(6, Field(1, bytes));
  EXPECT_EQ(CheckWire(bytes, type).code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(WireCheckTest, RefusesWhatIsNoMessage) {
  for (const std::string& bytes : {
           "\x0A"s,      // no length
           "\x0A\x05"s,  // cut off
           "\x0A\x05"
           "abcd"s,                          // cut off
           "\x0A\xFF\xFF\xFF\xFF\x7F"s,      // longer than all memory
           "\x0A\x80\x80\x80\x80\x80\x00"s,  // a length of six bytes
           "\x00\x00"s,                      // field 0
           "\x07\x00"s,                      // field 0
           "\x0B\x0C"s,                      // a group
           "\x0C"s,                          // the end of a group
           "\x0E\x00"s, "\x0F\x00"s,         // wire types that do not exist
           "\x08"s, "\x08\x80"s,             // varints that are cut off
           "\x08" + std::string(10, '\x80') + "\x01"s, "\x09" + std::string(7, 'a'),
           "\x0D" + std::string(3, 'a'),
           "\x8A\x80\x80\x80\x10\x00"s,      // a tag of 33 bits: protobuf sees field 1
           "\x8A\x80\x80\x80\x80\x00\x00"s,  // a tag of six bytes
       }) {
    EXPECT_EQ(Check<v1::GenerateRequest>(bytes).message(),
              "message: malformed, expected a protobuf of its type")
        << testing::PrintToString(bytes);
  }
}

TEST_F(WireCheckTest, AWireTypeThatDoesNotFitIsAnUnknownField) {
  const std::string bytes =
      "\x08\x05"s               // model as a varint
      "\x42\x02\xFF\xFF"s       // max_new_tokens as bytes
      "\x2D\x01\x02\x03\x04"s;  // chat as four bytes
  ASSERT_TRUE(Check<v1::GenerateRequest>(bytes).ok());
  v1::GenerateRequest request;
  ASSERT_TRUE(ParseMessage(bytes, request).ok());
  EXPECT_EQ(request.model(), "");
  EXPECT_FALSE(request.has_chat());
  EXPECT_EQ(request.GetReflection()->GetUnknownFields(request).field_count(), 3);
}

TEST_F(WireCheckTest, NamesTheFieldThatIsNotUtf8) {
  const std::string content = Field(5, Field(1, Field(2, "a\xED\xA0\x80")));
  for (const auto& [bytes, field] : {std::pair<std::string, std::string>{Field(3, "\xFF"), "text"},
                                     {Field(9, "ok") + Field(9, "\xC3"), "stop"},
                                     {content, "content"}}) {
    ASSERT_TRUE(Check<v1::GenerateRequest>(bytes).ok());
    v1::GenerateRequest request;
    EXPECT_EQ(ParseMessage(bytes, request),
              absl::InvalidArgumentError(field + ": not UTF-8, expected UTF-8 text"));
  }
}

TEST_F(WireCheckTest, BytesOfUnknownFieldsNeedNotBeText) {
  v1::GenerateRequest request;
  EXPECT_TRUE(ParseMessage(Field(1000, "\xFF"), request).ok());
}

TEST_F(WireCheckTest, SaysThatBytesAreNoMessage) {
  v1::GenerateRequest request;
  // A packed varint that is cut off.
  EXPECT_TRUE(Check<v1::GenerateRequest>(Field(10, "\x80")).ok());
  EXPECT_EQ(ParseMessage(Field(10, "\x80"), request),
            absl::InvalidArgumentError("message: malformed, expected a protobuf of its type"));
  EXPECT_EQ(ParseMessage("\x0A\x05", request),
            absl::InvalidArgumentError("message: malformed, expected a protobuf of its type"));
}

}  // namespace
}  // namespace lowkey
