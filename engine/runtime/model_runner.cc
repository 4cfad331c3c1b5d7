#include "engine/runtime/model_runner.h"

#include <algorithm>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "engine/model/rope.h"
#include "engine/model/transformer.h"
#include "engine/model/weight_set.h"
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
  const int64_t spare = options.device == nullptr ? AvailableMemoryBytes() / 4
                                                  : options.device->free_bytes() / 10 * 9;
  return std::max(PageBytes(geometry), std::min(spare, useful));
}

int ResolveThreads(int n_threads) {
  return n_threads > 0 ? n_threads
                       : static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
}

StorageType ResolveStorage(EngineOptions::Dtype dtype, const Checkpoint& checkpoint) {
  switch (dtype) {
    case EngineOptions::Dtype::kFloat32:
      return StorageType::kFloat32;
    case EngineOptions::Dtype::kBFloat16:
      return StorageType::kBFloat16;
    case EngineOptions::Dtype::kInt8:
      return StorageType::kInt8;
    case EngineOptions::Dtype::kFloat8:
      return StorageType::kFloat8;
    case EngineOptions::Dtype::kAuto:
      break;
  }
  const bool wide = checkpoint.layers[0].q_proj.dtype == DType::kF32;
  return wide ? StorageType::kFloat32 : StorageType::kBFloat16;
}

std::vector<MechanismSetup> SetUpMechanisms(const Checkpoint& checkpoint, StorageType cache_type) {
  std::vector<MechanismSetup> setups;
  for (Mechanism id : AllMechanisms()) {
    MechanismSetup& setup = setups.emplace_back();
    setup.id = id;
    setup.geometry = GeometryOf(checkpoint.config, cache_type);
    for (size_t i = 0; i < checkpoint.mechanisms.size(); ++i) {
      const BundledMechanism& bundled = checkpoint.mechanisms[i];
      if (bundled.mechanism != id) continue;
      setup.bundled = i;
      setup.geometry = GeometryOf(bundled.config, cache_type);
      setup.weights = std::make_unique<MechanismWeights>();
      setup.weights->inverse_frequencies = RopeInverseFrequencies(bundled.config);
      setup.weights->over = bundled.over;
      setup.weights->alignment_tokens = bundled.alignment_tokens;
      for (const BundledLayer& l : bundled.layers) setup.weights->alignment.push_back(l.alignment);
      setup.weights->lasso = bundled.lasso;
      for (const BundledLayer& l : bundled.layers) {
        const std::vector<float> tau = Floats({&l.tau});
        setup.weights->tau.insert(setup.weights->tau.end(), tau.begin(), tau.end());
      }
    }
  }
  return setups;
}

double BytesPerToken(const AttentionMechanism& mechanism, const AttentionOptions& options) {
  // Token by token, so that no prompt is held beside what it is turned into.
  constexpr int64_t kFar = int64_t{1} << 20;
  const int64_t bytes =
      mechanism.BoundBytes(options, {1, 2 * kFar, 1}) - mechanism.BoundBytes(options, {1, kFar, 1});
  return static_cast<double>(bytes) / kFar;
}

std::string StorageName(StorageType type) {
  static constexpr const char* kNames[] = {"float32", "bfloat16", "int8", "float8"};
  return kNames[static_cast<int>(type)];
}

absl::Status CheckHostWeights(StorageType type) {
  if (type != StorageType::kFloat8) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "dtype: float8 on the CPU, expected float32, bfloat16 or int8 (float8 needs a device)");
}

absl::StatusOr<std::unique_ptr<ModelRunner>> ModelRunner::Create(const std::string& model_directory,
                                                                 const EngineOptions& options,
                                                                 ProgressFn progress) {
  LK_ASSIGN_OR_RETURN(auto checkpoint, OpenCheckpoint(model_directory));
  std::unique_ptr<ModelRunner> runner(new ModelRunner());
  runner->pool_ = std::make_unique<ThreadPool>(ResolveThreads(options.n_threads));
  runner->max_rows_ = std::max<int64_t>(1, options.max_batch_tokens);

  runner->device_ = options.device;
  LK_RETURN_IF_ERROR(runner->LoadModel(checkpoint, std::move(progress), options));
  LK_RETURN_IF_ERROR(runner->MakeCaches(options));
  runner->profile_ = options.profile;
  runner->MakeMechanisms(*checkpoint);
  return runner;
}

