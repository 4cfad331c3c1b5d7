#include "bench/layer_count.h"

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "bench/random_model.h"
#include "engine/base/status_macros.h"
#include "engine/loader/checkpoint.h"

namespace lowkey {
namespace {

constexpr int32_t kToken = 5;

// A folder that is removed with what is in it.
class Folder {
 public:
  Folder() : path_(std::filesystem::temp_directory_path() / "lowkey_layer_XXXXXX") {
    if (mkdtemp(path_.data()) == nullptr) path_.clear();
  }
  ~Folder() {
    if (!path_.empty()) std::filesystem::remove_all(path_);
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  const std::string& path() const { return path_; }  // empty: it cannot be made

 private:
  std::string path_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<LayerCounter>> LayerCounter::Create(const ModelConfig& config,
                                                                   EngineOptions::Dtype dtype) {
  const Folder folder;
  if (folder.path().empty()) return absl::UnavailableError("a temporary folder cannot be made");
  RandomModelOptions model;
  model.config = config;
  model.config.n_layers = 1;
  model.config.vocab_size = 256;  // the head is not counted
  LK_RETURN_IF_ERROR(WriteRandomModel(folder.path(), model));
  auto counter = std::make_unique<LayerCounter>();
  EngineOptions options;
  options.device = counter->device_;
  options.dtype = dtype;
  options.max_batch_tokens = kMaxRows;
  LK_ASSIGN_OR_RETURN(auto weights, OpenCheckpoint(folder.path()));
  LK_ASSIGN_OR_RETURN(counter->runner_, ModelRunner::Create(std::move(weights), options, nullptr));
  return counter;
}

absl::StatusOr<LayerCounter::Counts> LayerCounter::Decode(int64_t batch, int64_t depth) {
  std::vector<SequenceCache> sequences(batch);
  for (SequenceCache& s : sequences) LK_RETURN_IF_ERROR(Prefill(s, depth));
  std::vector<ModelRunner::Rows> rows;
  for (SequenceCache& s : sequences) rows.push_back({&s, s.n_tokens, {&kToken, 1}});
  device_->Reset();
  LK_RETURN_IF_ERROR(runner_->Step(rows));
  return OfLayers();
}

absl::StatusOr<LayerCounter::Counts> LayerCounter::Prompt(int64_t n_tokens) {
  SequenceCache sequence;
  device_->Reset();
  LK_RETURN_IF_ERROR(Prefill(sequence, n_tokens));
  return OfLayers();
}

absl::Status LayerCounter::Prefill(SequenceCache& sequence, int64_t n_tokens) {
  sequence.n_prompt_tokens = n_tokens;
  const std::vector<int32_t> tokens(n_tokens, kToken);
  while (sequence.n_tokens < n_tokens) {
    const int64_t n = std::min(kMaxRows, n_tokens - sequence.n_tokens);
    const ModelRunner::Rows rows{&sequence, sequence.n_tokens,
                                 absl::MakeConstSpan(tokens).first(static_cast<size_t>(n))};
    LK_RETURN_IF_ERROR(runner_->Step({&rows, 1}));
  }
  return absl::OkStatus();
}

// Leaves out what happens once a step.
LayerCounter::Counts LayerCounter::OfLayers() const {
  Counts counts;
  for (const auto& count : device_->counts()) {
    if (count.first != "embed" && count.first != "angles") counts.push_back(count);
  }
  return counts;
}

LaunchCount LayerCounter::Sum(const Counts& counts) {
  LaunchCount sum;
  for (const auto& [kind, count] : counts) {
    sum.launches += count.launches;
    sum.bytes += count.bytes;
    sum.flops += count.flops;
  }
  return sum;
}

}  // namespace lowkey
