#include "engine/runtime/inspect.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "engine/attention/attention.h"
#include "engine/attention/slices/input.h"
#include "engine/base/status_macros.h"
#include "engine/config/limits.h"
#include "engine/config/projections.h"
#include "engine/lowrank/basis.h"
#include "engine/model/rope.h"
#include "engine/model/weight_set.h"
#include "engine/runtime/model_memory.h"
#include "engine/runtime/model_runner.h"
#include "engine/runtime/model_setup.h"
#include "engine/runtime/request_check.h"

namespace lowkey {
namespace {

MechanismMemory MemoryOf(const MechanismSetup& setup, const AttentionMechanism& mechanism,
                         const AttentionOptions& attention, int64_t context_tokens) {
  constexpr int64_t kFar = int64_t{1} << 20;
  MechanismMemory m;
  m.attention = attention;
  m.exact = !ApproximatesWeights(attention, setup.weights.get());
  m.bytes_per_token = BytesPerToken(mechanism, attention);
  m.fixed_bytes = mechanism.HeldBytes(attention, kFar) -
                  static_cast<int64_t>(m.bytes_per_token * static_cast<double>(kFar));
  m.bytes_full_context = mechanism.HeldBytes(m.attention, context_tokens);
  return m;
}

// Returns the options of a mechanism whose caches differ in size.
std::vector<AttentionOptions> VariantsOf(Mechanism id) {
  std::vector<AttentionOptions> variants = EqualOptions(id);
  if (id != Mechanism::kStandard) return variants;
  for (CacheStorage storage :
       {CacheStorage::kInt8, CacheStorage::kInt4, CacheStorage::kInt3, CacheStorage::kInt2}) {
    variants.emplace_back().standard.storage = storage;
  }
  return variants;
}

absl::StatusOr<std::unique_ptr<ModelRunner>> OpenFor(std::shared_ptr<const Checkpoint> checkpoint,
                                                     absl::Span<const int32_t> tokens,
                                                     const EngineOptions& options) {
  LK_ASSIGN_OR_RETURN(auto runner, ModelRunner::Create(std::move(checkpoint), options, nullptr));
  const ModelConfig& config = runner->config();
  if (tokens.empty()) return absl::InvalidArgumentError("tokens: 0, expected at least 1");
  if (static_cast<int64_t>(tokens.size()) > config.context_tokens) {
    return absl::OutOfRangeError(absl::StrCat(
        "tokens: ", tokens.size(), ", expected at most the context of ", config.context_tokens));
  }
  LK_RETURN_IF_ERROR(CheckTokens("tokens", tokens, config.vocab_size));
  return runner;
}

absl::Status CheckAttendInputs(const AttendInputs& in) {
  LK_RETURN_IF_ERROR(CheckRange("n_tokens", in.n_tokens, 1, int64_t{1} << 24));
  LK_RETURN_IF_ERROR(CheckRange("n_heads", in.n_heads, 1, 1024));
  LK_RETURN_IF_ERROR(CheckRange("n_kv_heads", in.n_kv_heads, 1, in.n_heads));
  LK_RETURN_IF_ERROR(CheckRange("head_dim", in.head_dim, 1, 512));
  LK_RETURN_IF_ERROR(CheckRange("chunk_tokens", in.chunk_tokens, 1, int64_t{1} << 24));
  LK_RETURN_IF_ERROR(CheckRange("n_threads", in.n_threads, 1, 1024));
  LK_RETURN_IF_ERROR(ValidateAttentionOptions(in.attention));
  if (in.n_heads % in.n_kv_heads != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "n_heads: ", in.n_heads, ", expected a multiple of n_kv_heads = ", in.n_kv_heads));
  }
  const auto sized = [&](absl::string_view name, absl::Span<const float> x, int64_t heads) {
    const int64_t expected = heads * in.n_tokens * in.head_dim;
    if (static_cast<int64_t>(x.size()) == expected) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat(name, ": ", x.size(), " elements, expected ", expected));
  };
  if (in.over != Mechanism::kEfficient && in.over != Mechanism::kOptimised &&
      in.over != Mechanism::kStandard) {
    return absl::InvalidArgumentError(absl::StrCat("over: ", std::string(MechanismName(in.over)),
                                                   ", expected efficient, optimised or standard"));
  }
  const ProjectionUse use = ProjectionsOf(in.attention.mechanism, in.over);
  const bool has_input_basis =
      in.attention.mechanism == Mechanism::kAtp && in.attention.atp.basis == AtpBasis::kInput;
  LK_RETURN_IF_ERROR(sized("q", in.q, use.Has(Projection::kQ) ? in.n_heads : 0));
  LK_RETURN_IF_ERROR(sized("k", in.k, use.Has(Projection::kK) ? in.n_kv_heads : 0));
  if (use.slices_input || has_input_basis) LK_RETURN_IF_ERROR(sized("x", in.x, in.n_heads));
  if (!in.tau.empty() && static_cast<int64_t>(in.tau.size()) != in.n_heads) {
    return absl::InvalidArgumentError(
        absl::StrCat("tau: ", in.tau.size(), " elements, expected ", in.n_heads));
  }
  return sized("v", in.v, use.Has(Projection::kV) ? in.n_kv_heads : 0);
}

