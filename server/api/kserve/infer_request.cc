#include "server/api/kserve/infer_request.h"

#include <google/protobuf/arena.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/clock.h"
#include "engine/base/json.h"
#include "engine/base/status_macros.h"
#include "engine/config/limits.h"
#include "server/api/kserve/settings.h"
#include "server/api/kserve/tensors.h"
#include "server/request/limits.h"
#include "server/rpc/wire_check.h"
#include "tokenizer/utf8.h"

namespace lowkey {
namespace {

constexpr TensorInfo kInputs[] = {
    {"text_input", "BYTES", inference::TYPE_STRING, 1, false},
    {"input_ids", "INT32", inference::TYPE_INT32, -1},
    {"stream", "BOOL", inference::TYPE_BOOL},
    {"exclude_input_in_output", "BOOL", inference::TYPE_BOOL},
    {"sampling_parameters", "BYTES", inference::TYPE_STRING},
    {"max_tokens", "INT32", inference::TYPE_INT32},
    {"temperature", "FP32", inference::TYPE_FP32},
    {"top_k", "INT32", inference::TYPE_INT32},
    {"top_p", "FP32", inference::TYPE_FP32},
    {"random_seed", "UINT64", inference::TYPE_UINT64},
    {"stop_words", "BYTES", inference::TYPE_STRING, -1},
    {"return_finish_reason", "BOOL", inference::TYPE_BOOL},
    {"return_cumulative_logprob", "BOOL", inference::TYPE_BOOL},
    {"return_logprobs", "BOOL", inference::TYPE_BOOL},
    {"return_num_input_tokens", "BOOL", inference::TYPE_BOOL},
    {"return_num_output_tokens", "BOOL", inference::TYPE_BOOL},
};

constexpr TensorInfo kOutputs[] = {
    {"text_output", "BYTES", inference::TYPE_STRING, -1},
    {"finish_reason", "BYTES", inference::TYPE_STRING, -1},
    {"cumulative_logprob", "FP32", inference::TYPE_FP32, -1},
    {"logprobs", "BYTES", inference::TYPE_STRING, -1},
    {"num_input_tokens", "UINT32", inference::TYPE_UINT32, 1},
    {"num_output_tokens", "UINT32", inference::TYPE_UINT32, -1},
};

constexpr std::pair<std::string_view, bool AnswerOptions::*> kOutputFlags[] = {
    {"text_output", &AnswerOptions::text},
    {"finish_reason", &AnswerOptions::finish_reason},
    {"cumulative_logprob", &AnswerOptions::cumulative_logprob},
    {"logprobs", &AnswerOptions::logprobs},
    {"num_input_tokens", &AnswerOptions::num_input_tokens},
    {"num_output_tokens", &AnswerOptions::num_output_tokens},
};

constexpr int32_t kDefaultLogprobs = 0;  // alternatives, where only the tokens' own are asked for

bool AnswerOptions::*FlagOf(std::string_view output) {
  for (const auto& [name, flag] : kOutputFlags) {
    if (name == output) return flag;
  }
  return nullptr;
}

absl::Status Unknown(std::string_view kind, std::string_view name,
                     absl::Span<const TensorInfo> known) {
  std::string names;
  for (const TensorInfo& info : known) absl::StrAppend(&names, " ", std::string(info.name));
  return absl::InvalidArgumentError(absl::StrCat(std::string(kind), ": ",
                                                 ShortText(std::string(name)),
                                                 " is not known, expected one of", names));
}

// Reads one request.
class Reader {
 public:
  Reader(const inference::ModelInferRequest& proto, InferMethod method)
      : proto_(proto), method_(method) {}

  absl::StatusOr<InferRequest> Read() {
    LK_RETURN_IF_ERROR(ReadHead());
    LK_ASSIGN_OR_RETURN(const std::vector<InferTensor> tensors, ReadTensors(proto_));
    // The scalar inputs come last: they win over sampling_parameters, whatever their order.
    for (const InferTensor& tensor : tensors) {
      if (tensor.name() != "sampling_parameters") continue;
      LK_ASSIGN_OR_RETURN(const auto texts, tensor.Texts(1));
      LK_RETURN_IF_ERROR(ReadSamplingParameters(texts[0], request_.generation));
    }
    for (const InferTensor& tensor : tensors) LK_RETURN_IF_ERROR(ReadInput(tensor));
    for (const auto& [name, parameter] : proto_.parameters()) {
      LK_RETURN_IF_ERROR(ReadParameter(name, parameter));
    }
    LK_RETURN_IF_ERROR(ReadOutputs());
    LK_RETURN_IF_ERROR(Complete());
    return std::move(request_);
  }