absl::Status ModelRunner::LoadModel(std::shared_ptr<const Checkpoint> checkpoint,
                                    ProgressFn progress, const EngineOptions& options) {
  DecoderOptions load;
  load.weight_type = weight_type_ = ResolveStorage(options.dtype, *checkpoint);
  if (device_ == nullptr) LK_RETURN_IF_ERROR(CheckHostWeights(weight_type_));
  load.max_rows = max_rows_;
  if (progress) {
    load.progress = [&progress](int64_t done, int64_t total) { progress(done, total); };
  }
  geometry_ = GeometryOf(checkpoint->config, RowTypeOf(weight_type_));
  if (device_ == nullptr) {
    LK_ASSIGN_OR_RETURN(model_, Transformer::Load(std::move(checkpoint), load, *pool_));
  } else {
    LK_ASSIGN_OR_RETURN(auto model,
                        DeviceTransformer::Load(std::move(checkpoint), load, *pool_, *device_));
    device_model_ = model.get();
    model_ = std::move(model);
    LK_ASSIGN_OR_RETURN(device_sampler_, DeviceSampler::Create(*device_, config().vocab_size,
                                                               Decoder::kMaxLogitRows));
  }
  return absl::OkStatus();
}

absl::Status ModelRunner::MakeCaches(const EngineOptions& options) {
  const int64_t context = options.context_tokens > 0
                              ? std::min(options.context_tokens, config().context_tokens)
                              : config().context_tokens;
  const int64_t budget = CacheBudget(options, geometry_, context);
  const int64_t page_bytes = PageBytes(geometry_);
  LK_ASSIGN_OR_RETURN(cache_, Cache::Create(budget, page_bytes, device_.get()));
  if (device_ == nullptr) return absl::OkStatus();
  LK_ASSIGN_OR_RETURN(host_cache_, Cache::Create(budget, page_bytes));
  place_ = {device_.get(), host_cache_.get(), max_rows_};
  return absl::OkStatus();
}

int64_t ModelRunner::used_cache_bytes() const {
  return cache_->used_bytes() + (host_cache_ == nullptr ? 0 : host_cache_->used_bytes());
}

void ModelRunner::SetReclaimer(std::function<bool()> reclaim) {
  if (host_cache_ != nullptr) host_cache_->SetReclaimer(reclaim);
  cache_->SetReclaimer(std::move(reclaim));
}

absl::Status ModelRunner::health() const {
  return device_ == nullptr ? absl::OkStatus() : device_->status();
}

std::string ModelRunner::processor() const {
  return device_ == nullptr ? std::string(Kernels().name) : device_->name();
}

void ModelRunner::MakeMechanisms(const Checkpoint& checkpoint) {
  for (MechanismSetup& setup : SetUpMechanisms(checkpoint, geometry_.cache_type)) {
    auto mechanism = setup.Make(*cache_, *pool_, device_ == nullptr ? nullptr : &place_);
    if (mechanism == nullptr) continue;
    Lane& lane = mechanisms_[setup.id];
    lane.mechanism = std::move(mechanism);
    lane.weights = std::move(setup.weights);
    if (!setup.bundled.has_value()) continue;
    lane.weight_set = model_->set_of_bundled(*setup.bundled);
    lane.perplexity_ratio = checkpoint.mechanisms[*setup.bundled].perplexity_ratio;
  }
}

absl::StatusOr<AttentionMechanism*> ModelRunner::FindMechanism(Mechanism id) const {
  const auto it = mechanisms_.find(id);
  if (it != mechanisms_.end()) return it->second.mechanism.get();
  return absl::FailedPreconditionError(
      absl::StrCat("attention.mechanism: ", std::string(MechanismName(id)),
                   " needs weights that this model does not bring (lowkey.json)"));
}

