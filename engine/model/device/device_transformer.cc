#include "engine/model/device/device_transformer.h"

#include <algorithm>
#include <atomic>
#include <optional>
#include <utility>

#include "absl/hash/hash.h"
#include "engine/base/status_macros.h"
#include "engine/kernels/device/kernels.h"
#include "engine/kernels/device/weight.h"

namespace lowkey {
namespace {

constexpr auto kFloat = static_cast<int64_t>(sizeof(float));
constexpr auto kInt = static_cast<int64_t>(sizeof(int32_t));

// Numbers the models of the process, so that none repeats another's steps.
uint64_t NewModelNumber() {
  static std::atomic<uint64_t> n_models{0};
  return ++n_models;
}

// Returns a hash of the work that a step queues; nullopt when a mechanism has no key for it.
std::optional<uint64_t> StepKey(uint64_t model, absl::Span<const Decoder::Group> groups) {
  std::vector<uint64_t> parts = {model};
  for (const Decoder::Group& group : groups) {
    parts.push_back(static_cast<uint64_t>(group.weight_set));
    parts.push_back(static_cast<uint64_t>(group.n_rows));
    for (const AttentionMechanism* m : group.mechanisms) {
      const std::optional<uint64_t> key = m->PlanKey();
      if (!key.has_value()) return std::nullopt;
      parts.push_back(static_cast<uint64_t>(m->id()));
      parts.push_back(*key);
    }
  }
  return absl::HashOf(parts);
}

}  // namespace

DeviceTransformer::DeviceTransformer(std::shared_ptr<const Checkpoint> checkpoint,
                                     const DecoderOptions& options, Device& device)
    : Decoder(std::move(checkpoint)),
      options_(options),
      device_(device),
      number_(NewModelNumber()) {}

absl::StatusOr<std::unique_ptr<DeviceTransformer>> DeviceTransformer::Load(
    std::shared_ptr<const Checkpoint> checkpoint, const DecoderOptions& options, ThreadPool& pool,
    Device& device) {
  std::unique_ptr<DeviceTransformer> model(
      new DeviceTransformer(std::move(checkpoint), options, device));
  LK_RETURN_IF_ERROR(model->Take(pool));
  LK_RETURN_IF_ERROR(model->ReserveRows());
  LK_RETURN_IF_ERROR(device.Wait());
  return model;
}

absl::Status DeviceTransformer::Take(ThreadPool& pool) {
  const Checkpoint& c = *checkpoint_;
  const auto progress = [&](size_t n_done) {
    const auto share = static_cast<double>(n_done) / static_cast<double>(c.layers.size() + 1);
    if (options_.progress) {
      options_.progress(static_cast<int64_t>(share * static_cast<double>(c.file_bytes)),
                        c.file_bytes);
    }
  };
  for (const LayerTensors& t : c.layers) {
    LK_RETURN_IF_ERROR(TakeLayer(t, pool));
    progress(layers_.size());
  }
  LK_RETURN_IF_ERROR(TakeWeightSets(
      pool,
      [&](const ModelConfig& config) {
        weight_sets_.push_back(
            std::make_unique<DeviceWeightSet>(config, options_.weight_type, device_));
      },
      [&](const LayerTensors& t) { return weight_sets_.back()->AddLayer(t, pool); }));
  LK_ASSIGN_OR_RETURN(final_norm_, Uploaded(Floats({&c.final_norm}), device_));
  LK_ASSIGN_OR_RETURN(lm_head_,
                      MakeDeviceWeight({&c.lm_head, 1}, options_.weight_type, pool, device_));
  if (c.embedding.data != c.lm_head.data || row_type() != options_.weight_type) {
    LK_ASSIGN_OR_RETURN(embedding_, MakeDeviceWeight({&c.embedding, 1}, row_type(), pool, device_));
  }
  progress(c.layers.size() + 1);
  return absl::OkStatus();
}

absl::Status DeviceTransformer::TakeLayer(const LayerTensors& t, ThreadPool& pool) {
  Layer& layer = layers_.emplace_back();
  LK_ASSIGN_OR_RETURN(layer.attention_norm, Uploaded(Floats({&t.attention_norm}), device_));
  LK_ASSIGN_OR_RETURN(layer.ffn_norm, Uploaded(Floats({&t.ffn_norm}), device_));
  LK_ASSIGN_OR_RETURN(layer.gate_up_bias,
                      Uploaded(GatedBias(Floats({&t.gate_bias}), Floats({&t.up_bias})), device_));
  LK_ASSIGN_OR_RETURN(layer.down_bias, Uploaded(Floats({&t.down_bias}), device_));
  LK_ASSIGN_OR_RETURN(layer.gate_up,
                      MakeGatedWeight(t.gate_proj, t.up_proj, options_.weight_type, pool, device_));
  LK_ASSIGN_OR_RETURN(layer.down,
                      MakeDeviceWeight({&t.down_proj, 1}, options_.weight_type, pool, device_));
  return absl::OkStatus();
}

absl::Status DeviceTransformer::ReserveRows() {
  const ModelConfig& c = config();
  const int64_t n = options_.max_rows;
  const auto reserve = [&](Buffer& buffer, int64_t n_bytes) -> absl::Status {
    LK_ASSIGN_OR_RETURN(buffer, Buffer::Allocate(static_cast<size_t>(n_bytes), &device_));
    return absl::OkStatus();
  };
  const int64_t type_bytes = StorageBytes(row_type());
  LK_RETURN_IF_ERROR(reserve(inputs_, n * (2 * kInt + static_cast<int64_t>(sizeof(DrawnToken)))));
  LK_RETURN_IF_ERROR(reserve(wanted_rows_, options_.max_logit_rows * kInt));
  LK_RETURN_IF_ERROR(reserve(x_, n * c.hidden_dim * kFloat));
  LK_RETURN_IF_ERROR(
      reserve(normed_, std::max(n, options_.max_logit_rows) * c.hidden_dim * type_bytes));
  if (options_.weight_type != StorageType::kFloat32) {
    LK_RETURN_IF_ERROR(reserve(normed_floats_, n * c.hidden_dim * kFloat));
  }
  LK_RETURN_IF_ERROR(reserve(gate_up_, n * layers_[0].gate_up->n_out() * kFloat));
  LK_RETURN_IF_ERROR(reserve(gated_, n * c.ffn_dim * type_bytes));
  LK_RETURN_IF_ERROR(reserve(device_logits_, options_.max_logit_rows * c.vocab_size * kFloat));
  for (const auto& set : weight_sets_) LK_RETURN_IF_ERROR(set->ReserveRows(n));
  return absl::OkStatus();
}

int64_t DeviceTransformer::weight_bytes() const {
  int64_t total = lm_head_->size_bytes() + (embedding_ == nullptr ? 0 : embedding_->size_bytes());
  for (const Layer& l : layers_) total += l.gate_up->size_bytes() + l.down->size_bytes();
  for (const auto& set : weight_sets_) total += set->weight_bytes();
  return total;
}

const float* DeviceTransformer::input_floats() const {
  if (!reads_inputs_) return nullptr;
  return (row_type() == StorageType::kFloat32 ? normed_ : normed_floats_).as<float>();
}

void DeviceTransformer::Norm(const Buffer& weight, int64_t n_rows, const int32_t* rows,
                             float* also_floats) {
  DeviceNormArgs args;
  args.x = x_.as<float>();
  args.rows = rows;
  args.weight = weight.as<float>();
  args.eps = config().rms_norm_eps;
  args.dim = config().hidden_dim;
  args.n_rows = n_rows;
  args.out = normed_.data();
  args.out_type = row_type();
  args.also_floats = also_floats;
  device_.kernels().rms_norm(device_, args);
}

void DeviceTransformer::Attend(int64_t layer, absl::Span<const Group> groups) {
  const int64_t dim = config().hidden_dim;
  const float* floats = input_floats();
  int64_t first_row = 0;
  for (const Group& group : groups) {
    DeviceWeightSet& set = *weight_sets_[group.weight_set];
    const int64_t at = first_row * dim;
    const LayerRows rows = set.Project(layer, normed_.data() + at * StorageBytes(row_type()),
                                       floats == nullptr ? nullptr : floats + at);
    for (AttentionMechanism* m : group.mechanisms) m->Attend(rows);
    set.Output(layer, x_.as<float>() + at);
    first_row += group.n_rows;
  }
}

void DeviceTransformer::FeedForward(const Layer& layer, int64_t n_rows) {
  const int64_t dim = config().hidden_dim, ffn_dim = config().ffn_dim;
  Norm(layer.ffn_norm, n_rows);
  device_.MultiplyGated({{layer.gate_up.get(), normed_.data(), dim, n_rows, gate_up_.as<float>(),
                          layer.gate_up->n_out(), layer.gate_up_bias.as<float>()},
                         gated_.data(),
                         ffn_dim});
  device_.Multiply({layer.down.get(), gated_.data(), ffn_dim, n_rows, x_.as<float>(), dim,
                    layer.down_bias.as<float>(), GemmArgs::Into::kAccumulate});
}

void DeviceTransformer::Queue(int64_t n_rows, absl::Span<const Group> groups) {
  const DeviceWeight& table = embedding_ == nullptr ? *lm_head_ : *embedding_;
  device_.kernels().embed(device_, {inputs_.as<int32_t>(), table.data(), table.type(),
                                    config().hidden_dim, x_.as<float>(), n_rows});
  int64_t first_row = 0;
  reads_inputs_ = false;
  for (const Group& group : groups) {
    const bool reads = std::any_of(group.mechanisms.begin(), group.mechanisms.end(),
                                   [](const auto* m) { return m->ReadsInputs(); });
    reads_inputs_ = reads_inputs_ || reads || weight_sets_[group.weight_set]->has_slices();
    weight_sets_[group.weight_set]->Begin(inputs_.as<int32_t>() + n_rows + first_row, group.n_rows,
                                          group.mechanisms);
    first_row += group.n_rows;
  }
  for (int64_t i = 0; i < config().n_layers; ++i) {
    Norm(layers_[i].attention_norm, n_rows, nullptr,
         reads_inputs_ ? normed_floats_.as<float>() : nullptr);
    Attend(i, groups);
    FeedForward(layers_[i], n_rows);
  }
}

void DeviceTransformer::TakeDrawn(const SampleResult* results, absl::Span<const DrawnToken> drawn) {
  results_ = results;
  drawn_.assign(drawn.begin(), drawn.end());
}

// Uploads the rows' tokens, positions and places of drawn tokens in one piece.
void DeviceTransformer::UploadInputs(absl::Span<const int32_t> tokens,
                                     absl::Span<const int64_t> positions) {
  const auto n_rows = static_cast<int64_t>(tokens.size());
  const auto n_drawn = static_cast<int64_t>(drawn_.size());
  static_assert(sizeof(DrawnToken) == 2 * sizeof(int32_t));
  narrow_.assign(tokens.begin(), tokens.end());
  narrow_.insert(narrow_.end(), positions.begin(), positions.end());
  for (const DrawnToken& drawn : drawn_) narrow_.insert(narrow_.end(), {drawn.row, drawn.result});
  device_.Upload(narrow_.data(), inputs_.data(), static_cast<int64_t>(narrow_.size()) * kInt);
  if (n_drawn == 0) return;
  const auto* places = reinterpret_cast<const DrawnToken*>(inputs_.as<int32_t>() + 2 * n_rows);
  device_.kernels().take_drawn(device_, {results_, places, n_drawn, inputs_.as<int32_t>()});
  drawn_.clear();
}

absl::Status DeviceTransformer::Forward(absl::Span<const int32_t> tokens,
                                        absl::Span<const int64_t> positions,
                                        absl::Span<const Group> groups) {
  const auto n_rows = static_cast<int64_t>(tokens.size());
  UploadInputs(tokens, positions);
  const std::optional<uint64_t> key = StepKey(number_, groups);
  if (key.has_value()) {
    device_.Repeat(*key, [&] { Queue(n_rows, groups); });
  } else {
    Queue(n_rows, groups);
  }
  return device_.status();
}

const float* DeviceTransformer::QueueLogits(absl::Span<const int64_t> rows) {
  const auto n_rows = static_cast<int64_t>(rows.size());
  LK_CHECK(n_rows <= options_.max_logit_rows);
  narrow_.assign(rows.begin(), rows.end());
  device_.Upload(narrow_.data(), wanted_rows_.data(), n_rows * kInt);
  Norm(final_norm_, n_rows, wanted_rows_.as<int32_t>());
  device_.Multiply({lm_head_.get(), normed_.data(), config().hidden_dim, n_rows,
                    device_logits_.as<float>(), config().vocab_size});
  return device_logits_.as<float>();
}

absl::Status DeviceTransformer::Logits(absl::Span<const int64_t> rows) {
  const auto n_rows = static_cast<int64_t>(rows.size());
  QueueLogits(rows);
  logits_.resize(n_rows * config().vocab_size);
  return device_.Download(device_logits_.data(), logits_.data(),
                          n_rows * config().vocab_size * kFloat);
}

}  // namespace lowkey
