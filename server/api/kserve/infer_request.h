#ifndef LOWKEY_SERVER_API_KSERVE_INFER_REQUEST_H_
#define LOWKEY_SERVER_API_KSERVE_INFER_REQUEST_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "inference/grpc_service.pb.h"
#include "inference/model_config.pb.h"
#include "server/request/request.h"

namespace lowkey {

// The one version that every served model has.
inline constexpr std::string_view kModelVersion = "1";

// A client's id of a request is in every answer, so it must be short.
inline constexpr size_t kMaxInferIdBytes = 256;

// AnswerOptions says what the answers to a request hold.
struct AnswerOptions {
  std::string id = {};      // the client's
  std::string prompt = {};  // stands before text_output
  bool is_streamed = false;
  bool has_empty_final = false;  // the last answer of a stream has no tensors
  int32_t n_choices = 1;
  bool text = true;
  bool finish_reason = false, cumulative_logprob = false, logprobs = false;
  bool num_input_tokens = false, num_output_tokens = false;
};

struct InferRequest {
  GenerationRequest generation;  // with the deadline of the parameter `timeout`
  AnswerOptions answer;
};

// InferMethod says whether a method can answer more than once.
enum class InferMethod { kSingle, kStream };

// Reads a serialized ModelInferRequest. INVALID_ARGUMENT names the input, output or parameter;
// NOT_FOUND: another version than kModelVersion; UNIMPLEMENTED: shared memory.
absl::StatusOr<InferRequest> ReadInferRequest(const std::string& message, InferMethod method);

// Returns the client's id in a serialized request that CheckWire has passed, without parsing the
// rest; empty if it does not come among the first fields, or is too long. Takes little time.
std::string PeekInferId(std::string_view message);

// A tensor as metadata and configuration describe it.
struct TensorInfo {
  std::string_view name;
  std::string_view datatype;  // "BYTES"
  inference::DataType type;
  int64_t dim = 1;  // of its one dimension; -1: any
  bool is_optional = true;
};
absl::Span<const TensorInfo> InputTensors();
absl::Span<const TensorInfo> OutputTensors();

}  // namespace lowkey

#endif  // LOWKEY_SERVER_API_KSERVE_INFER_REQUEST_H_
