#ifndef LOWKEY_ENGINE_LOADER_TENSOR_NAMES_H_
#define LOWKEY_ENGINE_LOADER_TENSOR_NAMES_H_

namespace lowkey {

// A format's names of tensors; names of a layer's tensors follow its prefix and number.
struct TensorNames {
  const char *embedding, *final_norm, *layers;
  const char *lm_head, *q, *k, *v, *o, *gate, *up, *down;  // with .weight or .bias
  const char *attention_norm, *ffn_norm, *q_norm, *k_norm;
};
inline constexpr TensorNames kHuggingFaceNames = {
    "model.embed_tokens.weight",
    "model.norm.weight",
    "model.layers.",
    "lm_head",
    "self_attn.q_proj",
    "self_attn.k_proj",
    "self_attn.v_proj",
    "self_attn.o_proj",
    "mlp.gate_proj",
    "mlp.up_proj",
    "mlp.down_proj",
    "input_layernorm.weight",
    "post_attention_layernorm.weight",
    "self_attn.q_norm.weight",
    "self_attn.k_norm.weight",
};
inline constexpr TensorNames kGgufNames = {
    "token_embd.weight",
    "output_norm.weight",
    "blk.",
    "output",
    "attn_q",
    "attn_k",
    "attn_v",
    "attn_output",
    "ffn_gate",
    "ffn_up",
    "ffn_down",
    "attn_norm.weight",
    "ffn_norm.weight",
    "attn_q_norm.weight",
    "attn_k_norm.weight",
};

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_LOADER_TENSOR_NAMES_H_
