#ifndef LOWKEY_SERVER_API_KSERVE_SETTINGS_H_
#define LOWKEY_SERVER_API_KSERVE_SETTINGS_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <variant>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "inference/grpc_service.pb.h"
#include "server/request/request.h"

namespace lowkey {

// One value of an input tensor, a parameter, or a member of sampling_parameters.
using SettingValue = std::variant<bool, int64_t, uint64_t, double, std::string>;

// Return the value as another type: a text that spells it is as good, since many clients write
// {"temperature": "0.1"}. INVALID_ARGUMENT naming the setting, its value and what was expected.
absl::StatusOr<bool> ToBool(std::string_view name, const SettingValue& value);
absl::StatusOr<int32_t> ToInt32(std::string_view name, const SettingValue& value);
absl::StatusOr<uint64_t> ToUint64(std::string_view name, const SettingValue& value);
absl::StatusOr<double> ToDouble(std::string_view name, const SettingValue& value);

// INVALID_ARGUMENT if no value is set.
absl::StatusOr<SettingValue> ToSetting(std::string_view name,
                                       const inference::InferParameter& parameter);

// "0.5", "true", or a text in quotation marks, cut to a length fit for a message.
std::string ShortSetting(const SettingValue& value);

// Sets the request's field of this name, such as "temperature", "max_tokens" or "seed". `where`
// begins messages: "sampling_parameters.". Ranges are left to TextService.
absl::Status SetOption(std::string_view where, std::string_view name, const SettingValue& value,
                       GenerationRequest& request);

// Reads sampling_parameters: a JSON object of at most 64 KiB whose members are SetOption's, `stop`,
// `stop_token_ids` and `logit_bias`. INVALID_ARGUMENT names an unknown member.
absl::Status ReadSamplingParameters(std::string_view json, GenerationRequest& request);

// Sets one field of attention, by its name in lowkey.v1.AttentionOptions; a list as names with
// commas between them. INVALID_ARGUMENT names an unknown field.
absl::Status SetAttentionOption(std::string_view where, std::string_view field,
                                const SettingValue& value, AttentionChoice& attention);

// Reads the parameter `attention`: a mechanism's name, or a JSON object of at most 4 KiB with the
// fields of lowkey.v1.AttentionOptions.
absl::Status ReadAttention(std::string_view text, AttentionChoice& attention);

}  // namespace lowkey

#endif  // LOWKEY_SERVER_API_KSERVE_SETTINGS_H_
