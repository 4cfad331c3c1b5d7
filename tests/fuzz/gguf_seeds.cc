#include "tests/fuzz/gguf_seeds.h"

#include "engine/base/dtype.h"
#include "tests/testing/gguf_builder.h"

namespace lowkey {
namespace {

// The metadata of a model with one layer, hidden 8, and an embedding of four rows.
GgufBuilder TinyModelOf(const std::string& architecture) {
  GgufBuilder b;
  b.String("general.architecture", architecture);
  b.Uint32(architecture + ".block_count", 1);
  b.Uint32(architecture + ".context_length", 64);
  b.Uint32(architecture + ".embedding_length", 8);
  b.Uint32(architecture + ".feed_forward_length", 8);
  b.Uint32(architecture + ".attention.head_count", 2);
  b.Float32(architecture + ".attention.layer_norm_rms_epsilon", 1e-5f);
  b.Float32(architecture + ".rope.freq_base", 1e4f);
  b.Strings("tokenizer.ggml.tokens", {"<s>", "</s>", "a", "b"});
  b.Float32s("tokenizer.ggml.scores", {0, 0, -1, -2});
  b.Int32s("tokenizer.ggml.token_type", {3, 3, 1, 1});
  b.Uint32("tokenizer.ggml.eos_token_id", 1);
  b.Zeros("token_embd.weight", {4, 8});
  return b;
}

std::string Llama() {
  GgufBuilder b = TinyModelOf("llama");
  b.Int32s("llama.attention.head_count_kv", {1});
  b.Uint32("llama.rope.dimension_count", 4);
  b.String("llama.rope.scaling.type", "linear");
  b.Float32("llama.rope.scaling.factor", 2.0f);
  b.Zeros("rope_freqs.weight", {2});
  const std::string two = GgufBuilder::Bytes(2.0f);
  b.tensor("rope_freqs.weight").data = two + two;
  return b.Build();
}

std::string Qwen3OfEveryValueType() {
  GgufBuilder b = TinyModelOf("qwen3");
  b.version = 2;
  b.Uint32("qwen3.attention.key_length", 8);
  b.Uint32("qwen3.attention.value_length", 8);
  b.Set("qwen3.vocab_size", GgufType::kUint64, uint64_t{4});
  b.Set("qwen3.expert_count", GgufType::kUint8, uint8_t{0});
  b.Set("split.count", GgufType::kUint16, uint16_t{1});
  b.Set("general.quantization_version", GgufType::kInt8, int8_t{2});
  b.Set("qwen3.attention.head_count_kv", GgufType::kInt16, int16_t{2});
  b.Set("tokenizer.ggml.eot_token_id", GgufType::kInt64, int64_t{0});
  b.Set("qwen3.rope.freq_base", GgufType::kFloat64, 1e6);
  b.Bool("qwen3.attention.causal", true);
  b.String("tokenizer.chat_template", "{{ messages }}");
  return b.Build();
}

std::string TensorsOfEveryType() {
  struct Type {
    uint32_t number;
    DType dtype;
  };
  GgufBuilder b;
  b.alignment = 8;
  b.Uint32("general.alignment", 8);
  for (const Type& type :
       {Type{0, DType::kF32}, Type{1, DType::kF16}, Type{2, DType::kQ4_0}, Type{3, DType::kQ4_1},
        Type{6, DType::kQ5_0}, Type{7, DType::kQ5_1}, Type{8, DType::kQ8_0}, Type{12, DType::kQ4_K},
        Type{13, DType::kQ5_K}, Type{14, DType::kQ6_K}, Type{26, DType::kI32},
        Type{27, DType::kI64}, Type{30, DType::kBF16}, Type{10, DType::kQ2_K},
        Type{11, DType::kQ3_K}, Type{20, DType::kIQ4_NL}, Type{23, DType::kIQ4_XS},
        Type{39, DType::kMXFP4}}) {
    GgufBuilder::Tensor& t = b.tensor("t." + std::string(DTypeName(type.dtype)));
    t.type = type.number;
    t.dims = {static_cast<uint64_t>(DTypeBlockSize(type.dtype)), 2};
    t.data.assign(2 * DTypeBytes(type.dtype), '\x11');
  }
  b.tensor("foreign").type = 17;
  b.tensor("foreign").dims = {256};
  return b.Build();
}

}  // namespace

std::vector<std::string> GgufSeeds() {
  return {Llama(), TinyModelOf("qwen2").Build(), Qwen3OfEveryValueType(), TensorsOfEveryType(),
          GgufBuilder().Build()};
}

}  // namespace lowkey
