#include "server/api/kserve/settings.h"

#include <cmath>
#include <functional>
#include <limits>
#include <optional>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "engine/base/json.h"
#include "engine/base/status_macros.h"

namespace lowkey {
namespace {

using nlohmann::json;

constexpr size_t kMaxParametersBytes = size_t{64} << 10;

absl::Status Error(std::string_view name, const SettingValue& value, const std::string& expected) {
  return absl::InvalidArgumentError(
      absl::StrCat(std::string(name), ": ", ShortSetting(value), ", expected ", expected));
}

// Sets an option of a request. `name` is for messages.
using Setter = std::function<absl::Status(std::string_view name, const SettingValue& value,
                                          GenerationRequest& request)>;

Setter Number(std::optional<float> SamplingChoice::*field) {
  return [field](std::string_view name, const SettingValue& value, GenerationRequest& request) {
    LK_ASSIGN_OR_RETURN(const double number, ToDouble(name, value));
    request.sampling.*field = static_cast<float>(number);
    return absl::OkStatus();
  };
}

Setter Integer(std::optional<int32_t> GenerationRequest::*field) {
  return [field](std::string_view name, const SettingValue& value, GenerationRequest& request) {
    LK_ASSIGN_OR_RETURN(request.*field, ToInt32(name, value));
    return absl::OkStatus();
  };
}

absl::Status SetTopK(std::string_view name, const SettingValue& value, GenerationRequest& request) {
  LK_ASSIGN_OR_RETURN(const int32_t top_k, ToInt32(name, value));
  request.sampling.top_k = top_k == -1 ? 0 : top_k;  // vLLM's clients write -1 for off
  return absl::OkStatus();
}

absl::Status SetSeed(std::string_view name, const SettingValue& value, GenerationRequest& request) {
  LK_ASSIGN_OR_RETURN(request.sampling.seed, ToUint64(name, value));
  return absl::OkStatus();
}

absl::Status SetIgnoreEos(std::string_view name, const SettingValue& value,
                          GenerationRequest& request) {
  LK_ASSIGN_OR_RETURN(request.ignore_eos, ToBool(name, value));
  return absl::OkStatus();
}

struct Option {
  std::string_view name;
  Setter set;
};

const std::vector<Option>& Options() {
  static const auto* const options = new std::vector<Option>{
      {"max_tokens", Integer(&GenerationRequest::max_new_tokens)},
      {"temperature", Number(&SamplingChoice::temperature)},
      {"top_k", SetTopK},
      {"top_p", Number(&SamplingChoice::top_p)},
      {"min_p", Number(&SamplingChoice::min_p)},
      {"repetition_penalty", Number(&SamplingChoice::repetition_penalty)},
      {"presence_penalty", Number(&SamplingChoice::presence_penalty)},
      {"frequency_penalty", Number(&SamplingChoice::frequency_penalty)},
      {"seed", SetSeed},
      {"n", Integer(&GenerationRequest::n)},
      {"ignore_eos", SetIgnoreEos},
      {"logprobs", Integer(&GenerationRequest::logprobs)},
      {"priority", Integer(&GenerationRequest::priority)},
  };
  return *options;
}

const Option* FindOption(std::string_view name) {
  for (const Option& option : Options()) {
    if (option.name == name) return &option;
  }
  return nullptr;
}

std::optional<SettingValue> ToSetting(const json& value) {
  switch (value.type()) {
    case json::value_t::boolean:
      return value.get<bool>();
    case json::value_t::number_integer:
      return value.get<int64_t>();
    case json::value_t::number_unsigned:
      return value.get<uint64_t>();
    case json::value_t::number_float:
      return value.get<double>();
    case json::value_t::string:
      return value.get<std::string>();
    default:
      return std::nullopt;
  }
}

// The members of sampling_parameters, one by one.
class ParametersReader {
 public:
  explicit ParametersReader(GenerationRequest& request) : request_(request) {}

  absl::Status Read(const std::string& key, const json& value) {
    if (value.is_null()) return absl::OkStatus();
    const std::string name = absl::StrCat("sampling_parameters.", key);
    if (key == "stop") return ReadStops(name, value);
    if (key == "stop_token_ids") return ReadStopTokens(name, value);
    if (key == "logit_bias") return ReadBias(name, value);
    const Option* option = FindOption(key);
    const std::optional<SettingValue> setting = ToSetting(value);
    if (option != nullptr && setting.has_value()) return option->set(name, *setting, request_);
    if (option != nullptr) return Wrong(name, value, "a number, true, false or a text of them");
    if (setting.has_value() && IsWithoutEffect(key, *setting)) return absl::OkStatus();
    return absl::InvalidArgumentError(absl::StrCat("sampling_parameters: ", ShortText(json(key)),
                                                   ": ", ShortText(value), " is not supported"));
  }

