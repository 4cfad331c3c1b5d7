#ifndef LOWKEY_TESTS_ENGINE_ATTENTION_CONTRACT_CASES_H_
#define LOWKEY_TESTS_ENGINE_ATTENTION_CONTRACT_CASES_H_

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/engine/attention/attention_testing.h"
#include "tests/engine/attention/toy_mechanism.h"

namespace lowkey {

// One mechanism with its options, on which attention_test.cc tries the contract.
struct ContractCase {
  std::string name;
  AttentionOptions options;
  std::optional<int64_t> n_prompt_tokens;
  std::optional<int64_t> sliding_window;
  StorageType type = StorageType::kFloat32;
  Mechanism over = Mechanism::kEfficient;  // super's
  MechanismMaker make = nullptr;
  std::optional<int64_t> score_dim = {};  // taylorshift's
  int64_t window_tokens = 0;
};

// TaylorShift with keys of their own size and a window.
inline ContractCase Narrow(std::string name, const AttentionOptions& options, int64_t score_dim,
                           int64_t window_tokens) {
  ContractCase c{std::move(name), options, {}, {}};
  c.score_dim = score_dim;
  c.window_tokens = window_tokens;
  return c;
}

inline std::unique_ptr<AttentionMechanism> MakeToy(const AttentionContext& context) {
  return std::make_unique<PageMeanAttention>(context);
}

inline AttentionOptions Of(Mechanism mechanism) {
  AttentionOptions options;
  options.mechanism = mechanism;
  return options;
}

inline AtpOptions Blocks64(AtpBasis basis, AtpPrefill prefill, int32_t sinks,
                           int32_t window_blocks) {
  return {RankFixed{8}, basis, prefill, 64, sinks, window_blocks};
}

inline AtpOptions Refined(AtpOptions options, int32_t refine_tokens) {
  options.refine_tokens = refine_tokens;
  return options;
}

inline AtpOptions WithRank(const RankPolicy& rank) {
  AtpOptions options = Blocks64(AtpBasis::kKv, AtpPrefill::kCompressed, 4, 0);
  options.rank = rank;
  return options;
}

inline AtpOptions Alternating() {
  AtpOptions options = Blocks64(AtpBasis::kLayer, AtpPrefill::kCompressed, 4, 0);
  options.decomposition = AtpDecomposition::kAlternating;
  return options;
}

inline AtpOptions InInt8(AtpBasis basis) {
  AtpOptions options = Blocks64(basis, AtpPrefill::kCompressed, 4, 0);
  options.basis_storage = options.principal_storage = options.kept_storage = AtpStorage::kInt8;
  return options;
}

// The tokens that refine reads in 4 bits.
inline AtpOptions KeptInInt4(AtpOptions options, int32_t refine_tokens) {
  options.kept_storage = AtpStorage::kInt4;
  return Refined(options, refine_tokens);
}

inline AtpOptions KeptAsRest(AtpOptions options, int32_t refine_tokens) {
  options.kept_storage = AtpStorage::kRest;
  return Refined(options, refine_tokens);
}

inline AtpOptions Calibrated(AtpPrefill prefill, int32_t sinks, int32_t window_blocks) {
  AtpOptions options = Blocks64(AtpBasis::kCalibrated, prefill, sinks, window_blocks);
  options.rank = AtpOptions().rank;
  return options;
}

inline AtpOptions BasisInInt4(AtpOptions options) {
  options.basis_storage = AtpStorage::kInt4;
  return options;
}

inline AtpOptions Linear(AtpOptions options) {
  options.readout = AtpReadout::kLinear;
  return options;
}

// Six closed blocks: four become one, and two.
inline AtpOptions Merged(AtpOptions options) {
  options.merge = true;
  return Linear(options);
}

inline AtpOptions MergedInInt8() {
  AtpOptions options = Merged(WithRank(RankEnergy{0.8}));
  options.principal_storage = AtpStorage::kInt8;
  return options;
}

inline std::vector<ContractCase> NarrowCases() {
  return {
      Narrow("taylorshift_narrow", TaylorShift(), 8, 0),
      Narrow("taylorshift_window", TaylorShift(TaylorForm::kAuto, TaylorVariant::kPlain), 8, 64),
      Narrow("taylorshift_window_direct", TaylorShift(TaylorForm::kDirect), 20, 64)};
}

inline std::vector<ContractCase> AllCases() {
  constexpr auto kExact = AtpPrefill::kExact, kCompressed = AtpPrefill::kCompressed;
  std::vector<ContractCase> wide = {
      {"standard", Standard(), {}, {}},
      {"sliding", Standard(), {}, 100},
      {"standard_int8", Standard(CacheStorage::kInt8), {}, {}},
      {"standard_int4", Standard(CacheStorage::kInt4), 150, {}},
      {"standard_int3", Standard(CacheStorage::kInt3), {}, {}},
      {"standard_int2", Standard(CacheStorage::kInt2), 150, {}},
      {"sliding_int8", Standard(CacheStorage::kInt8), {}, 100},
      {"atp_layer", Atp(Blocks64(AtpBasis::kLayer, kCompressed, 4, 1)), {}, {}},
      {"atp_layer_bare", Atp(Blocks64(AtpBasis::kLayer, kCompressed, 0, 0)), {}, {}},
      {"atp_kv", Atp(Blocks64(AtpBasis::kKv, kCompressed, 5, 0)), {}, {}},
      {"atp_exact", Atp(Blocks64(AtpBasis::kLayer, kExact, 4, 0)), 150, {}},
      {"atp_layer_refine", Atp(Refined(Blocks64(AtpBasis::kLayer, kCompressed, 4, 0), 16)), {}, {}},
      {"atp_kv_refine", Atp(Refined(Blocks64(AtpBasis::kKv, kCompressed, 0, 1), 40)), {}, {}},
      {"atp_exact_refine", Atp(Refined(Blocks64(AtpBasis::kKv, kExact, 4, 0), 16)), 150, {}},
      {"atp_energy", Atp(WithRank(RankEnergy{0.8})), {}, {}},
      {"atp_entropy", Atp(WithRank(RankEntropy{})), {}, {}},
      {"atp_alternating", Atp(Alternating()), {}, {}},
      {"atp_int8", Atp(InInt8(AtpBasis::kLayer)), {}, {}},
      {"atp_int8_refine", Atp(Refined(InInt8(AtpBasis::kKv), 16)), 150, {}},
      {"atp_exact_whole", Atp(Blocks64(AtpBasis::kKv, kExact, 0, 2)), {}, {}},
      {"atp_linear", Atp(Linear(Blocks64(AtpBasis::kLayer, kCompressed, 4, 1))), {}, {}},
      {"atp_merge", Atp(Merged(Blocks64(AtpBasis::kLayer, kCompressed, 4, 0))), {}, {}},
      {"atp_merge_window", Atp(Merged(Blocks64(AtpBasis::kKv, kCompressed, 0, 1))), {}, {}},
      {"atp_merge_exact", Atp(Merged(Blocks64(AtpBasis::kKv, kExact, 4, 0))), 150, {}},
      {"atp_merge_int8", Atp(MergedInInt8()), {}, {}},
      {"atp_int4", Atp(BasisInInt4(Blocks64(AtpBasis::kLayer, kCompressed, 4, 0))), {}, {}},
      {"atp_int4_refine", Atp(BasisInInt4(Refined(WithRank(RankEnergy{0.8}), 16))), {}, {}},
      {"atp_kept_int4", Atp(KeptInInt4(Blocks64(AtpBasis::kLayer, kCompressed, 4, 0), 16)), {}, {}},
      {"atp_calibrated", Atp(Refined(Calibrated(kCompressed, 4, 0), 1)), {}, {}},
      {"atp_calibrated_refine", Atp(KeptInInt4(Calibrated(kCompressed, 4, 1), 16)), {}, {}},
      {"atp_calibrated_rest", Atp(KeptAsRest(Calibrated(kCompressed, 4, 1), 16)), {}, {}},
      {"atp_calibrated_exact", Atp(Refined(Calibrated(kExact, 0, 0), 16)), 150, {}},
      {"atp_input", Atp(Blocks64(AtpBasis::kInput, kCompressed, 4, 0)), {}, {}},
      {"atp_input_merge", Atp(Merged(Blocks64(AtpBasis::kInput, kExact, 4, 1))), 150, {}},
      {"optimised", Of(Mechanism::kOptimised), {}, {}},
      {"efficient", Of(Mechanism::kEfficient), {}, {}},
      {"efficient_no_keys", EqualOptions(Mechanism::kEfficient)[1], {}, {}},
      {"efficient_sliding", EqualOptions(Mechanism::kEfficient)[1], {}, 100},
      {"super_efficient", Of(Mechanism::kSuper), {}, {}},
      {"super_standard", Of(Mechanism::kSuper), {}, {}, {}, Mechanism::kStandard},
      {"super_optimised", Of(Mechanism::kSuper), {}, {}, {}, Mechanism::kOptimised},
      {"lasso", Of(Mechanism::kLasso), {}, {}},
      // Head dimension 20 switches after 192 tokens, in bf16 after 256.
      {"taylorshift", TaylorShift(), {}, {}},
      {"taylorshift_direct", TaylorShift(TaylorForm::kDirect), {}, {}},
      {"taylorshift_recurrent", TaylorShift(TaylorForm::kRecurrent), {}, {}},
      {"toy", Standard(), {}, {}, {}, {}, MakeToy},
      {"taylorshift_plain", TaylorShift(TaylorForm::kAuto, TaylorVariant::kPlain), 150, {}},
  };
  for (const ContractCase& c : NarrowCases()) wide.push_back(c);
  // These are slow, and other cases store the same: one type of cache will do.
  const std::set<std::string> in_fp32 = {
      "atp_int4_refine", "atp_energy",      "atp_entropy", "atp_alternating",
      "atp_merge_int8",  "super_optimised", "lasso"};
  std::vector<ContractCase> out;
  for (ContractCase c : wide) {
    for (StorageType type : {StorageType::kFloat32, StorageType::kBFloat16}) {
      if (type == StorageType::kBFloat16 && in_fp32.contains(c.name)) continue;
      c.type = type;
      out.push_back(c);
    }
  }
  return out;
}

}  // namespace lowkey

#endif  // LOWKEY_TESTS_ENGINE_ATTENTION_CONTRACT_CASES_H_