 private:
  absl::Status ReadHead() {
    if (proto_.id().size() > kMaxInferIdBytes) {
      return absl::InvalidArgumentError(
          absl::StrCat("id: ", proto_.id().size(), " bytes, expected at most ", kMaxInferIdBytes));
    }
    request_.answer.id = proto_.id();
    request_.generation.model = proto_.model_name();
    const std::string& version = proto_.model_version();
    if (version.empty() || version == kModelVersion) return absl::OkStatus();
    return absl::NotFoundError(
        absl::StrCat("model_version: ", ShortText(version), ", expected none or \"1\""));
  }

  absl::Status ReadText(const InferTensor& tensor) {
    LK_ASSIGN_OR_RETURN(auto texts, tensor.Texts(1));
    LK_RETURN_IF_ERROR(CheckUtf8(tensor.name(), texts[0]));
    has_text_ = true;
    request_.generation.input = std::move(texts[0]);
    return absl::OkStatus();
  }

  absl::Status ReadInput(const InferTensor& tensor) {
    const std::string& name = tensor.name();
    const auto is_it = [&name](const TensorInfo& info) { return info.name == name; };
    if (std::none_of(std::begin(kInputs), std::end(kInputs), is_it)) {
      return Unknown("inputs", name, kInputs);
    }
    if (name == "sampling_parameters") return absl::OkStatus();
    if (name == "text_input") return ReadText(tensor);
    if (name == "input_ids") {
      has_ids_ = true;
      LK_ASSIGN_OR_RETURN(request_.generation.input, tensor.Ids());
      return absl::OkStatus();
    }
    if (name == "stop_words") {
      LK_ASSIGN_OR_RETURN(auto texts, tensor.Texts(kMaxStopTexts));
      for (std::string& text : texts) {
        LK_RETURN_IF_ERROR(CheckUtf8(name, text));
        request_.generation.stop_texts.push_back(std::move(text));
      }
      return absl::OkStatus();
    }
    LK_ASSIGN_OR_RETURN(const SettingValue value, tensor.Scalar());
    if (name == "stream") return ReadFlag(name, value, request_.answer.is_streamed);
    if (name == "exclude_input_in_output") return ReadFlag(name, value, excludes_input_.emplace());
    constexpr std::string_view kReturn = "return_";
    if (name.starts_with(kReturn) && FlagOf(name.substr(kReturn.size())) != nullptr) {
      bool is_asked = false;
      LK_RETURN_IF_ERROR(ReadFlag(name, value, is_asked));
      if (is_asked) asked_.push_back(name.substr(kReturn.size()));
      return absl::OkStatus();
    }
    return SetOption("", name == "random_seed" ? "seed" : name, value, request_.generation);
  }

  static absl::Status ReadFlag(const std::string& name, const SettingValue& value, bool& flag) {
    LK_ASSIGN_OR_RETURN(flag, ToBool(name, value));
    return absl::OkStatus();
  }

  absl::Status ReadParameter(const std::string& name, const inference::InferParameter& parameter) {
    const std::string full = absl::StrCat("parameters.", name);
    LK_ASSIGN_OR_RETURN(const SettingValue value, ToSetting(full, parameter));
    constexpr std::string_view kAttention = "attention_";
    GenerationRequest& generation = request_.generation;
    if (name == "triton_enable_empty_final_response") {
      return ReadFlag(full, value, request_.answer.has_empty_final);
    }
    if (name == "attention" || name == "request_id") {
      const auto* text = std::get_if<std::string>(&value);
      if (text == nullptr) {
        return absl::InvalidArgumentError(
            absl::StrCat(full, ": ", ShortSetting(value), ", expected a string"));
      }
      if (name == "attention") return ReadAttention(*text, generation.attention);
      generation.request_id = *text;
      return absl::OkStatus();
    }
    if (name.starts_with(kAttention)) {
      return SetAttentionOption("parameters.attention_", name.substr(kAttention.size()), value,
                                generation.attention);
    }
    if (name == "timeout") {
      LK_ASSIGN_OR_RETURN(const uint64_t timeout_us, ToUint64(full, value));
      const auto clamped = static_cast<int64_t>(std::min(timeout_us, uint64_t{1} << 48));
      if (clamped > 0) generation.deadline = SteadyNow() + absl::Microseconds(clamped);
      return absl::OkStatus();
    }
    if (name == "priority" || name == "seed") {
      return SetOption("parameters.", name, value, generation);
    }
    return absl::InvalidArgumentError(absl::StrCat(
        "parameters: ", ShortText(name), " is not known, expected one of attention attention_* ",
        "priority request_id seed timeout triton_enable_empty_final_response"));
  }

