#ifndef LOWKEY_TESTS_ENGINE_ATTENTION_ATTENTION_TESTING_H_
#define LOWKEY_TESTS_ENGINE_ATTENTION_ATTENTION_TESTING_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/attention/attention.h"
#include "engine/attention/principal_codes.h"
#include "engine/kernels/device/device.h"
#include "gtest/gtest.h"
#include "tests/testing/max_difference.h"
#include "tests/testing/test_device.h"

namespace lowkey {

// Rows of one sequence at every layer: projections and the layer's input, [q | k | v | x] side by
// side, x [n_heads * head_dim].
struct AttentionRows {
  AttentionGeometry geometry;
  int64_t n_tokens = 0;
  std::vector<float> data;  // [n_layers, n_tokens, ld]

  int64_t ld() const {
    return geometry.q_dim() + geometry.k_dim() + geometry.v_dim() + geometry.out_dim();
  }
  const float* row(int64_t layer, int64_t token) const {
    return data.data() + (layer * n_tokens + token) * ld();
  }
  float* row(int64_t layer, int64_t token) {
    return data.data() + (layer * n_tokens + token) * ld();
  }
};

// What a model could bring for its mechanisms: rotations by 10000^(-2 j / head_dim), alignment for
// 512 tokens, lasso with one iteration and 8 fixed rows.
MechanismWeights TestWeights(const AttentionGeometry& geometry, Mechanism over,
                             const std::vector<float>& tau = {});

// Codes of heads as a calibration finds them, of random keys, values and queries; none of prefixes.
PrincipalCodes TestCodes(const AttentionGeometry& geometry);

// Returns the mean of keys [key_dim] turned to a position.
std::vector<double> TurnedMean(const HeadCodes& codes, const float* mean, int64_t position);

// Holds each half of a page of an index: by component and token the gain times the level,
// [n][64], and the gains [64].
struct IndexedPage {
  struct Half {
    std::vector<double> components, gains;
    // Returns the vectors [dim][64] that they stand for, less the mean.
    std::vector<double> Restored(const TokenIndex::Half& half, int64_t dim) const;
  };
  Half keys, values;
};
IndexedPage ReadIndex(const AttentionGeometry& geometry, const TokenIndex& index, int64_t layer,
                      int64_t kv_head, const std::vector<std::byte>& page);

AttentionRows RandomRows(const AttentionGeometry& geometry, int64_t n_tokens, uint32_t seed);

// Keys and values of all heads from common factors of the tokens, [n, s] diag(weights) [s, ..], and
// inputs from others: a spectrum with gaps, so that principal subspaces are well defined.
AttentionRows FactorRows(const AttentionGeometry& geometry, int64_t n_tokens,
                         const std::vector<float>& weights, uint32_t seed);

// `n_strong` factors of equal weight and 6 of a twentieth of it.
std::vector<float> GapAt(int64_t n_strong);

// Softmax attention in double over keys and values as the cache holds them, one layer: [n_tokens,
// n_heads * head_dim]. Knows causality, GQA and the geometry's sliding window.
std::vector<double> ReferenceStandard(const AttentionRows& rows, int64_t layer);

// ATP, Eq. 5-7, in double, with LAPACK's singular vectors; same shape. Rows before n_prompt_tokens
// read exactly where prefill is exact.
std::vector<double> ReferenceAtp(const AttentionRows& rows, int64_t layer,
                                 const AtpOptions& options, int64_t rank, int64_t n_prompt_tokens);

AttentionOptions Standard(CacheStorage storage = CacheStorage::kDtype);
AttentionOptions Atp(const AtpOptions& options);
AttentionOptions TaylorShift(TaylorForm form = TaylorForm::kAuto,
                             TaylorVariant variant = TaylorVariant::kNormalized);

// Makes a mechanism that is in no registry; nullptr: the registry does.
using MechanismMaker = std::unique_ptr<AttentionMechanism> (*)(const AttentionContext& context);

// A mechanism with a cache and a pool of its own, run step by step on TestDevice(), where there is
// one, else on the host. Sequences must go before it.
class MechanismRunner {
 public:
  struct Options {
    int n_threads = 1;
    int64_t budget_bytes = int64_t{1} << 28;
    Mechanism over = Mechanism::kEfficient;  // super's
    std::vector<float> tau = {};             // [n_layers, n_heads]; empty: the mechanism's default
    MechanismMaker make = nullptr;
    std::vector<float> tau_window = {};  // [n_layers, n_heads]; empty: tau
    int64_t window_tokens = 0;           // taylorshift's
    // Steps whose plans have a key go through Device::Repeat. For one layer.
    bool repeats = false;
  };
  // The next n_rows rows of a sequence; their outputs go to rows n_tokens .. of `out` at each
  // layer, [n_layers, rows->n_tokens, n_heads * head_dim].
  struct Part {
    SequenceCache* sequence = nullptr;
    const AttentionRows* rows = nullptr;
    int64_t n_rows = 0;
    std::vector<float>* out = nullptr;
    // Set: the sequence keeps the first n_kept rows, one by one.
    std::optional<int64_t> n_kept = std::nullopt;
  };