// Copies [n_heads, n, head_dim] into columns `at` of rows [n, ld].
void ToRows(absl::Span<const float> x, int64_t n_heads, const AttendInputs& in, int64_t ld,
            float* at) {
  for (int64_t h = 0; h < n_heads; ++h) {
    for (int64_t i = 0; i < in.n_tokens; ++i) {
      std::copy_n(x.data() + (h * in.n_tokens + i) * in.head_dim, in.head_dim,
                  at + i * ld + h * in.head_dim);
    }
  }
}

// Returns the largest l with l (l + 1) / 2 <= size.
int64_t TriangleRows(int64_t size) {
  int64_t rows = 0;
  while ((rows + 1) * (rows + 2) / 2 <= size) ++rows;
  return rows;
}

MechanismWeights WeightsOf(const AttendInputs& in) {
  MechanismWeights weights;
  weights.tau.assign(in.tau.begin(), in.tau.end());
  ModelConfig rope;
  rope.head_dim = static_cast<int32_t>(in.head_dim);
  rope.rope_theta = in.rope_theta;
  weights.inverse_frequencies = RopeInverseFrequencies(rope);
  if (in.rope_theta <= 0) std::fill_n(weights.inverse_frequencies.begin(), in.head_dim / 2, 0.0);
  weights.over = in.over;
  weights.alignment_tokens = TriangleRows(static_cast<int64_t>(in.alignment.size()));
  TensorView view;
  view.shape = {static_cast<int64_t>(in.alignment.size())};
  view.data = reinterpret_cast<const std::byte*>(in.alignment.data());
  weights.alignment = {view};
  return weights;
}