absl::StatusOr<Selection> ModelRunner::Select(const SelectionRules& rules,
                                              const AttentionOptions& base,
                                              const RequestLengths& lengths,
                                              int64_t max_tokens) const {
  std::vector<SelectionCandidate> candidates;
  for (const auto& [id, lane] : mechanisms_) {
    const bool untrained =
        lane.weights == nullptr && id != Mechanism::kStandard && id != Mechanism::kAtp;
    SelectionCandidate candidate{lane.mechanism.get(), base, model_->work_per_row(lane.weight_set),
                                 lane.perplexity_ratio};
    candidate.options.mechanism = id;
    if (untrained || !lane.mechanism->CheckAvailable(candidate.options).ok()) continue;
    candidates.push_back(std::move(candidate));
  }
  return SelectMechanism(candidates, profile_, rules, lengths, max_tokens);
}

std::vector<MechanismInfo> ModelRunner::mechanisms() const {
  std::vector<MechanismInfo> infos;
  for (const auto& [id, lane] : mechanisms_) {
    AttentionOptions options;
    options.mechanism = id;
    if (!lane.mechanism->CheckAvailable(options).ok()) continue;
    infos.push_back({id, lane.mechanism->max_tokens(), BytesPerToken(*lane.mechanism, {id, {}, {}}),
                     lane.perplexity_ratio});
  }
  return infos;
}

void ModelRunner::Arrange(absl::Span<const Rows> rows) {
  tokens_.clear();
  positions_.clear();
  drawn_.clear();
  groups_.clear();
  int64_t n_rows = 0;
  for (const Rows& r : rows) n_rows += static_cast<int64_t>(r.tokens.size());
  row_of_.resize(n_rows);
  for (auto& [id, lane] : mechanisms_) lane.segments.clear();
  for (int64_t set = 0; set < model_->n_weight_sets(); ++set) {
    Decoder::Group group{set, 0, {}};
    int64_t caller_row = 0;
    for (const Rows& r : rows) {
      const auto n = static_cast<int64_t>(r.tokens.size());
      Lane& lane = mechanisms_.at(r.sequence->options.mechanism);
      if (lane.weight_set == set) {
        if (lane.segments.empty()) group.mechanisms.push_back(lane.mechanism.get());
        lane.segments.push_back({r.sequence, r.first_position, n, group.n_rows});
        group.n_rows += n;
        if (r.drawn.has_value()) {
          LK_CHECK(n == 1);
          drawn_.push_back({static_cast<int32_t>(tokens_.size()), static_cast<int32_t>(*r.drawn)});
        }
        for (int64_t i = 0; i < n; ++i) {
          row_of_[caller_row + i] = static_cast<int64_t>(tokens_.size());
          tokens_.push_back(r.tokens[i]);
          positions_.push_back(r.first_position + i);
        }
      }
      caller_row += n;
    }
    if (group.n_rows > 0) groups_.push_back(std::move(group));
  }
}

absl::Status ModelRunner::Compute(absl::Span<const Rows> rows, const Decoder::Observer& observer) {
  Arrange(rows);
  LK_CHECK(static_cast<int64_t>(tokens_.size()) <= max_rows_);
  for (auto& [id, lane] : mechanisms_) {
    if (lane.segments.empty()) continue;
    LK_RETURN_IF_ERROR(lane.mechanism->Plan(lane.segments));
  }
  LK_CHECK(drawn_.empty() || device_ != nullptr);
  if (device_ != nullptr) device_model_->TakeDrawn(device_sampler_->drawn(), drawn_);
  return model_->Forward(tokens_, positions_, groups_, observer);
}

void ModelRunner::Advance() {
  for (auto& [id, lane] : mechanisms_) {
    for (const Segment& s : lane.segments) lane.mechanism->Advance(*s.sequence, s.n_rows);
  }
}