  MechanismRunner(const AttentionGeometry& geometry, Mechanism mechanism);
  MechanismRunner(const AttentionGeometry& geometry, Mechanism mechanism, const Options& options);
  // With the model's own weights for the mechanism.
  MechanismRunner(const AttentionGeometry& geometry, Mechanism mechanism,
                  const MechanismWeights& weights);

  absl::Status Step(const std::vector<Part>& parts);

  Cache& cache() { return *cache_; }
  AttentionMechanism& mechanism() { return *mechanism_; }
  // Returns how often the mechanism was asked to attend; repeated work does not ask.
  int n_attended() const { return n_attended_; }

 private:
  MechanismRunner(const AttentionGeometry& geometry, Mechanism mechanism, const Options& options,
                  const MechanismWeights& weights);
  // Where `in` and `out` of a step are for the mechanism: themselves, or on the device.
  float* Here(std::vector<float>& rows, Buffer& there);
  void AttendHere(const LayerRows& rows, std::vector<float>& out);

  AttentionGeometry geometry_;
  std::unique_ptr<ThreadPool> pool_;
  std::unique_ptr<Cache> cache_, host_cache_;
  DevicePlace place_;
  Buffer in_there_, out_there_;
  std::unique_ptr<const MechanismWeights> weights_;
  std::unique_ptr<const PrincipalCodes> codes_;  // for atp
  std::unique_ptr<AttentionMechanism> mechanism_;
  const uint64_t number_;
  const bool repeats_;
  int n_attended_ = 0;
};

SequenceCache NewSequence(const AttentionOptions& options, int64_t n_prompt_tokens);

// All of the rows through a fresh runner: the prompt in steps of chunk_tokens, and so the rest.
// [n_layers, n_tokens, n_heads * head_dim].
struct RunOptions {
  AttentionOptions attention = {};
  int64_t chunk_tokens = int64_t{1} << 20;
  std::optional<int64_t> n_prompt_tokens = std::nullopt;  // default: all
  int n_threads = 1;
  Mechanism over = Mechanism::kEfficient;  // super's
  std::vector<float> tau = {};
  MechanismMaker make = nullptr;
  std::vector<float> tau_window = {};
  int64_t window_tokens = 0;
};
std::vector<float> RunSequence(const AttentionRows& rows, const RunOptions& options);

// Whether two outputs have the same bits; says where not.
testing::AssertionResult SameBits(const std::vector<float>& a, const std::vector<float>& b);

}  // namespace lowkey

#endif  // LOWKEY_TESTS_ENGINE_ATTENTION_ATTENTION_TESTING_H_
