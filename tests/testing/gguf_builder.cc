#include "tests/testing/gguf_builder.h"

#include <algorithm>

namespace lowkey {
namespace {

std::string ArrayHead(GgufType item, size_t count) {
  return GgufBuilder::Bytes(static_cast<uint32_t>(GgufType::kArray)) +
         GgufBuilder::Bytes(static_cast<uint32_t>(item)) +
         GgufBuilder::Bytes(static_cast<uint64_t>(count));
}

template <typename T>
std::string ArrayOf(GgufType item, const std::vector<T>& values) {
  std::string bytes = ArrayHead(item, values.size());
  for (const T& value : values) bytes += GgufBuilder::Bytes(value);
  return bytes;
}

}  // namespace

void GgufBuilder::String(const std::string& key, std::string_view value) {
  SetRaw(key, Bytes(static_cast<uint32_t>(GgufType::kString)) + Bytes(value));
}

void GgufBuilder::Strings(const std::string& key, const std::vector<std::string>& values) {
  std::string bytes = ArrayHead(GgufType::kString, values.size());
  for (const std::string& value : values) bytes += Bytes(std::string_view(value));
  SetRaw(key, std::move(bytes));
}

void GgufBuilder::Int32s(const std::string& key, const std::vector<int32_t>& values) {
  SetRaw(key, ArrayOf(GgufType::kInt32, values));
}

void GgufBuilder::Float32s(const std::string& key, const std::vector<float>& values) {
  SetRaw(key, ArrayOf(GgufType::kFloat32, values));
}

GgufBuilder::Tensor& GgufBuilder::tensor(const std::string& name) {
  for (Tensor& tensor : tensors_) {
    if (tensor.name == name) return tensor;
  }
  tensors_.emplace_back();
  tensors_.back().name = name;
  return tensors_.back();
}

void GgufBuilder::Zeros(const std::string& name, const std::vector<int64_t>& shape) {
  Tensor& t = tensor(name);
  t.dims.assign(shape.rbegin(), shape.rend());
  size_t n_bytes = sizeof(float);
  for (const int64_t size : shape) n_bytes *= static_cast<size_t>(size);
  t.data.assign(n_bytes, '\0');
}

void GgufBuilder::EraseTensor(const std::string& name) {
  std::erase_if(tensors_, [&](const Tensor& tensor) { return tensor.name == name; });
}

std::string GgufBuilder::Build() const {
  std::string bytes = magic + Bytes(version) + Bytes(uint64_t{tensors_.size()} + extra_tensors) +
                      Bytes(uint64_t{pairs_.size()} + extra_pairs);
  for (const auto& [key, value] : pairs_) bytes += Bytes(std::string_view(key)) + value;
  std::string data;
  for (const Tensor& t : tensors_) {
    data.resize((data.size() + alignment - 1) / alignment * alignment);
    bytes += Bytes(std::string_view(t.name)) + Bytes(static_cast<uint32_t>(t.dims.size()));
    for (const uint64_t size : t.dims) bytes += Bytes(size);
    bytes += Bytes(t.type) + Bytes(t.offset.value_or(data.size()));
    data += t.data;
  }
  if (!data.empty()) bytes.resize((bytes.size() + alignment - 1) / alignment * alignment);
  return bytes + data;
}

GgufBuilder TinyGguf() {
  GgufBuilder b;
  b.String("general.architecture", "llama");
  b.Uint32("llama.block_count", 2);
  b.Uint32("llama.context_length", 128);
  b.Uint32("llama.embedding_length", 32);
  b.Uint32("llama.feed_forward_length", 64);
  b.Uint32("llama.attention.head_count", 4);
  b.Uint32("llama.attention.head_count_kv", 2);
  b.Float32("llama.attention.layer_norm_rms_epsilon", 1e-5f);
  b.Uint32("tokenizer.ggml.bos_token_id", 1);
  b.Uint32("tokenizer.ggml.eos_token_id", 2);
  std::vector<std::string> tokens;
  for (int i = 0; i < 16; ++i) tokens.push_back("token" + std::to_string(i));
  b.Strings("tokenizer.ggml.tokens", tokens);
  b.Zeros("token_embd.weight", {16, 32});
  b.Zeros("output_norm.weight", {32});
  b.Zeros("output.weight", {16, 32});
  for (const std::string layer : {"blk.0.", "blk.1."}) {
    for (const char* norm : {"attn_norm", "ffn_norm"}) b.Zeros(layer + norm + ".weight", {32});
    for (const char* name : {"attn_q", "attn_output"}) b.Zeros(layer + name + ".weight", {32, 32});
    for (const char* name : {"attn_k", "attn_v"}) b.Zeros(layer + name + ".weight", {16, 32});
    for (const char* name : {"ffn_gate", "ffn_up"}) b.Zeros(layer + name + ".weight", {64, 32});
    b.Zeros(layer + "ffn_down.weight", {32, 64});
  }
  return b;
}

}  // namespace lowkey