  // An output that is named, or asked for by its return_* input, is in the answers; text_output is
  // unless others are named.
  absl::Status ReadOutputs() {
    AnswerOptions& answer = request_.answer;
    answer.text = proto_.outputs().empty();
    for (const auto& output : proto_.outputs()) {
      const auto flag = FlagOf(output.name());
      if (flag == nullptr) return Unknown("outputs", output.name(), kOutputs);
      if (!output.parameters().empty()) {
        return absl::InvalidArgumentError(
            absl::StrCat("outputs: ", output.name(), ": parameter ",
                         ShortText(output.parameters().begin()->first), ", expected none"));
      }
      answer.*flag = true;
    }
    for (const std::string& output : asked_) answer.*FlagOf(output) = true;
    return absl::OkStatus();
  }

  absl::Status Complete() {
    GenerationRequest& generation = request_.generation;
    AnswerOptions& answer = request_.answer;
    if (has_text_ == has_ids_) {
      return absl::InvalidArgumentError(absl::StrCat(
          "inputs: ", has_text_ ? "both text_input and input_ids" : "no text_input or input_ids",
          ", expected one of them"));
    }
    if (answer.is_streamed && method_ == InferMethod::kSingle) {
      return absl::InvalidArgumentError("stream: true, expected false or ModelStreamInfer");
    }
    const bool excludes = excludes_input_.value_or(answer.is_streamed || has_ids_);
    if (!excludes && (answer.is_streamed || has_ids_)) {
      return absl::InvalidArgumentError(
          absl::StrCat("exclude_input_in_output: false, expected true with ",
                       has_ids_ ? "input_ids" : "stream"));
    }
    if (!excludes) answer.prompt = std::get<std::string>(generation.input);
    if ((answer.logprobs || answer.cumulative_logprob) && !generation.logprobs.has_value()) {
      generation.logprobs = kDefaultLogprobs;
    }
    answer.n_choices = std::clamp<int32_t>(generation.n.value_or(1), 1, kMaxChoices);
    return absl::OkStatus();
  }

  const inference::ModelInferRequest& proto_;
  const InferMethod method_;
  InferRequest request_;
  bool has_text_ = false, has_ids_ = false;
  std::optional<bool> excludes_input_;
  std::vector<std::string> asked_;  // outputs, by return_* inputs
};

}  // namespace

absl::Span<const TensorInfo> InputTensors() { return kInputs; }
absl::Span<const TensorInfo> OutputTensors() { return kOutputs; }

absl::StatusOr<InferRequest> ReadInferRequest(const std::string& message, InferMethod method) {
  // Parsing that ends for a lack of memory leaves a message that only an arena can destroy.
  google::protobuf::Arena arena;
  auto& proto = *google::protobuf::Arena::CreateMessage<inference::ModelInferRequest>(&arena);
  LK_RETURN_IF_ERROR(ParseMessage(message, proto));
  return Reader(proto, method).Read();
}

std::string PeekInferId(std::string_view message) {
  constexpr int kMaxFields = 64, kIdTag = (3 << 3) | 2;
  const auto byte = [&message] { return static_cast<uint8_t>(message.front()); };
  for (int i = 0; i < kMaxFields && message.size() >= 2; ++i) {
    // Before the id come strings, whose tags take one byte.
    const unsigned tag = byte();
    if ((tag & 7) != 2 || (tag & 0x80) != 0) return "";
    message.remove_prefix(1);
    size_t n_bytes = 0;
    for (int shift = 0; !message.empty() && shift < 35; shift += 7) {
      const size_t digit = byte();
      message.remove_prefix(1);
      n_bytes |= (digit & 0x7F) << shift;
      if ((digit & 0x80) == 0) break;
    }
    if (n_bytes > message.size()) return "";
    if (tag == kIdTag) {
      const std::string_view id = message.substr(0, n_bytes);
      const bool is_fit = n_bytes <= kMaxInferIdBytes && !FindInvalidUtf8(id).has_value();
      return is_fit ? std::string(id) : "";
    }
    message.remove_prefix(n_bytes);
  }
  return "";
}

}  // namespace lowkey