// Runs a one-layer sequence through its mechanism in chunks; fills all of `out` but the rows.
absl::Status RunAttend(const AttendInputs& in, const AttentionGeometry& g, const LayerRows& all,
                       Place& place, AttendOutputs& out) {
  ThreadPool pool(in.n_threads);
  const int64_t n_prompt = in.n_prompt_tokens > 0 ? in.n_prompt_tokens : in.n_tokens;
  const int64_t chunk = std::min(in.chunk_tokens, in.n_tokens);
  const MechanismWeights weights = WeightsOf(in);
  AttentionContext context{g, nullptr, &pool, &weights};
  const auto unbound = MakeMechanism(in.attention.mechanism, context);
  if (in.n_tokens > unbound->max_tokens().value_or(in.n_tokens)) {
    return absl::OutOfRangeError(absl::StrCat("n: ", in.n_tokens, " tokens, expected at most ",
                                              *unbound->max_tokens(), ", the rows of wa"));
  }
  const AttentionOptions attention = unbound->Resolve(in.attention);
  const int64_t bound = unbound->BoundBytes(attention, {n_prompt, in.n_tokens, chunk});
  LK_RETURN_IF_ERROR(place.MakeCaches(g, std::max(bound, PageBytes(g)), in.n_tokens));
  context.cache = &place.cache();
  context.place = place.device_place();
  const auto mechanism = MakeMechanism(in.attention.mechanism, context);
  LK_RETURN_IF_ERROR(mechanism->CheckAvailable(attention));
  SequenceCache sequence;
  sequence.options = attention;
  sequence.n_prompt_tokens = n_prompt;
  const SequenceCache* const sequences[] = {&sequence};
  out.rank = mechanism->Report(sequences).rank;
  out.standard_cache_bytes = (in.n_tokens + kPageTokens - 1) / kPageTokens * PageBytes(g);
  for (int64_t at = 0; at < in.n_tokens;) {
    const int64_t end = at < n_prompt ? std::min(n_prompt, in.n_tokens) : in.n_tokens;
    const Segment segment{&sequence, at, std::min(chunk, end - at), at};
    LK_RETURN_IF_ERROR(place.cache().FitIn([&] { return mechanism->Plan({&segment, 1}); }));
    mechanism->Attend(all);
    mechanism->Advance(sequence, segment.n_rows);
    at += segment.n_rows;
  }
  LK_RETURN_IF_ERROR(place.Wait());  // queued work still reads the pages
  out.cache_bytes = place.used_cache_bytes();
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<ModelSummary> SummarizeModel(const Checkpoint& checkpoint,
                                            const EngineOptions& options) {
  const WeightStorage storage = ResolveStorage(options, checkpoint);
  ModelSummary summary;
  summary.config = checkpoint.config;
  summary.n_parameters = checkpoint.n_parameters;
  summary.file_bytes = checkpoint.file_bytes;
  summary.checkpoint_dtype = std::string(DTypeName(checkpoint.layers[0].q_proj.dtype));
  const ModelMemory memory = PredictMemory(checkpoint, options);
  summary.weight_bytes = memory.weight_bytes();
  summary.step_bytes = memory.step_bytes;
  summary.cache_bytes = memory.cache_bytes;
  summary.total_bytes = memory.total_bytes();
  summary.dtype = WeightsName(checkpoint, storage);
  const AttentionGeometry geometry = GeometryOf(checkpoint.config, RowTypeOf(storage.type));
  const int64_t context = checkpoint.config.context_tokens;
  ThreadPool pool(1);
  const std::unique_ptr<Place> host = Place::Make(nullptr);
  LK_RETURN_IF_ERROR(host->MakeCaches(geometry, PageBytes(geometry), options.max_batch_tokens));
  for (const MechanismSetup& setup : SetUpMechanisms(checkpoint, geometry.cache_type)) {
    const auto mechanism = setup.Make(*host, pool);
    if (mechanism == nullptr) continue;
    const int64_t longest = std::min(context, mechanism->max_tokens().value_or(context));
    for (const AttentionOptions& variant : VariantsOf(setup.id)) {
      const AttentionOptions attention = mechanism->Resolve(variant);
      if (!mechanism->CheckAvailable(attention).ok()) continue;
      MechanismMemory& memory =
          summary.mechanisms.emplace_back(MemoryOf(setup, *mechanism, attention, longest));
      memory.n_full_sequences = summary.cache_bytes / memory.bytes_full_context;
      memory.score_dim = setup.geometry.score_dim;
      if (setup.weights != nullptr) memory.window_tokens = setup.weights->window_tokens;
    }
  }
  return summary;
}

absl::StatusOr<std::vector<float>> ComputeLogits(std::shared_ptr<const Checkpoint> checkpoint,
                                                 absl::Span<const int32_t> tokens,
                                                 const LogitsOptions& options) {
  LK_RETURN_IF_ERROR(ValidateAttentionOptions(options.attention));
  EngineOptions engine = options.engine;
  engine.max_batch_tokens = std::max(1, options.chunk_tokens);
  LK_ASSIGN_OR_RETURN(auto runner, OpenFor(std::move(checkpoint), tokens, engine));
  LK_RETURN_IF_ERROR(CheckRange("prompt tokens", options.n_prompt_tokens, 0,
                                static_cast<int64_t>(tokens.size()) - 1));
  const auto first = static_cast<size_t>(options.n_prompt_tokens);  // whose logits are returned
  const size_t n_prompt = first > 0 ? first : tokens.size();
  LK_ASSIGN_OR_RETURN(const AttentionMechanism* mechanism,
                      runner->FindMechanism(options.attention.mechanism));
  SequenceCache sequence;
  sequence.options = mechanism->Resolve(options.attention);
  LK_RETURN_IF_ERROR(mechanism->CheckAvailable(sequence.options));
  sequence.n_prompt_tokens = static_cast<int64_t>(n_prompt);
  const int64_t vocab = runner->config().vocab_size;
  std::vector<float> out((tokens.size() - first) * vocab);
  const auto block = static_cast<size_t>(
      mechanism->prompt_block(sequence.options).value_or(static_cast<int64_t>(tokens.size())));
  absl::Span<const int32_t> chunk;
  for (size_t at = 0; at < tokens.size(); at += chunk.size()) {
    const size_t most = at < n_prompt ? std::min(block - at % block, n_prompt - at) : 1;
    chunk = tokens.subspan(at, std::min<size_t>(engine.max_batch_tokens, most));
    const ModelRunner::Rows rows{&sequence, static_cast<int64_t>(at), chunk};
    LK_RETURN_IF_ERROR(runner->Step({&rows, 1}));
    if (at < first) continue;
    std::vector<int64_t> wanted(chunk.size());
    for (size_t i = 0; i < wanted.size(); ++i) wanted[i] = static_cast<int64_t>(i);
    LK_RETURN_IF_ERROR(runner->Logits(wanted, [&](size_t i, absl::Span<const float> logits) {
      std::copy(logits.begin(), logits.end(), out.begin() + (at + i - first) * vocab);
    }));
  }
  return out;
}

absl::StatusOr<std::vector<LayerRank>> MeasureLowRankness(
    std::shared_ptr<const Checkpoint> checkpoint, absl::Span<const int32_t> tokens,
    const EngineOptions& options) {
  const int64_t dim = checkpoint->config.hidden_dim;
  const auto used = tokens.subspan(0, std::min<size_t>(tokens.size(), dim));
  EngineOptions engine = options;
  engine.max_batch_tokens = std::max<int32_t>(1, static_cast<int32_t>(used.size()));
  if (engine.device != nullptr) engine.dtype = EngineOptions::Dtype::kAuto;
  engine.device = nullptr;
  LK_ASSIGN_OR_RETURN(auto runner, OpenFor(std::move(checkpoint), used, engine));
  SequenceCache sequence;
  sequence.n_prompt_tokens = static_cast<int64_t>(used.size());
  std::vector<LayerRank> out;
  const auto observe = [&](int64_t layer, LinearInput input, const float* x, int64_t ld,
                           int64_t n_rows) {
    if (input != LinearInput::kQkv) return;
    LayerRank r;
    r.layer = static_cast<int32_t>(layer);
    r.entropy_rank = SvdEntropyRank(SingularValues({x, n_rows, dim, ld}));
    r.ratio = static_cast<double>(r.entropy_rank) / static_cast<double>(n_rows);
    out.push_back(r);
  };
  const ModelRunner::Rows rows{&sequence, 0, used};
  LK_RETURN_IF_ERROR(runner->Observe(observe));
  LK_RETURN_IF_ERROR(runner->Step({&rows, 1}));
  return out;
}

absl::StatusOr<AttendOutputs> Attend(const AttendInputs& in) {
  LK_RETURN_IF_ERROR(CheckAttendInputs(in));
  const StorageType type = in.cache_dtype == EngineOptions::Dtype::kBFloat16
                               ? StorageType::kBFloat16
                               : StorageType::kFloat32;
  const AttentionGeometry g{1, in.n_heads, in.n_kv_heads, in.head_dim, std::nullopt, type};
  const int64_t q_dim = in.n_heads * in.head_dim, kv_dim = in.n_kv_heads * in.head_dim;
  const int64_t ld = q_dim + 2 * kv_dim;
  std::vector<float> rows(in.n_tokens * ld + in.x.size()), attended(in.n_tokens * q_dim);
  if (!in.q.empty()) ToRows(in.q, in.n_heads, in, ld, rows.data());
  if (!in.k.empty()) ToRows(in.k, in.n_kv_heads, in, ld, rows.data() + q_dim);
  if (!in.v.empty()) ToRows(in.v, in.n_kv_heads, in, ld, rows.data() + q_dim + kv_dim);
  const ProjectionUse use = ProjectionsOf(in.attention.mechanism, in.over);
  const std::vector<double> frequencies = WeightsOf(in).inverse_frequencies;
  for (int64_t i = 0; use.slices_input && i < in.n_tokens; ++i) {
    TakeSlices(g, use, frequencies, i, in.x.data() + i * q_dim, rows.data() + i * ld);
  }
  std::copy(in.x.begin(), in.x.end(), rows.begin() + in.n_tokens * ld);
  const std::unique_ptr<Place> place = Place::Make(in.device);
  LK_ASSIGN_OR_RETURN(const Buffer held, place->Hold(rows));
  LK_ASSIGN_OR_RETURN(Buffer results, place->Hold(attended));
  const float* base = held.as<float>();
  AttendOutputs out;
  const LayerRows all = {.x = in.x.empty() ? nullptr : base + in.n_tokens * ld,
                         .ld_x = q_dim,
                         .q = base,
                         .k = base + q_dim,
                         .v = base + q_dim + kv_dim,
                         .ld_qkv = ld,
                         .out = results.as<float>(),
                         .ld_out = q_dim};
  LK_RETURN_IF_ERROR(RunAttend(in, g, all, *place, out));
  LK_RETURN_IF_ERROR(place->Fetch(results, absl::MakeSpan(attended)));
  out.out.resize(in.n_heads * in.n_tokens * in.head_dim);
  for (int64_t h = 0; h < in.n_heads; ++h) {
    for (int64_t i = 0; i < in.n_tokens; ++i) {
      std::copy_n(attended.data() + i * q_dim + h * in.head_dim, in.head_dim,
                  out.out.data() + (h * in.n_tokens + i) * in.head_dim);
    }
  }
  return out;
}

}  // namespace lowkey
