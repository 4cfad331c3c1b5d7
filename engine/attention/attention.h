#ifndef LOWKEY_ENGINE_ATTENTION_ATTENTION_H_
#define LOWKEY_ENGINE_ATTENTION_ATTENTION_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "engine/base/tensor.h"
#include "engine/base/thread_pool.h"
#include "engine/cache/cache.h"
#include "engine/config/attention_options.h"
#include "engine/kernels/device/device.h"
#include "engine/kernels/kernels.h"

namespace lowkey {

// What every mechanism needs to know of the model.
struct AttentionGeometry {
  int64_t n_layers = 0;
  int64_t n_heads = 0;  // a multiple of n_kv_heads
  int64_t n_kv_heads = 0;
  int64_t head_dim = 0;
  std::optional<int64_t>
      sliding_window;  // a row sees itself and sliding_window - 1 tokens before it
  StorageType cache_type = StorageType::kFloat32;
  std::optional<int64_t> hidden_dim = {};  // of a layer's input, unless it is n_heads * head_dim

  int64_t input_dim() const { return hidden_dim.value_or(n_heads * head_dim); }
  int64_t group() const { return n_heads / n_kv_heads; }
  // head_dim rounded up to the kernels' panel: the width of a cached value row.
  int64_t head_dim_padded() const;
};

// What a model brings for one mechanism beside projections (loader/bundle.h).
struct MechanismWeights {
  // [head_dim / 2], angle a position: for keys that are rotated where they are read.
  std::vector<double> inverse_frequencies;
  Mechanism over = Mechanism::kEfficient;  // super: whose keys and values are aligned
  int64_t alignment_tokens = 0;            // super: the longest sequence, l
  std::vector<TensorView> alignment;       // super: by layer, [l (l + 1) / 2] packed rows of Wa
  LassoOptions lasso;
  std::vector<float> tau;  // taylorshift: temperatures [n_layers, n_heads], or none
};

struct PrincipalBlock;  // atp/principal_block.h

// What one sequence holds. Mechanisms fill it; dropping it frees everything.
struct SequenceCache {
  AttentionOptions options;
  int64_t n_prompt_tokens = 0;    // rows before it are the prompt's
  int64_t n_tokens = 0;           // rows that every layer has seen
  int64_t n_final_tokens = 0;     // rows that it may come to, 0: unknown
  std::vector<PageHandle> pages;  // page i holds positions [64 i, 64 i + 64); empty once freed
  // atp: by block number; empty once another stands for it.
  std::vector<std::shared_ptr<const PrincipalBlock>> blocks;
  // As `pages`, of another layout: inputs of layers, or slices of them; standard: what was
  // quantized.
  std::vector<std::shared_ptr<Slab>> slice_pages;
  // lasso: one Gram matrix a layer and head; taylorshift: sums over the first n_state_tokens.
  std::shared_ptr<Slab> state;
  int64_t n_state_tokens = 0;   // taylorshift: that rows read there alone; a multiple of 64
  int64_t n_folded_tokens = 0;  // taylorshift: in the state already; a multiple of 64
};

// Consecutive rows of one sequence in a step: positions first_position .. + n_rows - 1, which
// continue the sequence, are rows first_row .. of its weight set's in the step.
struct Segment {
  SequenceCache* sequence = nullptr;
  int64_t first_position = 0;
  int64_t n_rows = 0;
  int64_t first_row = 0;
};

// Rows of a step at one layer, of one weight set: the layer's input x (after the norm)
// [hidden_dim], row i at x + i * ld_x; its projections q [n_heads * head_dim], k and v [n_kv_heads
// * head_dim], of row i at q + i * ld_qkv and so on, q and k after RoPE, nullptr for those that the
// set has not; out [n_heads * head_dim] of row i at out + i * ld_out. Addresses of the place where
// the mechanism computes.
struct LayerRows {
  int64_t layer = 0;
  const float* x = nullptr;
  int64_t ld_x = 0;
  const float* q = nullptr;
  const float* k = nullptr;
  const float* v = nullptr;
  int64_t ld_qkv = 0;
  float* out = nullptr;
  int64_t ld_out = 0;
};

// Lengths that bound what a sequence holds: prompt, all rows fed so far, rows of it in one step at
// most, and all rows that it may come to (n_tokens where that is less).
struct SequenceBound {
  int64_t n_prompt_tokens = 0;
  int64_t n_tokens = 0;
  int64_t max_step_rows = 0;
  int64_t n_final_tokens = 0;
};

// Which prefixes of what it computed a mechanism can give: after every page, or only of all rows.
enum class PrefixReach { kEveryPage, kAllRows };

// Multiply-adds of attention (projections left out), of one sequence, all layers.
struct AttentionWork {
  double prefill = 0;  // of a prompt of n tokens, from nothing
  double decode = 0;   // of one token that sees n
};

// One way of computing attention over the projections q, k, v of a weight set. In a step: Plan
// once, Attend once a layer, Advance once a sequence. One thread calls; work inside is spread over
// the pool. What is thrown (memory that cannot be had) leaves the step's sequences such that they
// can only be dropped, and all others as they were. A row's output depends on positions and on the
// prompt's length alone, to the bit: never on how rows were cut into steps or on what else is in
// the step.
class AttentionMechanism {
 public:
  virtual ~AttentionMechanism() = default;

