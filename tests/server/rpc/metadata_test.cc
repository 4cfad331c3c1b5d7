#include "server/rpc/metadata.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "engine/base/retry_after.h"
#include "lowkey/v1/status.pb.h"

namespace lowkey {
namespace {

std::map<std::string, std::string> StatusFields(const absl::Status& status) {
  std::map<std::string, std::string> fields;
  for (const HttpField& field : ToStatusFields(status)) fields[field.name] = field.value;
  return fields;
}

std::string Unescaped(const std::string& text) {
  std::string bytes;
  EXPECT_TRUE(absl::Base64Unescape(text, &bytes)) << text;
  return bytes;
}

TEST(RpcMetadataTest, ContentTypesOfRpc) {
  for (const char* type : {"application/grpc", "application/grpc+proto", "Application/GRPC",
                           "application/grpc;charset=utf-8", "application/grpc+proto ; a=b"}) {
    EXPECT_TRUE(IsRpcContentType(type)) << type;
  }
  for (const char* type : {"", "application/json", "application/grpc+json", "application/grpcx",
                           "application/grpc-web", ";application/grpc"}) {
    EXPECT_FALSE(IsRpcContentType(type)) << type;
  }
}

TEST(RpcMetadataTest, TimeoutUnits) {
  EXPECT_EQ(ParseRpcTimeout("2H").value(), absl::Hours(2));
  EXPECT_EQ(ParseRpcTimeout("3M").value(), absl::Minutes(3));
  EXPECT_EQ(ParseRpcTimeout("00000010S").value(), absl::Seconds(10));
  EXPECT_EQ(ParseRpcTimeout("99999999m").value(), absl::Milliseconds(99'999'999));
  EXPECT_EQ(ParseRpcTimeout("7u").value(), absl::Microseconds(7));
  EXPECT_EQ(ParseRpcTimeout("0n").value(), absl::ZeroDuration());
  EXPECT_EQ(ParseRpcTimeout("99999999H").value(), absl::Hours(87600));
}

TEST(RpcMetadataTest, RefusesOtherTimeouts) {
  for (const char* text : {"", "S", "5", "123456789S", "-1S", "+1S", " 1S", "1 S", "1.5S", "1s",
                           "1h", "0x1S", "1SS", "S1"}) {
    EXPECT_EQ(ParseRpcTimeout(text).status().code(), absl::StatusCode::kInvalidArgument) << text;
  }
}

TEST(RpcMetadataTest, DeadlineOfACall) {
  const absl::Time now = absl::UnixEpoch() + absl::Hours(1);
  HttpHead head;
  head.fields = {{"te", "trailers"}};
  EXPECT_EQ(RpcDeadline(head, now).value(), absl::InfiniteFuture());
  head.fields.push_back({"grpc-timeout", "5S"});
  EXPECT_EQ(RpcDeadline(head, now).value(), now + absl::Seconds(5));
  head.fields.push_back({"grpc-timeout", "5S"});
  EXPECT_EQ(RpcDeadline(head, now).status().code(), absl::StatusCode::kInternal);
  head.fields = {{"grpc-timeout", "soon"}};
  EXPECT_EQ(RpcDeadline(head, now).status().code(), absl::StatusCode::kInternal);
}

TEST(RpcMetadataTest, EncodesStatusMessages) {
  EXPECT_EQ(EncodeStatusMessage(" plain ~text"), " plain ~text");
  EXPECT_EQ(EncodeStatusMessage("100%\n\x7F\xC3\xA9"), "100%25%0A%7F%C3%A9");
  EXPECT_EQ(EncodeStatusMessage(std::string("\0", 1)), "%00");
}

TEST(RpcMetadataTest, ClipsStatusMessagesBetweenCharacters) {
  EXPECT_EQ(EncodeStatusMessage(std::string(1024, 'a')), std::string(1024, 'a'));
  EXPECT_EQ(EncodeStatusMessage(std::string(1025, 'a')),
            absl::StrCat(std::string(1024, 'a'), "..."));
  EXPECT_EQ(EncodeStatusMessage(absl::StrCat(std::string(1023, 'a'), "\xC3\xA9")),
            absl::StrCat(std::string(1023, 'a'), "..."));
}

TEST(RpcMetadataTest, BinaryMetadata) {
  for (const char* bytes : {"", "a", "ab", "abc", "abcd", "\xFF\xFE\xFD\xFC"}) {
    const std::string text = EncodeBinaryMetadata(bytes);
    EXPECT_THAT(text, testing::Not(testing::HasSubstr("=")));
    EXPECT_EQ(Unescaped(text), bytes);
  }
  EXPECT_EQ(EncodeBinaryMetadata("ab"), "YWI");
}

TEST(RpcMetadataTest, StatusCodesAreGrpcs) {
  EXPECT_EQ(ToStatusFields(absl::OkStatus()), (HttpFields{{"grpc-status", "0"}}));
  EXPECT_EQ(ToStatusFields(absl::UnauthenticatedError("who?")),
            (HttpFields{{"grpc-status", "16"}, {"grpc-message", "who?"}}));
  EXPECT_EQ(StatusFields(absl::CancelledError(""))["grpc-status"], "1");
  for (const int code : {17, 20, 99, -1}) {
    EXPECT_EQ(StatusFields(absl::Status(static_cast<absl::StatusCode>(code), "x"))["grpc-status"],
              "2");
  }
}

TEST(RpcMetadataTest, SaysWhenToComeAgain) {
  const std::string message(2000, 'm');
  auto fields =
      StatusFields(WithRetryAfter(absl::ResourceExhaustedError(message), absl::Milliseconds(2345)));
  EXPECT_EQ(fields["grpc-status"], "8");
  EXPECT_EQ(fields["grpc-retry-pushback-ms"], "2345");
  v1::StatusDetails details;
  ASSERT_TRUE(details.ParseFromString(Unescaped(fields["grpc-status-details-bin"])));
  EXPECT_EQ(details.code(), 8);
  EXPECT_EQ(details.message(), fields["grpc-message"]);
  ASSERT_EQ(details.details_size(), 1);
  EXPECT_EQ(details.details(0).type_url(), "type.googleapis.com/google.rpc.RetryInfo");
  v1::RetryInfo info;
  ASSERT_TRUE(info.ParseFromString(details.details(0).value()));
  EXPECT_EQ(info.retry_delay().seconds(), 2);
  EXPECT_EQ(info.retry_delay().nanos(), 345'000'000);
}

}  // namespace
}  // namespace lowkey
