#include "engine/runtime/model_memory.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/config/projections.h"
#include "engine/kernels/narrow_weight.h"
#include "engine/model/transformer.h"
#include "engine/model/weight_set.h"
#include "engine/runtime/model_setup.h"
#include "engine/runtime/place/place.h"

namespace lowkey {
namespace {

int64_t MatrixBytes(const Checkpoint& checkpoint, const WeightStorage& storage) {
  int64_t n = 0;
  EachMatrix(checkpoint, [&](const TensorView& t) { n += LoadedBytes(t, storage); });
  return n;
}

// Returns the bytes of a mechanism's own maps around attention, which are loaded beside the
// checkpoint's.
int64_t OwnMatrixBytes(const BundledMechanism& m, const WeightStorage& storage) {
  if (!m.has_own_projections) return 0;
  const ModelConfig& c = m.config;
  const int64_t attended = int64_t{c.n_heads} * c.head_dim;
  const int64_t out_dim[] = {int64_t{c.n_heads} * c.key_dim(), int64_t{c.n_kv_heads} * c.key_dim(),
                             int64_t{c.n_kv_heads} * c.head_dim, c.hidden_dim};
  int64_t n = 0;
  for (int which = 0; which < kNumProjections; ++which) {
    const bool is_output = which == static_cast<int>(Projection::kO);
    if (!m.use.has[which] && !is_output) continue;
    const int64_t in_dim = is_output ? attended : c.hidden_dim;
    n += LoadedBytes({DType::kF32, {out_dim[which], in_dim}}, storage);
  }
  return n * c.n_layers;
}

// Returns the floats of a row in the buffers of the maps around attention: q, k, v, the attended
// row and the rotation.
int64_t AttentionFloats(const ModelConfig& c) {
  const int64_t attended = int64_t{c.n_heads} * c.head_dim;
  const int64_t scored = int64_t{c.n_heads + c.n_kv_heads} * c.key_dim();
  return scored + int64_t{c.n_kv_heads} * c.head_dim + attended + c.key_dim();
}

int64_t StepBytes(const Checkpoint& checkpoint, int64_t max_rows) {
  const ModelConfig& c = checkpoint.config;
  int64_t floats_of_row = 3 * int64_t{c.hidden_dim} + 2 * int64_t{c.ffn_dim} + AttentionFloats(c);
  for (const BundledMechanism& m : checkpoint.mechanisms) {
    if (m.has_own_projections) floats_of_row += AttentionFloats(m.config);
  }
  const int64_t logits = Transformer::kMaxLogitRows * int64_t{c.vocab_size};
  return (max_rows * floats_of_row + logits) * static_cast<int64_t>(sizeof(float));
}

std::string GiB(int64_t bytes) {
  return absl::StrFormat("%.2f GiB", static_cast<double>(bytes) / double{1 << 30});
}

int64_t LoadedOnHost(const ModelMemory& memory) { return memory.matrix_bytes + memory.step_bytes; }

}  // namespace

int64_t LoadedBytes(const TensorView& weight, const WeightStorage& storage) {
  const int64_t n_out = weight.shape[0], n_in = weight.shape[1];
  if (storage.type == StorageType::kFloat8) return WeightBytes(storage.type, n_out, n_in);
  return PackedBytes(FormOf(weight, storage), n_out, n_in, 1);
}

ModelMemory PredictMemory(const Checkpoint& checkpoint, const EngineOptions& options) {
  const WeightStorage storage = ResolveStorage(options, checkpoint);
  ModelMemory memory;
  memory.matrix_bytes = MatrixBytes(checkpoint, storage);
  for (const BundledMechanism& m : checkpoint.mechanisms) {
    memory.matrix_bytes += OwnMatrixBytes(m, storage);
  }
  memory.embedding_bytes = static_cast<int64_t>(checkpoint.embedding.size_bytes());
  memory.step_bytes = StepBytes(checkpoint, std::max<int64_t>(1, options.max_batch_tokens));
  const AttentionGeometry geometry = GeometryOf(checkpoint.config, RowTypeOf(storage.type));
  const int64_t to_load =
      options.device == nullptr ? LoadedOnHost(memory) : memory.weight_bytes() + memory.step_bytes;
  const int64_t spare_bytes = Place::Make(options.device)->spare_bytes(to_load);
  memory.cache_bytes =
      CacheBudget(options, spare_bytes, geometry, ContextTokens(options, checkpoint.config));
  return memory;
}

absl::Status CheckModelFits(const Checkpoint& checkpoint, const EngineOptions& options,
                            int64_t available_bytes) {
  if (options.device != nullptr) return absl::OkStatus();
  const int64_t needed = LoadedOnHost(PredictMemory(checkpoint, options));
  if (needed <= available_bytes) return absl::OkStatus();
  EngineOptions narrow = options;
  narrow.dtype = EngineOptions::Dtype::kInt8;
  const int64_t narrow_bytes = LoadedOnHost(PredictMemory(checkpoint, narrow));
  std::string advice = "a smaller model, or more memory for this process";
  if (narrow_bytes <= available_bytes) {
    advice = absl::StrCat("--dtype int8, which needs ", GiB(narrow_bytes));
  } else if (narrow_bytes < needed) {
    absl::StrAppend(&advice, "; --dtype int8 needs ", GiB(narrow_bytes));
  }
  return absl::ResourceExhaustedError(absl::StrCat(
      "the model needs ", GiB(needed), " for weights as ",
      WeightsName(checkpoint, ResolveStorage(options, checkpoint)), " and a step's buffers, ",
      GiB(available_bytes), " of memory are available; try ", advice));
}

}  // namespace lowkey
