#include "engine/runtime/model_runner.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "engine/base/status_macros.h"
#include "engine/runtime/memory.h"

namespace lowkey {
namespace {
constexpr int64_t kDefaultFullContexts = 64;
}  // namespace

int64_t CacheBudget(const EngineOptions& options, const AttentionGeometry& geometry,
                    int64_t context_tokens) {
  if (options.cache_bytes > 0) return options.cache_bytes;
  const int64_t pages = (context_tokens + kPageTokens - 1) / kPageTokens;
  const int64_t useful = kDefaultFullContexts * pages * PageBytes(geometry);
  return std::max(PageBytes(geometry), std::min(AvailableMemoryBytes() / 4, useful));
}

StorageType ResolveStorage(EngineOptions::Dtype dtype, const Checkpoint& checkpoint) {
  if (dtype == EngineOptions::Dtype::kFloat32) return StorageType::kFloat32;
  if (dtype == EngineOptions::Dtype::kBFloat16) return StorageType::kBFloat16;
  const bool wide = checkpoint.layers[0].q_proj.dtype == DType::kF32;
  return wide ? StorageType::kFloat32 : StorageType::kBFloat16;
}

std::string StorageName(StorageType type) {
  return type == StorageType::kFloat32 ? "float32" : "bfloat16";
}

absl::StatusOr<std::unique_ptr<ModelRunner>> ModelRunner::Create(const std::string& model_directory,
                                                                 const EngineOptions& options,
                                                                 ProgressFn progress) {
  LK_ASSIGN_OR_RETURN(auto checkpoint, OpenCheckpoint(model_directory));
  std::unique_ptr<ModelRunner> runner(new ModelRunner());
  const int n_cores = std::max(1u, std::thread::hardware_concurrency());
  runner->pool_ = std::make_unique<ThreadPool>(options.n_threads > 0 ? options.n_threads : n_cores);
  runner->max_rows_ = std::max<int64_t>(1, options.max_batch_tokens);

  Transformer::Options load;
  load.weight_type = ResolveStorage(options.dtype, *checkpoint);
  load.max_rows = runner->max_rows_;
  if (progress) {
    load.progress = [&progress](int64_t done, int64_t total) { progress(done, total); };
  }
  LK_ASSIGN_OR_RETURN(runner->model_, Transformer::Load(checkpoint, load, *runner->pool_));
  runner->geometry_ = runner->model_->geometry(load.weight_type);
  const int64_t context = options.context_tokens > 0
                              ? std::min(options.context_tokens, checkpoint->config.context_tokens)
                              : checkpoint->config.context_tokens;
  LK_ASSIGN_OR_RETURN(runner->cache_,
                      Cache::Create(CacheBudget(options, runner->geometry_, context),
                                    PageBytes(runner->geometry_)));
  for (Mechanism id : AllMechanisms()) {
    const AttentionContext attention{runner->geometry_, runner->cache_.get(), runner->pool_.get()};
    runner->mechanisms_[id].mechanism = MakeMechanism(id, attention);
  }
  return runner;
}

absl::Status ModelRunner::Step(absl::Span<const Rows> rows, const Transformer::Observer& observer) {
  tokens_.clear();
  positions_.clear();
  for (auto& [id, lane] : mechanisms_) lane.segments.clear();
  for (const Rows& r : rows) {
    const auto n = static_cast<int64_t>(r.tokens.size());
    mechanisms_.at(r.sequence->options.mechanism)
        .segments.push_back(
            {r.sequence, r.first_position, n, static_cast<int64_t>(tokens_.size())});
    tokens_.insert(tokens_.end(), r.tokens.begin(), r.tokens.end());
    for (int64_t i = 0; i < n; ++i) positions_.push_back(r.first_position + i);
  }
  LK_CHECK(static_cast<int64_t>(tokens_.size()) <= max_rows_);

  std::vector<AttentionMechanism*> active;
  for (auto& [id, lane] : mechanisms_) {
    if (lane.segments.empty()) continue;
    LK_RETURN_IF_ERROR(lane.mechanism->Plan(lane.segments));
    active.push_back(lane.mechanism.get());
  }
  model_->Forward(tokens_, positions_, active, observer);
  for (auto& [id, lane] : mechanisms_) {
    for (const Segment& s : lane.segments) lane.mechanism->Advance(*s.sequence, s.n_rows);
  }
  return absl::OkStatus();
}

void ModelRunner::Logits(absl::Span<const int64_t> rows,
                         absl::FunctionRef<void(size_t, absl::Span<const float>)> consume) {
  for (size_t begin = 0; begin < rows.size(); begin += Transformer::kMaxLogitRows) {
    const auto part = rows.subspan(begin, Transformer::kMaxLogitRows);
    model_->Logits(part);
    for (size_t i = 0; i < part.size(); ++i) {
      consume(begin + i, model_->logits_row(static_cast<int64_t>(i)));
    }
  }
}

}  // namespace lowkey
