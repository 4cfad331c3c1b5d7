// One input is the bytes of a safetensors file, or (first byte even) of a config.json. Whatever is
// accepted must keep its promises.

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "engine/base/status_macros.h"
#include "engine/loader/config_json.h"
#include "engine/loader/safetensors.h"

namespace lowkey {
namespace {

void CheckSafetensors(absl::Span<const std::byte> bytes) {
  const auto index = ParseSafetensors(bytes, "fuzz.safetensors");
  if (!index.ok()) {
    LK_CHECK(!index.status().message().empty());
    return;
  }
  for (const auto& [name, tensor] : index->tensors) {
    for (int64_t size : tensor.shape) LK_CHECK(size >= 0);
    LK_CHECK(tensor.data >= bytes.data());
    LK_CHECK(tensor.data + tensor.size_bytes() <= bytes.data() + bytes.size());
    if (tensor.size_bytes() > 0) {
      volatile std::byte last = tensor.data[tensor.size_bytes() - 1];
      (void)last;
    }
  }
}

void CheckConfig(std::string_view text) {
  const auto parsed = ParseModelConfig(text, text);
  if (!parsed.ok()) {
    LK_CHECK(!parsed.status().message().empty());
    return;
  }
  const ModelConfig& c = *parsed;
  LK_CHECK(c.vocab_size >= 1 && c.vocab_size <= 1 << 20);
  LK_CHECK(c.hidden_dim >= 1 && c.hidden_dim <= 65536);
  LK_CHECK(c.ffn_dim >= 1 && c.ffn_dim <= 1 << 18);
  LK_CHECK(c.n_layers >= 1 && c.n_layers <= 512);
  LK_CHECK(c.n_heads >= 1 && c.n_heads <= 1024 && c.n_kv_heads >= 1);
  LK_CHECK(c.n_heads % c.n_kv_heads == 0);
  LK_CHECK(c.head_dim >= 2 && c.head_dim <= 512 && c.head_dim % 2 == 0);
  LK_CHECK(c.context_tokens >= 1 && c.context_tokens <= 1 << 24);
  LK_CHECK(c.rms_norm_eps > 0 && c.rope_theta > 0);
  LK_CHECK(!c.sliding_window.has_value() || *c.sliding_window >= 1);
  if (const auto* llama3 = std::get_if<RopeLlama3>(&c.rope_scaling)) {
    LK_CHECK(llama3->factor > 0 && llama3->high_freq_factor > llama3->low_freq_factor);
  }
  if (const auto* linear = std::get_if<RopeLinear>(&c.rope_scaling)) LK_CHECK(linear->factor > 0);
  LK_CHECK(!c.bos_token.has_value() || (*c.bos_token >= 0 && *c.bos_token < c.vocab_size));
  for (int32_t token : c.eos_tokens) LK_CHECK(token >= 0 && token < c.vocab_size);
}

}  // namespace
}  // namespace lowkey

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const auto* bytes = reinterpret_cast<const std::byte*>(data + 1);
  if (data[0] % 2 == 0) {
    lowkey::CheckConfig({reinterpret_cast<const char*>(bytes), size - 1});
  } else {
    lowkey::CheckSafetensors({bytes, size - 1});
  }
  return 0;
}
