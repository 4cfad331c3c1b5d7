#ifndef LOWKEY_TESTS_TESTING_GGUF_BUILDER_H_
#define LOWKEY_TESTS_TESTING_GGUF_BUILDER_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "engine/loader/gguf_metadata.h"

namespace lowkey {

// Builds the bytes of a GGUF file, right or wrong ones. Keys may be set again; what is not set here
// has the values of a well-formed file.
class GgufBuilder {
 public:
  struct Tensor {
    std::string name;
    std::vector<uint64_t> dims;  // neighboring elements first, as in the file
    uint32_t type = 0;           // F32
    std::string data;
    std::optional<uint64_t> offset;  // nullopt: behind the tensor before
  };

  // Values of metadata.
  void Uint32(const std::string& key, uint32_t value) { Set(key, GgufType::kUint32, value); }
  void Float32(const std::string& key, float value) { Set(key, GgufType::kFloat32, value); }
  void Bool(const std::string& key, bool value) {
    Set(key, GgufType::kBool, static_cast<uint8_t>(value ? 1 : 0));
  }
  void String(const std::string& key, std::string_view value);
  void Strings(const std::string& key, const std::vector<std::string>& values);
  void Int32s(const std::string& key, const std::vector<int32_t>& values);
  void Float32s(const std::string& key, const std::vector<float>& values);
  template <typename T>
  void Set(const std::string& key, GgufType type, T value) {
    SetRaw(key, Bytes(static_cast<uint32_t>(type)) + Bytes(value));
  }
  // The type's number and the value, as in the file.
  void SetRaw(const std::string& key, std::string bytes) { pairs_[key] = std::move(bytes); }
  void Erase(const std::string& key) { pairs_.erase(key); }

  // The tensor of this name, made when there is none.
  Tensor& tensor(const std::string& name);
  // An F32 tensor of zeros, of a shape as TensorView has it.
  void Zeros(const std::string& name, const std::vector<int64_t>& shape);
  void EraseTensor(const std::string& name);

  std::string Build() const;

  // Little-endian.
  template <typename T>
  requires std::is_arithmetic_v<T>
  static std::string Bytes(T value) {
    return std::string(reinterpret_cast<const char*>(&value), sizeof(value));
  }
  // The length in eight bytes, then the text.
  static std::string Bytes(std::string_view text) {
    return Bytes(static_cast<uint64_t>(text.size())) + std::string(text);
  }

  std::string magic = "GGUF";
  uint32_t version = 3;
  uint64_t alignment = 32;  // of the data; general.alignment is set apart from it
  uint64_t extra_pairs = 0, extra_tensors = 0;  // announced, and not there

 private:
  std::map<std::string, std::string> pairs_;
  std::vector<Tensor> tensors_;
};

// A whole model in F32: architecture `llama`, 2 layers, hidden 32, ffn 64, 4 heads, 2 KV heads,
// context 128, vocabulary of 16, bos 1, eos 2.
GgufBuilder TinyGguf();

}  // namespace lowkey

#endif  // LOWKEY_TESTS_TESTING_GGUF_BUILDER_H_
