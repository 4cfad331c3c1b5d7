#include "engine/model/transformer.h"

#include <algorithm>
#include <utility>

#include "engine/base/status_macros.h"

namespace lowkey {

absl::StatusOr<std::unique_ptr<Transformer>> Transformer::Load(
    std::shared_ptr<const Checkpoint> checkpoint, const DecoderOptions& options, ThreadPool& pool) {
  std::unique_ptr<Transformer> model(new Transformer(std::move(checkpoint), pool));
  LK_RETURN_IF_ERROR(model->Pack(options));
  model->ReserveRows(options.max_rows);
  return model;
}

absl::Status Transformer::Pack(const DecoderOptions& options) {
  const Checkpoint& c = *checkpoint_;
  int64_t done_bytes = 0;
  const auto pack = [&](absl::Span<const TensorView> parts) -> absl::StatusOr<PackedWeight> {
    auto packed = PackedWeight::Pack(parts, {options.weight_type, options.keeps_codes}, pool_);
    for (const TensorView& p : parts) {
      done_bytes += static_cast<int64_t>(p.size_bytes());
      // Whole files need not be resident beside the packed weights.
      const absl::Span<const std::byte> bytes = {p.data, p.size_bytes()};
      for (const auto& file : c.files) {
        if (file->Holds(bytes)) file->Release(bytes);
      }
    }
    if (options.progress) options.progress(std::min(done_bytes, c.file_bytes), c.file_bytes);
    return packed;
  };
  layers_.resize(c.layers.size());
  for (size_t i = 0; i < c.layers.size(); ++i) {
    const LayerTensors& t = c.layers[i];
    Layer& layer = layers_[i];
    layer.attention_norm = Floats({&t.attention_norm});
    layer.ffn_norm = Floats({&t.ffn_norm});
    layer.gate_up_bias = Floats({&t.gate_bias, &t.up_bias});
    layer.down_bias = Floats({&t.down_bias});
    LK_ASSIGN_OR_RETURN(layer.gate_up, pack({{t.gate_proj, t.up_proj}}));
    LK_ASSIGN_OR_RETURN(layer.down, pack({{t.down_proj}}));
  }
  LK_RETURN_IF_ERROR(TakeWeightSets(
      pool_,
      [&](const ModelConfig& config) {
        weight_sets_.push_back(std::make_unique<WeightSet>(config, pool_));
      },
      [&](const LayerTensors& t) { return weight_sets_.back()->AddLayer(t, pack); }));
  for (const auto& file : c.files) {
    if (file->Holds({c.embedding.data, c.embedding.size_bytes()})) embedding_file_ = file;
  }
  embedding_row_.resize(c.embedding.size_bytes() / static_cast<size_t>(c.config.vocab_size));
  final_norm_ = Floats({&c.final_norm});
  LK_ASSIGN_OR_RETURN(lm_head_, pack({{c.lm_head}}));
  if (options.progress) options.progress(c.file_bytes, c.file_bytes);
  return absl::OkStatus();
}

void Transformer::ReserveRows(int64_t max_rows) {
  const ModelConfig& c = config();
  x_.resize(max_rows * c.hidden_dim);
  normed_.resize(max_rows * c.hidden_dim);
  product_.resize(max_rows * RowStride(layers_[0].down.n_out_padded()));
  int64_t ld_ffn = 0;  // the maps of each layer may have other forms
  for (const Layer& l : layers_) ld_ffn = std::max(ld_ffn, RowStride(l.gate_up.n_out_padded()));
  ffn_.resize(max_rows * ld_ffn);
  for (const auto& set : weight_sets_) set->ReserveRows(max_rows);
  logits_.resize(max_logit_rows() * RowStride(lm_head_.n_out_padded()));
}

int64_t Transformer::weight_bytes() const {
  int64_t total = lm_head_.size_bytes();
  for (const Layer& l : layers_) total += l.gate_up.size_bytes() + l.down.size_bytes();
  for (const auto& set : weight_sets_) total += set->weight_bytes();
  return total + static_cast<int64_t>(checkpoint_->embedding.size_bytes());
}

absl::Status Transformer::Embed(absl::Span<const int32_t> tokens) {
  const int64_t dim = config().hidden_dim;
  const TensorView& table = checkpoint_->embedding;
  if (embedding_file_ == nullptr) {
    for (size_t i = 0; i < tokens.size(); ++i) {
      LoadFloats(table, tokens[i] * dim, dim, x_.data() + i * dim);
    }
    return absl::OkStatus();
  }
  const TensorView row = {table.dtype, {dim}, embedding_row_.data()};
  for (size_t i = 0; i < tokens.size(); ++i) {
    const size_t offset = static_cast<size_t>(tokens[i]) * embedding_row_.size();
    LK_RETURN_IF_ERROR(embedding_file_->Read(table.data + offset, absl::MakeSpan(embedding_row_)));
    LoadFloats(row, 0, dim, x_.data() + i * dim);
  }
  return absl::OkStatus();
}

void Transformer::Norm(const std::vector<float>& weight, int64_t n_rows) {
  const int64_t dim = config().hidden_dim;
  ForRows(pool_, n_rows, [&](int64_t i) {
    Kernels().rms_norm(x_.data() + i * dim, weight.data(), config().rms_norm_eps,
                       normed_.data() + i * dim, dim);
  });
}

void Transformer::Attend(int64_t layer, absl::Span<const Group> groups) {
  const float* x = normed_.data();
  float* residual = x_.data();
  for (const Group& group : groups) {
    WeightSet& set = *weight_sets_[group.weight_set];
    if (observer_) {
      observer_(layer, LinearInput::kQkv, x, config().hidden_dim, group.n_rows);
    }
    const LayerRows rows = set.Project(layer, x);
    for (AttentionMechanism* m : group.mechanisms) m->Attend(rows);
    if (observer_) observer_(layer, LinearInput::kOutput, rows.out, rows.ld_out, group.n_rows);
    set.Output(layer, residual, product_.data());
    x += group.n_rows * config().hidden_dim;
    residual += group.n_rows * config().hidden_dim;
  }
}

void Transformer::FeedForward(int64_t layer_index, int64_t n_rows) {
  const Layer& layer = layers_[layer_index];
  const int64_t dim = config().hidden_dim, ld = RowStride(layer.gate_up.n_out_padded());
  if (observer_) observer_(layer_index, LinearInput::kGateUp, normed_.data(), dim, n_rows);
  const LinearRows gated =
      GatedLinear(layer.gate_up, layer.gate_up_bias, {normed_.data(), dim}, n_rows,
                  observer_ ? nullptr : &layer.down, ffn_.data(), ld, pool_);
  if (observer_) observer_(layer_index, LinearInput::kDown, gated.x, gated.ldx, n_rows);
  AddLinear(layer.down, layer.down_bias, gated, n_rows, x_.data(), dim, product_.data(), pool_);
}

absl::Status Transformer::Forward(absl::Span<const int32_t> tokens,
                                  absl::Span<const int64_t> positions,
                                  absl::Span<const Group> groups) {
  const auto n_rows = static_cast<int64_t>(tokens.size());
  LK_RETURN_IF_ERROR(Embed(tokens));
  for (const Group& group : groups) {
    weight_sets_[group.weight_set]->Begin(positions.first(group.n_rows));
    positions.remove_prefix(group.n_rows);
  }
  for (int64_t i = 0; i < config().n_layers; ++i) {
    const Layer& layer = layers_[i];
    Norm(layer.attention_norm, n_rows);
    Attend(i, groups);  // project, attend, output
    Norm(layer.ffn_norm, n_rows);
    FeedForward(i, n_rows);
  }
  return absl::OkStatus();
}

absl::Status Transformer::Observe(Observer observer) {
  observer_ = std::move(observer);
  return absl::OkStatus();
}

absl::Status Transformer::Logits(absl::Span<const int64_t> rows) {
  const int64_t dim = config().hidden_dim;
  const auto n_rows = static_cast<int64_t>(rows.size());
  LK_CHECK(n_rows <= max_logit_rows());
  for (int64_t i = 0; i < n_rows; ++i) {
    Kernels().rms_norm(x_.data() + rows[i] * dim, final_norm_.data(), config().rms_norm_eps,
                       normed_.data() + i * dim, dim);
  }
  Linear(lm_head_, {normed_.data(), dim}, n_rows, logits_.data(),
         RowStride(lm_head_.n_out_padded()), pool_);
  return absl::OkStatus();
}

}  // namespace lowkey