 private:
  static absl::Status Wrong(const std::string& name, const json& value,
                            const std::string& expected) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, ": ", ShortText(value), ", expected ", expected));
  }

  // Settings of other servers at the value that this server has anyway.
  static bool IsWithoutEffect(const std::string& key, const SettingValue& value) {
    const bool is_true = ToBool(key, value).value_or(false);
    const bool is_false = !ToBool(key, value).value_or(true);
    if (key == "skip_special_tokens" || key == "detokenize") return is_true;
    if (key == "use_beam_search") return is_false;
    return (key == "min_tokens" && ToInt32(key, value).value_or(1) == 0) ||
           (key == "best_of" && ToInt32(key, value).value_or(0) == 1);
  }

  absl::Status ReadStops(const std::string& name, const json& value) {
    const json list = value.is_array() ? value : json::array({value});
    for (const json& stop : list) {
      if (!stop.is_string()) return Wrong(name, stop, "a text or a list of texts");
      request_.stop_texts.push_back(stop.get<std::string>());
    }
    return absl::OkStatus();
  }

  absl::Status ReadStopTokens(const std::string& name, const json& value) {
    if (!value.is_array()) return Wrong(name, value, "a list of token ids");
    for (const json& id : value) {
      const std::optional<SettingValue> setting = ToSetting(id);
      if (!setting.has_value()) return Wrong(name, id, "a token id");
      LK_ASSIGN_OR_RETURN(request_.stop_tokens.emplace_back(), ToInt32(name, *setting));
    }
    return absl::OkStatus();
  }

  absl::Status ReadBias(const std::string& name, const json& value) {
    if (!value.is_object()) return Wrong(name, value, "an object {\"ID\": BIAS}");
    for (const auto& [key, bias] : value.items()) {
      const std::optional<SettingValue> setting = ToSetting(bias);
      if (!setting.has_value()) return Wrong(name, bias, "a number");
      LK_ASSIGN_OR_RETURN(const int32_t id, ToInt32(name, key));
      LK_ASSIGN_OR_RETURN(const double number, ToDouble(name, *setting));
      request_.sampling.logit_bias.emplace_back(id, static_cast<float>(number));
    }
    return absl::OkStatus();
  }

  GenerationRequest& request_;
};

}  // namespace

std::string ShortSetting(const SettingValue& value) {
  return std::visit([](const auto& held) { return ShortText(json(held)); }, value);
}

absl::StatusOr<bool> ToBool(std::string_view name, const SettingValue& value) {
  if (const bool* flag = std::get_if<bool>(&value)) return *flag;
  const std::string* text = std::get_if<std::string>(&value);
  const bool is_true = text != nullptr && (*text == "true" || *text == "True");
  if (is_true || (text != nullptr && (*text == "false" || *text == "False"))) return is_true;
  return Error(name, value, "true or false");
}

absl::StatusOr<int32_t> ToInt32(std::string_view name, const SettingValue& value) {
  std::optional<int32_t> number;
  const auto take = [&number](auto wide) {
    if (std::in_range<int32_t>(wide)) number = static_cast<int32_t>(wide);
  };
  int32_t parsed = 0;
  const auto* text = std::get_if<std::string>(&value);
  if (const auto* integer = std::get_if<int64_t>(&value)) {
    take(*integer);
  } else if (const auto* natural = std::get_if<uint64_t>(&value)) {
    take(*natural);
  } else if (text != nullptr && absl::SimpleAtoi(*text, &parsed)) {
    number = parsed;
  }
  if (number.has_value()) return *number;
  return Error(name, value, "an integer of 32 bits");
}

absl::StatusOr<uint64_t> ToUint64(std::string_view name, const SettingValue& value) {
  uint64_t parsed = 0;
  const auto* text = std::get_if<std::string>(&value);
  const auto* integer = std::get_if<int64_t>(&value);
  if (const auto* natural = std::get_if<uint64_t>(&value)) return *natural;
  if (integer != nullptr && *integer >= 0) return static_cast<uint64_t>(*integer);
  if (text != nullptr && absl::SimpleAtoi(*text, &parsed)) return parsed;
  return Error(name, value, "an integer of 0..18446744073709551615");
}

absl::StatusOr<double> ToDouble(std::string_view name, const SettingValue& value) {
  double number = std::numeric_limits<double>::quiet_NaN();
  if (const auto* integer = std::get_if<int64_t>(&value)) {
    number = static_cast<double>(*integer);
  } else if (const auto* natural = std::get_if<uint64_t>(&value)) {
    number = static_cast<double>(*natural);
  } else if (const auto* real = std::get_if<double>(&value)) {
    number = *real;
  } else if (const auto* text = std::get_if<std::string>(&value)) {
    if (!absl::SimpleAtod(*text, &number)) return Error(name, value, "a number");
  }
  if (std::abs(number) <= std::numeric_limits<float>::max()) return number;
  return Error(name, value, "a number");
}

absl::StatusOr<SettingValue> ToSetting(std::string_view name,
                                       const inference::InferParameter& parameter) {
  switch (parameter.parameter_choice_case()) {
    case inference::InferParameter::kBoolParam:
      return parameter.bool_param();
    case inference::InferParameter::kInt64Param:
      return int64_t{parameter.int64_param()};
    case inference::InferParameter::kStringParam:
      return parameter.string_param();
    case inference::InferParameter::kDoubleParam:
      return parameter.double_param();
    case inference::InferParameter::kUint64Param:
      return uint64_t{parameter.uint64_param()};
    case inference::InferParameter::PARAMETER_CHOICE_NOT_SET:
      break;
  }
  return absl::InvalidArgumentError(
      absl::StrCat(std::string(name), ": no value, expected a bool, number or string"));
}

absl::Status SetOption(std::string_view where, std::string_view name, const SettingValue& value,
                       GenerationRequest& request) {
  const std::string full = absl::StrCat(std::string(where), std::string(name));
  const Option* option = FindOption(name);
  if (option != nullptr) return option->set(full, value, request);
  return absl::InvalidArgumentError(absl::StrCat(full, ": is not known"));
}

absl::Status ReadSamplingParameters(std::string_view text, GenerationRequest& request) {
  if (text.size() > kMaxParametersBytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "sampling_parameters: ", text.size(), " bytes, expected at most ", kMaxParametersBytes));
  }
  LK_ASSIGN_OR_RETURN(const json object, ParseJsonObject(text, "sampling_parameters", 3));
  ParametersReader reader(request);
  for (const auto& [key, value] : object.items()) {
    LK_RETURN_IF_ERROR(reader.Read(key, value));
  }
  return absl::OkStatus();
}

}  // namespace lowkey