  virtual Mechanism id() const = 0;

  // FAILED_PRECONDITION when the model cannot be attended to this way.
  virtual absl::Status CheckAvailable(const AttentionOptions& options) const = 0;
  // The longest sequence that can be attended to; nullopt: any.
  virtual std::optional<int64_t> max_tokens() const { return std::nullopt; }
  // Upper bound of the bytes a sequence holds at any time.
  virtual int64_t BoundBytes(const AttentionOptions& options, const SequenceBound& bound) const = 0;

  // Bytes held while the last of n_tokens is computed, token by token: no prompt beside what it is
  // turned into.
  virtual int64_t HeldBytes(const AttentionOptions& options, int64_t n_tokens) const {
    return BoundBytes(options, {1, n_tokens, 1});
  }

  // What a sequence of n_tokens costs, by the formulas of attention.md.
  virtual AttentionWork Work(const AttentionOptions& options, int64_t n_tokens) const = 0;

  // Who attends to what: takes every page and slab that the step writes. RESOURCE_EXHAUSTED leaves
  // sequences valid, the step unplanned. Segments must outlive the step.
  virtual absl::Status Plan(absl::Span<const Segment> segments) = 0;
  // After Plan, on a device: two plans of equal keys queue the same work in Attend, which reads all
  // that differs from memory. nullopt: no two may be taken for the same.
  virtual std::optional<uint64_t> PlanKey() const { return std::nullopt; }
  // Whether Attend of such sequences only queues, so that the step may follow one whose tokens
  // nobody has read.
  virtual bool OnlyQueues(const AttentionOptions& options) const {
    (void)options;
    return false;
  }
  // Caches the step's keys and values of one layer and computes its outputs. On a device, queues
  // that.
  virtual void Attend(const LayerRows& rows) = 0;
  // After the last layer: the sequence has n_rows more tokens; frees what no later row reads.
  virtual void Advance(SequenceCache& sequence, int64_t n_rows) = 0;

  // What the sequence held, or could have held, after its first n_tokens (a multiple of
  // kPageTokens): another that begins with the same tokens continues from there, to the bit as if
  // it had computed them. It shares pages and slabs. nullopt where they are gone, or where those
  // rows depend on this sequence's own prompt. n_computed >= n_tokens rows are computed by now: all
  // of Advance's, or, between Attend and Advance, those of the step too.
  virtual std::optional<SequenceCache> Prefix(const SequenceCache& sequence, int64_t n_computed,
                                              int64_t n_tokens) const {
    (void)sequence, (void)n_computed, (void)n_tokens;
    return std::nullopt;
  }
  // kAllRows: a prompt has to be interrupted where others are to continue from it.
  virtual PrefixReach prefix_reach() const { return PrefixReach::kEveryPage; }
};

// The first pages of a sequence, for Prefix; nullopt when one of `pages` from first_page on is
// gone.
template <typename Handle>
std::optional<std::vector<Handle>> FirstPages(const std::vector<Handle>& pages, int64_t first_page,
                                              int64_t n_pages) {
  if (static_cast<int64_t>(pages.size()) < n_pages) return std::nullopt;
  std::vector<Handle> first(static_cast<size_t>(n_pages));
  for (int64_t i = first_page; i < n_pages; ++i) {
    if (!pages[i]) return std::nullopt;
    first[i] = pages[i];
  }
  return first;
}

// Where attention is computed when not on the host. `cache` of the context then lies in its memory.
struct DevicePlace {
  Device* device = nullptr;
  Cache* host_cache = nullptr;  // of mechanisms that the device has no kernels for
  int64_t max_rows = 0;         // in a step
};

// What the mechanisms share; outlives them.
struct AttentionContext {
  AttentionGeometry geometry;
  Cache* cache = nullptr;
  ThreadPool* pool = nullptr;
  const MechanismWeights* weights = nullptr;  // of mechanisms that have some
  const DevicePlace* place = nullptr;         // nullptr: the host
};

// Bytes of a page of kPageTokens tokens over all layers.
int64_t PageBytes(const AttentionGeometry& geometry);

// The registry: every mechanism that this engine computes, made for one model and for the place
// that the context names. nullptr for one that needs weights when context.weights has none.
std::unique_ptr<AttentionMechanism> MakeMechanism(Mechanism id, const AttentionContext& context);

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_ATTENTION_ATTENTION_H_
