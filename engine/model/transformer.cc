#include "engine/model/transformer.h"

#include <algorithm>
#include <cmath>

#include "engine/base/status_macros.h"
#include "engine/model/rope.h"

namespace lowkey {
namespace {

// Rows a task of the cheap row-wise operations: one row's work is a few microseconds.
constexpr int64_t kRowsPerTask = 8;

void ForRows(ThreadPool& pool, int64_t n_rows, absl::FunctionRef<void(int64_t)> body) {
  pool.ParallelFor((n_rows + kRowsPerTask - 1) / kRowsPerTask, [&](int64_t task, int) {
    const int64_t end = std::min(n_rows, (task + 1) * kRowsPerTask);
    for (int64_t row = task * kRowsPerTask; row < end; ++row) body(row);
  });
}

std::vector<float> Floats(std::initializer_list<const TensorView*> parts) {
  std::vector<float> out;
  for (const TensorView* part : parts) {
    if (part->data == nullptr) continue;
    const size_t at = out.size();
    out.resize(at + part->size());
    LoadFloats(*part, 0, part->size(), out.data() + at);
  }
  return out;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Transformer>> Transformer::Load(
    std::shared_ptr<const Checkpoint> checkpoint, const Options& options, ThreadPool& pool) {
  std::unique_ptr<Transformer> model(new Transformer(std::move(checkpoint), pool));
  LK_RETURN_IF_ERROR(model->Pack(options));
  model->inverse_frequencies_ = RopeInverseFrequencies(model->config());
  model->ReserveRows(options.max_rows);
  return model;
}

absl::Status Transformer::Pack(const Options& options) {
  const Checkpoint& c = *checkpoint_;
  int64_t done_bytes = 0;
  const auto pack = [&](std::initializer_list<TensorView> parts) -> absl::StatusOr<PackedWeight> {
    auto packed = PackedWeight::Pack(parts, options.weight_type, pool_);
    for (const TensorView& p : parts) done_bytes += static_cast<int64_t>(p.size_bytes());
    if (options.progress) options.progress(std::min(done_bytes, c.file_bytes), c.file_bytes);
    return packed;
  };
  layers_.resize(c.layers.size());
  for (size_t i = 0; i < c.layers.size(); ++i) {
    const LayerTensors& t = c.layers[i];
    Layer& layer = layers_[i];
    layer.attention_norm = Floats({&t.attention_norm});
    layer.ffn_norm = Floats({&t.ffn_norm});
    layer.q_norm = Floats({&t.q_norm});
    layer.k_norm = Floats({&t.k_norm});
    layer.qkv_bias = Floats({&t.q_bias, &t.k_bias, &t.v_bias});
    layer.o_bias = Floats({&t.o_bias});
    layer.gate_up_bias = Floats({&t.gate_bias, &t.up_bias});
    layer.down_bias = Floats({&t.down_bias});
    LK_ASSIGN_OR_RETURN(layer.qkv, pack({t.q_proj, t.k_proj, t.v_proj}));
    LK_ASSIGN_OR_RETURN(layer.o, pack({t.o_proj}));
    LK_ASSIGN_OR_RETURN(layer.gate_up, pack({t.gate_proj, t.up_proj}));
    LK_ASSIGN_OR_RETURN(layer.down, pack({t.down_proj}));
  }
  final_norm_ = Floats({&c.final_norm});
  LK_ASSIGN_OR_RETURN(lm_head_, pack({c.lm_head}));
  if (options.progress) options.progress(c.file_bytes, c.file_bytes);
  return absl::OkStatus();
}

void Transformer::ReserveRows(int64_t max_rows) {
  const ModelConfig& c = config();
  x_.resize(max_rows * c.hidden_dim);
  normed_.resize(max_rows * c.hidden_dim);
  attended_.resize(max_rows * c.n_heads * c.head_dim);
  qkv_.resize(max_rows * RowStride(layers_[0].qkv.n_out_padded()));
  product_.resize(max_rows * RowStride(layers_[0].o.n_out_padded()));
  ffn_.resize(max_rows * RowStride(layers_[0].gate_up.n_out_padded()));
  cos_.resize(max_rows * (c.head_dim / 2));
  sin_.resize(max_rows * (c.head_dim / 2));
  logits_.resize(kMaxLogitRows * RowStride(lm_head_.n_out_padded()));
}

int64_t Transformer::weight_bytes() const {
  int64_t total = lm_head_.size_bytes();
  for (const Layer& l : layers_) {
    total += l.qkv.size_bytes() + l.o.size_bytes() + l.gate_up.size_bytes() + l.down.size_bytes();
  }
  return total + static_cast<int64_t>(checkpoint_->embedding.size_bytes());
}

AttentionGeometry Transformer::geometry(StorageType cache_type) const {
  const ModelConfig& c = config();
  AttentionGeometry g{c.n_layers, c.n_heads, c.n_kv_heads, c.head_dim, std::nullopt, cache_type};
  if (c.sliding_window.has_value()) g.sliding_window = *c.sliding_window;
  return g;
}

void Transformer::Embed(absl::Span<const int32_t> tokens) {
  const int64_t dim = config().hidden_dim;
  for (size_t i = 0; i < tokens.size(); ++i) {
    LoadFloats(checkpoint_->embedding, tokens[i] * dim, dim, x_.data() + i * dim);
  }
}

void Transformer::PrepareRope(absl::Span<const int64_t> positions) {
  const size_t half = inverse_frequencies_.size();
  for (size_t i = 0; i < positions.size(); ++i) {
    for (size_t j = 0; j < half; ++j) {
      const double angle = static_cast<double>(positions[i]) * inverse_frequencies_[j];
      cos_[i * half + j] = static_cast<float>(std::cos(angle));
      sin_[i * half + j] = static_cast<float>(std::sin(angle));
    }
  }
}

float* Transformer::Residual(int64_t row, const std::vector<float>* bias) {
  const int64_t dim = config().hidden_dim;
  float* x = x_.data() + row * dim;
  if (bias == nullptr) return x;
  float* product = product_.data() + row * RowStride(layers_[0].o.n_out_padded());
  if (!bias->empty()) Kernels().add(bias->data(), product, dim);
  Kernels().add(product, x, dim);
  return x;
}

const float* Transformer::Normed(int64_t row, const std::vector<float>* bias,
                                 const std::vector<float>& weight) {
  const int64_t dim = config().hidden_dim;
  float* out = normed_.data() + row * dim;
  Kernels().rms_norm(Residual(row, bias), weight.data(), config().rms_norm_eps, out, dim);
  return out;
}

void Transformer::NormHeads(const Layer& layer, float* row) {
  const ModelConfig& c = config();
  for (int32_t h = 0; h < c.n_heads + c.n_kv_heads; ++h) {
    const std::vector<float>& weight = h < c.n_heads ? layer.q_norm : layer.k_norm;
    float* head = row + int64_t{h} * c.head_dim;
    Kernels().rms_norm(head, weight.data(), c.rms_norm_eps, head, c.head_dim);
  }
}

void Transformer::Rope(const Layer& layer, int64_t n_rows) {
  const ModelConfig& c = config();
  const int64_t ld = RowStride(layer.qkv.n_out_padded());
  const int64_t half = c.head_dim / 2;
  ForRows(pool_, n_rows, [&](int64_t i) {
    float* row = qkv_.data() + i * ld;
    if (!layer.qkv_bias.empty()) {
      Kernels().add(layer.qkv_bias.data(), row, static_cast<int64_t>(layer.qkv_bias.size()));
    }
    if (c.qk_norm) NormHeads(layer, row);
    // Keys follow queries in a row: one call rotates both.
    Kernels().rope(row, cos_.data() + i * half, sin_.data() + i * half, c.n_heads + c.n_kv_heads,
                   c.head_dim);
  });
}

void Transformer::FeedForward(const Layer& layer, int64_t n_rows) {
  const int64_t ffn_dim = config().ffn_dim;
  const int64_t ld = RowStride(layer.gate_up.n_out_padded());
  const auto activated = [&](int64_t i) {
    float* row = ffn_.data() + i * ld;
    if (!layer.gate_up_bias.empty()) Kernels().add(layer.gate_up_bias.data(), row, 2 * ffn_dim);
    Kernels().silu_mul(row, row + ffn_dim, row, ffn_dim);
    return row;
  };
  Linear(
      layer.gate_up, [&](int64_t i) { return Normed(i, &layer.o_bias, layer.ffn_norm); }, n_rows,
      ffn_.data(), ld, pool_);
  Linear(layer.down, activated, n_rows, product_.data(), RowStride(layer.down.n_out_padded()),
         pool_);
}

void Transformer::Forward(absl::Span<const int32_t> tokens, absl::Span<const int64_t> positions,
                          absl::Span<AttentionMechanism* const> mechanisms,
                          const Observer& observer) {
  const ModelConfig& c = config();
  const auto n_rows = static_cast<int64_t>(tokens.size());
  const int64_t ld_qkv = RowStride(layers_[0].qkv.n_out_padded());
  const int64_t q_dim = int64_t{c.n_heads} * c.head_dim;
  const int64_t kv_dim = int64_t{c.n_kv_heads} * c.head_dim;
  const float* q = qkv_.data();
  const std::vector<float>* bias = nullptr;  // of the product that waits to be added
  Embed(tokens);
  PrepareRope(positions);
  for (int64_t i = 0; i < c.n_layers; ++i) {
    const Layer& layer = layers_[i];
    Linear(
        layer.qkv, [&](int64_t row) { return Normed(row, bias, layer.attention_norm); }, n_rows,
        qkv_.data(), ld_qkv, pool_);
    if (observer) observer(i, normed_.data(), n_rows);
    Rope(layer, n_rows);
    for (AttentionMechanism* m : mechanisms) {
      m->Attend({i, q, q + q_dim, q + q_dim + kv_dim, ld_qkv, attended_.data(), q_dim});
    }
    Linear(layer.o, attended_.data(), q_dim, n_rows, product_.data(),
           RowStride(layer.o.n_out_padded()), pool_);
    FeedForward(layer, n_rows);
    bias = &layer.down_bias;
  }
  ForRows(pool_, n_rows, [&](int64_t row) { Residual(row, bias); });
}

void Transformer::Logits(absl::Span<const int64_t> rows) {
  const int64_t dim = config().hidden_dim;
  const auto n_rows = static_cast<int64_t>(rows.size());
  LK_CHECK(n_rows <= kMaxLogitRows);
  for (int64_t i = 0; i < n_rows; ++i) {
    Kernels().rms_norm(x_.data() + rows[i] * dim, final_norm_.data(), config().rms_norm_eps,
                       normed_.data() + i * dim, dim);
  }
  Linear(lm_head_, normed_.data(), dim, n_rows, logits_.data(), RowStride(lm_head_.n_out_padded()),
         pool_);
}

}  // namespace lowkey
