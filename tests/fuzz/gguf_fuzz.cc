// One input is the bytes of a GGUF file. Whatever is accepted must keep its promises.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "engine/base/status_macros.h"
#include "engine/loader/gguf.h"
#include "engine/loader/gguf_config.h"
#include "tests/fuzz/config_checks.h"

namespace lowkey {
namespace {

constexpr int64_t kMaxDequantized = 1 << 16;

void CheckTensors(const GgufIndex& index, absl::Span<const std::byte> bytes) {
  for (const auto& [name, tensor] : index.tensors) {
    for (int64_t size : tensor.shape) LK_CHECK(size >= 0);
    LK_CHECK(tensor.size() % DTypeBlockSize(tensor.dtype) == 0);
    LK_CHECK(tensor.data >= bytes.data());
    LK_CHECK(tensor.size_bytes() <= static_cast<size_t>(bytes.end() - tensor.data));
    if (!DTypeIsReal(tensor.dtype) || tensor.shape.size() != 2 || tensor.size() == 0) continue;
    if (tensor.shape[1] > kMaxDequantized) continue;
    std::vector<float> row(tensor.shape[1]);
    LoadRow(tensor, 0, row.data());
    LoadRow(tensor, tensor.shape[0] - 1, row.data());
  }
}

void CheckMetadata(const GgufMetadata& metadata, absl::Span<const std::byte> bytes) {
  for (const char* key : {"tokenizer.ggml.tokens", "tokenizer.ggml.scores",
                          "tokenizer.ggml.token_type", "tokenizer.chat_template"}) {
    const auto strings = metadata.Strings(key);
    const auto floats = metadata.Floats(key);
    const auto ints = metadata.Ints(key);
    LK_CHECK(metadata.Has(key) ||
             (strings.ok() && floats.ok() && ints.ok() && !strings->has_value()));
    LK_CHECK(!metadata.IsArray(key) || !metadata.Bool(key).ok());
    if (!strings.ok() || !strings->has_value()) continue;
    LK_CHECK((*strings)->size() <= bytes.size() / 8);
    const auto* begin = reinterpret_cast<const char*>(bytes.data());
    for (std::string_view text : **strings) {
      LK_CHECK(text.data() >= begin && text.data() + text.size() <= begin + bytes.size());
    }
  }
  (void)metadata.String("tokenizer.chat_template");
}

void CheckGguf(absl::Span<const std::byte> bytes) {
  const auto index = ParseGguf(bytes, "fuzz.gguf");
  if (!index.ok()) {
    LK_CHECK(!index.status().message().empty());
    return;
  }
  CheckTensors(*index, bytes);
  CheckMetadata(index->metadata, bytes);
  const auto config = ReadGgufConfig(*index);
  if (config.ok()) {
    CheckConfig(config->model);
  } else {
    LK_CHECK(!config.status().message().empty());
  }
}

}  // namespace
}  // namespace lowkey

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  lowkey::CheckGguf({reinterpret_cast<const std::byte*>(data), size});
  return 0;
}
