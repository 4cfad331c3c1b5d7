#include "engine/runtime/model_setup.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/machine.h"
#include "engine/model/rope.h"
#include "engine/model/weight_set.h"

namespace lowkey {
namespace {
constexpr int64_t kDefaultFullContexts = 64;
}  // namespace

int64_t ContextTokens(const EngineOptions& options, const ModelConfig& config) {
  return options.context_tokens > 0 ? std::min(options.context_tokens, config.context_tokens)
                                    : config.context_tokens;
}

int64_t CacheBudget(const EngineOptions& options, int64_t spare_bytes,
                    const AttentionGeometry& geometry, int64_t context_tokens) {
  if (options.cache_bytes > 0) return options.cache_bytes;
  const int64_t pages = (context_tokens + kPageTokens - 1) / kPageTokens;
  const int64_t useful = kDefaultFullContexts * pages * PageBytes(geometry);
  return std::max(PageBytes(geometry), std::min(spare_bytes, useful));
}

int ResolveThreads(int n_threads) { return n_threads > 0 ? n_threads : AvailableCores(); }

WeightStorage ResolveStorage(const EngineOptions& options, const Checkpoint& checkpoint) {
  // In the order of Dtype, after kAuto.
  constexpr StorageType kTypes[] = {StorageType::kFloat32, StorageType::kBFloat16,
                                    StorageType::kInt8, StorageType::kFloat8};
  if (options.dtype != EngineOptions::Dtype::kAuto) {
    return {kTypes[static_cast<int>(options.dtype) - 1]};
  }
  const bool wide = checkpoint.layers[0].q_proj.dtype == DType::kF32;
  return {wide ? StorageType::kFloat32 : StorageType::kBFloat16, options.device == nullptr};
}

void EachMatrix(const Checkpoint& checkpoint, absl::FunctionRef<void(const TensorView&)> body) {
  body(checkpoint.lm_head);
  for (const LayerTensors& l : checkpoint.layers) {
    for (const TensorView* t :
         {&l.q_proj, &l.k_proj, &l.v_proj, &l.o_proj, &l.gate_proj, &l.up_proj, &l.down_proj}) {
      body(*t);
    }
  }
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
        const std::vector<float> near = Floats({&l.tau_window});
        setup.weights->tau_window.insert(setup.weights->tau_window.end(), near.begin(), near.end());
      }
      setup.weights->window_tokens = bundled.window_tokens;
      setup.weights->trained_variant = bundled.variant;
    }
  }
  return setups;
}

double BytesPerToken(const AttentionMechanism& mechanism, const AttentionOptions& options) {
  // The sequence grows token by token: no prompt is held beside its compressed form.
  constexpr int64_t kFar = int64_t{1} << 20;
  const int64_t bytes =
      mechanism.BoundBytes(options, {1, 2 * kFar, 1}) - mechanism.BoundBytes(options, {1, kFar, 1});
  return static_cast<double>(bytes) / kFar;
}

std::string StorageName(StorageType type) {
  static constexpr const char* kNames[] = {"float32", "bfloat16", "int8", "float8"};
  return kNames[static_cast<int>(type)];
}

std::string WeightsName(const Checkpoint& checkpoint, const WeightStorage& storage) {
  std::map<std::string, int64_t> sizes;
  EachMatrix(checkpoint, [&](const TensorView& t) {
    const WeightForm form = FormOf(t, storage);
    sizes[form.codes.has_value() ? std::string(CodeFormatName(*form.codes))
                                 : StorageName(form.type)] += t.size();
  });
  return std::max_element(sizes.begin(), sizes.end(),
                          [](const auto& a, const auto& b) { return a.second < b.second; })
      ->first;
}

absl::Status MissingWeights(Mechanism id) {
  return absl::FailedPreconditionError(
      absl::StrCat("attention.mechanism: ", std::string(MechanismName(id)),
                   " needs weights that this model does not bring (lowkey.json)"));
}

bool ApproximatesWeights(const AttentionOptions& options, const MechanismWeights* weights) {
  const bool is_trained = options.mechanism == Mechanism::kTaylorShift && weights != nullptr;
  return IsApproximate(options) && !is_trained;
}

}  // namespace lowkey
