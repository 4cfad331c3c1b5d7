#include "client/call_status.h"

#include <gtest/gtest.h>

#include <string>

#include "absl/strings/escaping.h"
#include "engine/base/retry_after.h"
#include "server/rpc/metadata.h"

namespace lowkey {
namespace {

// The status as a client's library gets it from the server's fields.
grpc::Status Sent(const absl::Status& status) {
  int code = 0;
  std::string message, details;
  for (const HttpField& field : ToStatusFields(status)) {
    if (field.name == "grpc-status") code = std::stoi(field.value);
    if (field.name == "grpc-message") message = field.value;
    if (field.name == "grpc-status-details-bin") {
      EXPECT_TRUE(absl::Base64Unescape(field.value, &details)) << field.value;
    }
  }
  return grpc::Status(static_cast<grpc::StatusCode>(code), message, details);
}

TEST(GrpcStatusTest, EveryCodeOfTheErrorTableHasItsCounterpart) {
  const std::pair<absl::Status, grpc::StatusCode> kTable[] = {
      {absl::InvalidArgumentError("m"), grpc::StatusCode::INVALID_ARGUMENT},
      {absl::OutOfRangeError("m"), grpc::StatusCode::OUT_OF_RANGE},
      {absl::FailedPreconditionError("m"), grpc::StatusCode::FAILED_PRECONDITION},
      {absl::UnimplementedError("m"), grpc::StatusCode::UNIMPLEMENTED},
      {absl::AlreadyExistsError("m"), grpc::StatusCode::ALREADY_EXISTS},
      {absl::ResourceExhaustedError("m"), grpc::StatusCode::RESOURCE_EXHAUSTED},
      {absl::UnavailableError("m"), grpc::StatusCode::UNAVAILABLE},
      {absl::DeadlineExceededError("m"), grpc::StatusCode::DEADLINE_EXCEEDED},
      {absl::CancelledError("m"), grpc::StatusCode::CANCELLED},
      {absl::UnauthenticatedError("m"), grpc::StatusCode::UNAUTHENTICATED},
      {absl::NotFoundError("m"), grpc::StatusCode::NOT_FOUND},
      {absl::InternalError("m"), grpc::StatusCode::INTERNAL},
  };
  for (const auto& [ours, theirs] : kTable) {
    EXPECT_EQ(Sent(ours).error_code(), theirs) << ours;
    EXPECT_EQ(Sent(ours).error_message(), "m");
  }
}

TEST(GrpcStatusTest, GoesThereAndBack) {
  for (int code = 1; code <= 16; ++code) {
    const absl::Status status(static_cast<absl::StatusCode>(code), "what happened");
    EXPECT_EQ(FromGrpcStatus(Sent(status)), status);
  }
}

TEST(GrpcStatusTest, TimeToTryAgainTravelsAsRetryInfo) {
  const absl::Status status =
      WithRetryAfter(absl::ResourceExhaustedError("queue: full"), absl::Milliseconds(2500));
  const grpc::Status sent = Sent(status);
  // google.rpc.Status{code: 8, message, details: [Any of google.rpc.RetryInfo{2.5 s}]}, as other
  // languages' libraries write it.
  const std::string expected =
      "\x08\x08\x12\x0bqueue: full\x1a\x36\x0a\x28type.googleapis.com/google.rpc.RetryInfo"
      "\x12\x0a\x0a\x08\x08\x02\x10\x80\xca\xb5\xee\x01";
  EXPECT_EQ(sent.error_details(), expected);
  EXPECT_EQ(RetryAfterOf(FromGrpcStatus(sent)), absl::Milliseconds(2500));
  EXPECT_EQ(FromGrpcStatus(sent).message(), "queue: full");
  EXPECT_EQ(Sent(absl::ResourceExhaustedError("x")).error_details(), "");
}

TEST(GrpcStatusTest, DetailsOfOtherServersAreNotTrusted) {
  const auto delay = [](const std::string& details) {
    return RetryAfterOf(
        FromGrpcStatus(grpc::Status(grpc::StatusCode::RESOURCE_EXHAUSTED, "m", details)));
  };
  const std::string type = "\x1a\x37\x0a\x28type.googleapis.com/google.rpc.RetryInfo\x12\x0b";
  EXPECT_EQ(delay("\xff\xff\xff"), std::nullopt);
  EXPECT_EQ(delay(type + "\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"), std::nullopt);
  EXPECT_EQ(delay("\x08\x08"), std::nullopt);
  // Longer than a day, and before now.
  const std::string year = "\x1a\x33\x0a\x28type.googleapis.com/google.rpc.RetryInfo\x12\x07";
  EXPECT_EQ(delay(year + "\x0a\x05\x08\x80\xe7\x84\x0f"), std::nullopt);
  EXPECT_EQ(delay("\x1a\x39\x0a\x28type.googleapis.com/google.rpc.RetryInfo\x12\x0d"
                  "\x0a\x0b\x08\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"),
            std::nullopt);
}

TEST(GrpcStatusTest, OkStaysOk) {
  EXPECT_TRUE(Sent(absl::OkStatus()).ok());
  EXPECT_TRUE(FromGrpcStatus(grpc::Status::OK).ok());
}

TEST(GrpcStatusTest, CodeWithoutCounterpartIsUnknown) {
  EXPECT_EQ(Sent(absl::Status(static_cast<absl::StatusCode>(77), "x")).error_code(),
            grpc::StatusCode::UNKNOWN);
}

}  // namespace
}  // namespace lowkey
