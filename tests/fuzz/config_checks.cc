#include "tests/fuzz/config_checks.h"

#include <variant>

#include "engine/base/status_macros.h"

namespace lowkey {
namespace {

void CheckRope(const ModelConfig& c) {
  LK_CHECK(c.rope_theta > 0);
  if (const auto* llama3 = std::get_if<RopeLlama3>(&c.rope_scaling)) {
    LK_CHECK(llama3->factor > 0 && llama3->high_freq_factor > llama3->low_freq_factor);
  }
  if (const auto* linear = std::get_if<RopeLinear>(&c.rope_scaling)) LK_CHECK(linear->factor > 0);
  if (const auto* given = std::get_if<RopeFactors>(&c.rope_scaling)) {
    LK_CHECK(static_cast<int32_t>(given->factors.size()) == c.head_dim / 2);
    for (float factor : given->factors) LK_CHECK(factor > 0 && factor < 1e30f);
  }
}

}  // namespace

void CheckConfig(const ModelConfig& c) {
  LK_CHECK(c.vocab_size >= 1 && c.vocab_size <= 1 << 20);
  LK_CHECK(c.hidden_dim >= 1 && c.hidden_dim <= 65536);
  LK_CHECK(c.ffn_dim >= 1 && c.ffn_dim <= 1 << 18);
  LK_CHECK(c.n_layers >= 1 && c.n_layers <= 512);
  LK_CHECK(c.n_heads >= 1 && c.n_heads <= 1024 && c.n_kv_heads >= 1);
  LK_CHECK(c.n_heads % c.n_kv_heads == 0);
  LK_CHECK(c.head_dim >= 2 && c.head_dim <= 512 && c.head_dim % 2 == 0);
  LK_CHECK(c.context_tokens >= 1 && c.context_tokens <= 1 << 24);
  LK_CHECK(c.rms_norm_eps > 0);
  LK_CHECK(!c.sliding_window.has_value() || *c.sliding_window >= 1);
  CheckRope(c);
  LK_CHECK(!c.bos_token.has_value() || (*c.bos_token >= 0 && *c.bos_token < c.vocab_size));
  for (int32_t token : c.eos_tokens) LK_CHECK(token >= 0 && token < c.vocab_size);
}

}  // namespace lowkey
