#ifndef LOWKEY_TESTS_SERVER_API_KSERVE_REQUESTS_H_
#define LOWKEY_TESTS_SERVER_API_KSERVE_REQUESTS_H_

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "inference/grpc_service.pb.h"

namespace lowkey {

inline std::string RawText(std::string_view text) {
  const auto n = static_cast<uint32_t>(text.size());
  std::string raw(4, '\0');
  for (unsigned i = 0; i < 4; ++i) raw[i] = static_cast<char>(n >> (8 * i));
  return raw.append(text);
}

template <typename T>
std::string RawNumber(T value) {
  std::string raw(sizeof(T), '\0');
  std::memcpy(raw.data(), &value, sizeof(T));
  return raw;
}

// Builds a request whose tensors are raw, as tritonclient writes them.
class RequestBuilder {
 public:
  RequestBuilder& Tensor(std::string_view name, std::string_view datatype,
                         const std::vector<int64_t>& shape, std::string raw) {
    auto& input = *proto.add_inputs();
    input.set_name(std::string(name));
    input.set_datatype(std::string(datatype));
    for (const int64_t dim : shape) input.add_shape(dim);
    proto.add_raw_input_contents(std::move(raw));
    return *this;
  }
  RequestBuilder& Text(std::string_view name, std::string_view text) {
    return Tensor(name, "BYTES", {1}, RawText(text));
  }
  RequestBuilder& Flag(std::string_view name, bool value) {
    return Tensor(name, "BOOL", {1}, std::string(1, value ? '\1' : '\0'));
  }
  RequestBuilder& Parameter(const std::string& name, const std::string& text) {
    (*proto.mutable_parameters())[name].set_string_param(text);
    return *this;
  }
  RequestBuilder& Parameter(const std::string& name, bool value) {
    (*proto.mutable_parameters())[name].set_bool_param(value);
    return *this;
  }
  RequestBuilder& Parameter(const std::string& name, int64_t value) {
    (*proto.mutable_parameters())[name].set_int64_param(value);
    return *this;
  }

  std::string Bytes() const { return proto.SerializeAsString(); }

  inference::ModelInferRequest proto;
};

// A request that continues "Once", with text alone in its answers.
inline RequestBuilder Story(const std::string& id = "") {
  RequestBuilder builder;
  builder.proto.set_id(id);
  builder.Text("text_input", "Once").Flag("exclude_input_in_output", true);
  return builder;
}
inline RequestBuilder StreamedStory(const std::string& id = "") {
  RequestBuilder builder = Story(id);
  builder.Flag("stream", true);
  return builder;
}

// The elements of an answer's output; none if it has no such output.
inline std::vector<std::string> TextsOf(const inference::ModelInferResponse& response,
                                        std::string_view name) {
  std::vector<std::string> texts;
  for (int i = 0; i < response.outputs_size(); ++i) {
    if (response.outputs(i).name() != name) continue;
    std::string_view rest = response.raw_output_contents(i);
    while (!rest.empty()) {
      uint32_t n = 0;
      std::memcpy(&n, rest.data(), 4);
      texts.emplace_back(rest.substr(4, n));
      rest.remove_prefix(4 + n);
    }
  }
  return texts;
}

template <typename T>
std::vector<T> NumbersOf(const inference::ModelInferResponse& response, std::string_view name) {
  std::vector<T> numbers;
  for (int i = 0; i < response.outputs_size(); ++i) {
    if (response.outputs(i).name() != name) continue;
    const std::string& raw = response.raw_output_contents(i);
    numbers.resize(raw.size() / sizeof(T));
    std::memcpy(numbers.data(), raw.data(), raw.size());
  }
  return numbers;
}

}  // namespace lowkey

#endif  // LOWKEY_TESTS_SERVER_API_KSERVE_REQUESTS_H_
