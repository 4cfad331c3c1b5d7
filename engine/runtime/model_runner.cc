#include "engine/runtime/model_runner.h"

#include <algorithm>
#include <bit>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/attention/principal_codes.h"
#include "engine/base/status_macros.h"
#include "engine/config/attention_option_table.h"
#include "engine/model/weight_set.h"
#include "engine/runtime/model_setup.h"

namespace lowkey {

absl::StatusOr<std::unique_ptr<ModelRunner>> ModelRunner::Create(
    std::shared_ptr<const Checkpoint> checkpoint, const EngineOptions& options,
    ProgressFn progress) {
  std::unique_ptr<ModelRunner> runner(new ModelRunner());
  runner->pool_ = std::make_unique<ThreadPool>(ResolveThreads(options.n_threads));
  runner->place_ = Place::Make(options.device);
  runner->max_rows_ = std::max<int64_t>(1, options.max_batch_tokens);
  runner->SetProfile(options.profile);

  DecoderOptions load;
  const WeightStorage storage = ResolveStorage(options, *checkpoint);
  load.weight_type = runner->weight_type_ = storage.type;
  load.keeps_codes = storage.keeps_codes;
  runner->weights_name_ = WeightsName(*checkpoint, storage);
  load.max_rows = runner->max_rows_;
  load.max_logit_rows = std::clamp<int64_t>(options.max_running_seqs, 64, 512);
  if (progress) {
    load.progress = [&progress](int64_t done, int64_t total) { progress(done, total); };
  }
  LK_RETURN_IF_ERROR(runner->place_->Load(checkpoint, load, *runner->pool_));

  runner->geometry_ = GeometryOf(checkpoint->config, RowTypeOf(load.weight_type));
  const int64_t budget = CacheBudget(options, runner->place_->spare_bytes(0), runner->geometry_,
                                     ContextTokens(options, checkpoint->config));
  if (options.codes != nullptr) {
    LK_RETURN_IF_ERROR(options.codes->CheckFits(runner->geometry_));
    runner->codes_ = options.codes;
  }
  LK_RETURN_IF_ERROR(runner->place_->MakeCaches(runner->geometry_, budget, runner->max_rows_));
  runner->MakeMechanisms(*checkpoint);
  runner->measured_ = checkpoint->measured;
  runner->max_perplexity_ratio_ = checkpoint->max_perplexity_ratio;
  return runner;
}

int64_t ModelRunner::weight_bytes() const {
  return place_->decoder().weight_bytes() + (codes_ != nullptr ? codes_->size_bytes() : 0);
}

void ModelRunner::MakeMechanisms(const Checkpoint& checkpoint) {
  for (MechanismSetup& setup : SetUpMechanisms(checkpoint, geometry_.cache_type)) {
    const bool reads_codes = setup.id == Mechanism::kStandard || setup.id == Mechanism::kAtp;
    if (reads_codes) setup.codes = codes_.get();
    auto mechanism = setup.Make(*place_, *pool_);
    if (mechanism == nullptr) continue;
    RunnableMechanism& runnable = mechanisms_[setup.id];
    runnable.mechanism = std::move(mechanism);
    runnable.weights = std::move(setup.weights);
    if (!setup.bundled.has_value()) continue;
    runnable.weight_set = place_->decoder().set_of_bundled(*setup.bundled);
    runnable.perplexity_ratios = checkpoint.mechanisms[*setup.bundled].perplexity_ratios;
  }
}

absl::StatusOr<AttentionMechanism*> ModelRunner::FindMechanism(Mechanism id) const {
  const auto it = mechanisms_.find(id);
  if (it != mechanisms_.end()) return it->second.mechanism.get();
  return MissingWeights(id);
}

bool ModelRunner::IsApproximate(const AttentionOptions& options) const {
  const auto it = mechanisms_.find(options.mechanism);
  return ApproximatesWeights(options, it == mechanisms_.end() ? nullptr : it->second.weights.get());
}

AttentionOptions ModelRunner::Resolve(const AttentionOptions& options) const {
  const auto it = mechanisms_.find(options.mechanism);
  return it == mechanisms_.end() ? options : it->second.mechanism->Resolve(options);
}

std::vector<SelectionCandidate> ModelRunner::Candidates(const AttentionOptions& base) const {
  std::vector<SelectionCandidate> candidates;
  for (const auto& [id, runnable] : mechanisms_) {
    const bool untrained =
        runnable.weights == nullptr && id != Mechanism::kStandard && id != Mechanism::kAtp;
    if (untrained) continue;
    AttentionOptions wanted = base;
    wanted.mechanism = id;
    std::vector<AttentionOptions> variants;
    const AttentionMechanism& mechanism = *runnable.mechanism;
    const auto add = [&](const AttentionOptions& options) {
      const AttentionOptions resolved = mechanism.Resolve(options);
      const std::string label = AttentionLabel(resolved);
      const bool is_new = std::none_of(
          variants.begin(), variants.end(),
          [&](const AttentionOptions& other) { return AttentionLabel(other) == label; });
      if (is_new) variants.push_back(resolved);
    };
    add(wanted);
    const std::vector<AttentionOptions> equal = EqualOptions(id);
    if (AttentionLabel(wanted) == AttentionLabel(equal[0])) {
      for (const AttentionOptions& options : equal) add(options);
      for (const MeasuredQuality& m : measured_) {
        if (m.options.mechanism == id && !m.ratios.empty()) add(m.options);
      }
    }
    for (const AttentionOptions& options : variants) {
      if (!runnable.mechanism->CheckAvailable(options).ok()) continue;
      SelectionCandidate& c = candidates.emplace_back();
      c.mechanism = runnable.mechanism.get();
      c.options = options;
      c.projection_work = place_->decoder().work_per_row(runnable.weight_set);
      c.perplexity_ratios = RatiosOf(options);
      c.is_approximate = IsApproximate(options);
    }
  }
  return candidates;
}

PerplexityRatios ModelRunner::RatiosOf(const AttentionOptions& options) const {
  const std::string label = AttentionLabel(options);
  for (const MeasuredQuality& m : measured_) {
    if (AttentionLabel(m.options) == label && !m.ratios.empty()) return m.ratios;
  }
  // Options of atp change its output. Standard has no ratio in a bundle, so that its quantized
  // caches have none unless they were measured.
  if (options.mechanism == Mechanism::kAtp) return {};
  // A bundle's ratio holds for taylorshift's forms, which differ in rounding alone, and for the
  // variant that the weights were trained for: normalized where the bundle names none.
  const RunnableMechanism& runnable = mechanisms_.at(options.mechanism);
  const bool is_plain = options.mechanism == Mechanism::kTaylorShift &&
                        options.taylorshift.variant == TaylorVariant::kPlain;
  if (is_plain && !(runnable.weights != nullptr &&
                    runnable.weights->trained_variant == TaylorVariant::kPlain)) {
    return {};
  }
  return runnable.perplexity_ratios;
}

absl::StatusOr<Selection> ModelRunner::Select(SelectionRules rules, const AttentionOptions& base,
                                              const RequestLengths& lengths,
                                              int64_t max_tokens) const {
  if (!rules.max_perplexity_ratio.has_value()) rules.max_perplexity_ratio = max_perplexity_ratio_;
  return SelectMechanism(Candidates(base), *profile(), rules, lengths, max_tokens);
}

CostTable ModelRunner::Costs(const CostQuery& query, int64_t context_tokens) const {
  return PredictCosts(Candidates(query.base), *profile(), query, max_perplexity_ratio_,
                      context_tokens);
}

absl::StatusOr<std::vector<CacheBytes>> ModelRunner::BytesByLength(
    const AttentionOptions& wanted, absl::Span<const int64_t> lengths) const {
  LK_ASSIGN_OR_RETURN(const AttentionMechanism* mechanism, FindMechanism(wanted.mechanism));
  const AttentionOptions options = mechanism->Resolve(wanted);
  LK_RETURN_IF_ERROR(mechanism->CheckAvailable(options));
  std::vector<CacheBytes> bytes;
  for (const int64_t n : lengths) {
    bytes.push_back({mechanism->HeldBytes(options, n), mechanism->ReadBytes(options, n)});
  }
  return bytes;
}

std::shared_ptr<const SelectionProfile> ModelRunner::profile() const {
  absl::MutexLock lock(&profile_mutex_);
  return profile_;
}

void ModelRunner::SetProfile(SelectionProfile profile) {
  auto shared = std::make_shared<const SelectionProfile>(std::move(profile));
  absl::MutexLock lock(&profile_mutex_);
  profile_ = std::move(shared);
}

std::vector<MechanismInfo> ModelRunner::mechanisms() const {
  std::vector<MechanismInfo> infos;
  for (const auto& [id, runnable] : mechanisms_) {
    AttentionOptions options;
    options.mechanism = id;
    options = runnable.mechanism->Resolve(options);
    if (!runnable.mechanism->CheckAvailable(options).ok()) continue;
    infos.push_back({id, runnable.mechanism->max_tokens(),
                     BytesPerToken(*runnable.mechanism, options), runnable.perplexity_ratios,
                     IsApproximate(options)});
    for (const MeasuredQuality& m : measured_) {
      if (m.options.mechanism == id) infos.back().measured.push_back(m);
    }
  }
  return infos;
}

void ModelRunner::Append(const Rows& rows, RunnableMechanism& mechanism, Decoder::Group& group) {
  const auto n = static_cast<int64_t>(rows.tokens.size());
  if (mechanism.segments.empty()) group.mechanisms.push_back(mechanism.mechanism.get());
  mechanism.segments.push_back(
      {rows.sequence, rows.first_position, n, group.n_rows, rows.n_drafts});
  group.n_rows += n;
  if (rows.drawn.has_value()) {
    LK_CHECK(n == 1);
    drawn_.push_back({static_cast<int32_t>(tokens_.size()), static_cast<int32_t>(*rows.drawn)});
  }
  tokens_.insert(tokens_.end(), rows.tokens.begin(), rows.tokens.end());
  for (int64_t i = 0; i < n; ++i) positions_.push_back(rows.first_position + i);
}

// Rounds the rows of a step in which every sequence has one up to one of few numbers, so that a
// device repeats the work of other steps. The added rows belong to no sequence.
void ModelRunner::PadRows(Decoder::Group& group) {
  constexpr int64_t kFew = 8, kMany = 16;
  const auto n = static_cast<size_t>(group.n_rows);
  const size_t padded = n <= kFew ? std::bit_ceil(n) : (n + kMany - 1) / kMany * kMany;
  const size_t n_rows = tokens_.size() + padded - n;
  if (n == 0 || n_rows > static_cast<size_t>(max_rows_)) return;
  tokens_.resize(n_rows, 0);
  positions_.resize(n_rows, 0);
  group.n_rows = static_cast<int64_t>(padded);
}

void ModelRunner::Arrange(absl::Span<const Rows> rows) {
  tokens_.clear();
  positions_.clear();
  drawn_.clear();
  groups_.clear();
  row_of_.clear();
  for (const Rows& r : rows) row_of_.resize(row_of_.size() + r.tokens.size());
  for (auto& [id, mechanism] : mechanisms_) mechanism.segments.clear();
  for (int64_t set = 0; set < place_->decoder().n_weight_sets(); ++set) {
    Decoder::Group group{set, 0, {}};
    auto caller_row = row_of_.begin();
    for (const Rows& r : rows) {
      RunnableMechanism& mechanism = mechanisms_.at(r.sequence->options.mechanism);
      const auto end = caller_row + static_cast<int64_t>(r.tokens.size());
      if (mechanism.weight_set == set) {
        std::iota(caller_row, end, static_cast<int64_t>(tokens_.size()));
        Append(r, mechanism, group);
      }
      caller_row = end;
    }
    if (place_->device_place() != nullptr && rows.size() == row_of_.size()) PadRows(group);
    if (group.n_rows > 0) groups_.push_back(std::move(group));
  }
}

absl::Status ModelRunner::Plan() {
  for (auto& [id, runnable] : mechanisms_) {
    if (runnable.segments.empty()) continue;
    LK_RETURN_IF_ERROR(runnable.mechanism->Plan(runnable.segments));
  }
  return absl::OkStatus();
}

absl::Status ModelRunner::Compute(absl::Span<const Rows> rows) {
  Arrange(rows);
  LK_CHECK(static_cast<int64_t>(tokens_.size()) <= max_rows_);
  LK_RETURN_IF_ERROR(place_->cache().FitIn([this] { return Plan(); }));
  place_->TakeDrawn(drawn_);
  return place_->decoder().Forward(tokens_, positions_, groups_);
}

void ModelRunner::Advance() {
  for (auto& [id, runnable] : mechanisms_) {
    for (const Segment& s : runnable.segments) {
      runnable.mechanism->Advance(*s.sequence, s.n_rows - s.n_drafts);
    }
  }
}

absl::Status ModelRunner::Step(absl::Span<const Rows> rows) {
  LK_RETURN_IF_ERROR(Compute(rows));
  Advance();
  return absl::OkStatus();
}

std::vector<int64_t> ModelRunner::DecoderRows(absl::Span<const int64_t> rows) const {
  std::vector<int64_t> decoder_rows;
  for (int64_t row : rows) decoder_rows.push_back(row_of_[row]);
  return decoder_rows;
}

absl::Status ModelRunner::Logits(absl::Span<const int64_t> rows,
                                 absl::FunctionRef<void(size_t, absl::Span<const float>)> consume) {
  return EachLogits(place_->decoder(), DecoderRows(rows), consume);
}

absl::StatusOr<Drawing> ModelRunner::QueueDraw(absl::Span<const int64_t> rows,
                                               absl::FunctionRef<RowRequest(size_t)> ask) {
  Drawing drawing;
  drawing.rows = DecoderRows(rows);
  LK_RETURN_IF_ERROR(place_->QueueDraw(drawing, ask));
  return drawing;
}

}  // namespace lowkey
