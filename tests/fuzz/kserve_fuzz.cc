// One input is a byte for the method and a serialized ModelInferRequest. What passes the check on
// the wire is read or refused with one of three codes, and the id that is found without parsing is
// the request's.

#include <cstddef>
#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "engine/base/status_macros.h"
#include "inference/grpc_service.pb.h"
#include "server/api/kserve/infer_request.h"
#include "server/rpc/wire_check.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const auto method =
      data[0] % 2 == 0 ? lowkey::InferMethod::kSingle : lowkey::InferMethod::kStream;
  const std::string bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  inference::ModelInferRequest proto;
  if (!lowkey::CheckWire(bytes, *proto.GetDescriptor()).ok()) return 0;
  LK_CHECK(lowkey::PeekInferId(bytes).size() <= lowkey::kMaxInferIdBytes);
  const absl::StatusOr<lowkey::InferRequest> request = lowkey::ReadInferRequest(bytes, method);
  if (!request.ok()) {
    LK_CHECK(request.status().code() == absl::StatusCode::kInvalidArgument ||
             request.status().code() == absl::StatusCode::kNotFound ||
             request.status().code() == absl::StatusCode::kUnimplemented);
    LK_CHECK(request.status().message().size() < 2000);
    return 0;
  }
  LK_CHECK(lowkey::ParseMessage(bytes, proto).ok());
  LK_CHECK(lowkey::PeekInferId(proto.SerializeAsString()) == proto.id());
  LK_CHECK(request->answer.id == proto.id());
  LK_CHECK(request->answer.n_choices >= 1 && request->answer.n_choices <= 8);
  return 0;
}