absl::Status ModelRunner::Step(absl::Span<const Rows> rows, const Decoder::Observer& observer) {
  LK_RETURN_IF_ERROR(Compute(rows, observer));
  Advance();
  return absl::OkStatus();
}

absl::Status ModelRunner::Logits(absl::Span<const int64_t> rows,
                                 absl::FunctionRef<void(size_t, absl::Span<const float>)> consume) {
  std::vector<int64_t> model_rows;
  for (int64_t row : rows) model_rows.push_back(row_of_[row]);
  return LogitsOf(model_rows, consume);
}

absl::Status ModelRunner::LogitsOf(
    absl::Span<const int64_t> model_rows,
    absl::FunctionRef<void(size_t, absl::Span<const float>)> consume) {
  for (size_t begin = 0; begin < model_rows.size(); begin += Decoder::kMaxLogitRows) {
    const auto part = model_rows.subspan(begin, Decoder::kMaxLogitRows);
    LK_RETURN_IF_ERROR(model_->Logits(part));
    for (size_t i = 0; i < part.size(); ++i) {
      consume(begin + i, model_->logits_row(static_cast<int64_t>(i)));
    }
  }
  return absl::OkStatus();
}

bool ModelRunner::RunsAhead(const AttentionOptions& options) const {
  return device_ != nullptr && mechanism(options.mechanism).OnlyQueues(options);
}

absl::StatusOr<ModelRunner::Drawing> ModelRunner::QueueDraw(
    absl::Span<const int64_t> rows, absl::FunctionRef<RowRequest(size_t)> ask) {
  Drawing drawing;
  for (int64_t row : rows) drawing.rows_.push_back(row_of_[row]);
  if (device_ == nullptr) return drawing;
  const absl::Status queued = QueueDrawOnDevice(drawing, ask);
  drawing.tokens_ = device_sampler_->Fetch();  // what was not queued is not in the next step's way
  LK_RETURN_IF_ERROR(queued);
  return drawing;
}

void ModelRunner::Add(const RowRequest& request, int64_t logits_row) {
  for (const RowRequest::Draw& draw : request.draws) {
    device_sampler_->Add(*draw.sampler, logits_row, draw.uncounted);
  }
  if (request.given.has_value()) {
    device_sampler_->AddGiven(request.given->token, request.given->n_top, logits_row);
  }
}

absl::Status ModelRunner::QueueDrawOnDevice(Drawing& drawing,
                                            absl::FunctionRef<RowRequest(size_t)> ask) {
  const auto rows = absl::MakeConstSpan(drawing.rows_);
  for (size_t first = 0; first < rows.size(); first += Decoder::kMaxLogitRows) {
    const auto part = rows.subspan(first, Decoder::kMaxLogitRows);
    for (size_t i = 0; i < part.size(); ++i) {
      const RowRequest request = ask(first + i);
      Add(request, static_cast<int64_t>(i));
      drawing.n_tokens_.push_back(request.n_tokens());
    }
    LK_RETURN_IF_ERROR(
        device_sampler_->Queue(device_model_->QueueLogits(part), config().vocab_size));
  }
  return absl::OkStatus();
}

absl::Status ModelRunner::Collect(Drawing drawing,
                                  absl::FunctionRef<void(size_t, RowTokens&)> consume) {
  if (device_ == nullptr) {
    return LogitsOf(drawing.rows_, [&](size_t i, absl::Span<const float> logits) {
      HostRowTokens tokens(logits);
      consume(i, tokens);
    });
  }
  LK_ASSIGN_OR_RETURN(auto drawn, drawing.tokens_.Wait());
  auto rest = absl::MakeSpan(drawn);
  for (size_t i = 0; i < drawing.rows_.size(); ++i) {
    DrawnRowTokens tokens(rest.first(drawing.n_tokens_[i]));
    rest.remove_prefix(drawing.n_tokens_[i]);
    consume(i, tokens);
  }
  return absl::OkStatus();
}

}  // namespace lowkey
