#include "server/grpc/status.h"

#include <gtest/gtest.h>

namespace lowkey {
namespace {

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
    EXPECT_EQ(ToGrpcStatus(ours).error_code(), theirs) << ours;
    EXPECT_EQ(ToGrpcStatus(ours).error_message(), "m");
  }
}

TEST(GrpcStatusTest, GoesThereAndBack) {
  for (int code = 1; code <= 16; ++code) {
    const absl::Status status(static_cast<absl::StatusCode>(code), "what happened");
    EXPECT_EQ(FromGrpcStatus(ToGrpcStatus(status)), status);
  }
}

TEST(GrpcStatusTest, OkStaysOk) {
  EXPECT_TRUE(ToGrpcStatus(absl::OkStatus()).ok());
  EXPECT_TRUE(FromGrpcStatus(grpc::Status::OK).ok());
}

TEST(GrpcStatusTest, CodeWithoutCounterpartIsUnknown) {
  EXPECT_EQ(ToGrpcStatus(absl::Status(static_cast<absl::StatusCode>(77), "x")).error_code(),
            grpc::StatusCode::UNKNOWN);
}

}  // namespace
}  // namespace lowkey
