#ifndef LOWKEY_ENGINE_ATTENTION_ATTENTION_H_
#define LOWKEY_ENGINE_ATTENTION_ATTENTION_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "engine/attention/context.h"
#include "engine/attention/sequence.h"
#include "engine/base/round_up.h"

namespace lowkey {

struct CacheSlots;  // engine/kernels/device/attention.h

// Rows of a step at one layer, of one weight set: the layer's input x (after the norm)
// [hidden_dim], row i at x + i * ld_x; its projections q [n_heads * key_dim], k [n_kv_heads *
// key_dim] and v [n_kv_heads * head_dim], of row i at q + i * ld_qkv and so on, q and k after RoPE,
// nullptr where the set has no queries; out [n_heads * head_dim] of row i at out + i *
// ld_out. Addresses of the place where the mechanism computes. On a device k and v are nullptr
// where they are in the mechanism's pages already (PageWrites), and results go to `rounded` in bf16
// instead of `out`, laid out alike, where it is not nullptr (RoundsResults).
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
  uint16_t* rounded = nullptr;
};

// Lengths that bound the memory of a sequence: its prompt, all rows fed so far, the most rows of it
// in one step, and all rows that it may come to (n_tokens where that is less).
struct SequenceBound {
  int64_t n_prompt_tokens = 0;
  int64_t n_tokens = 0;
  int64_t max_step_rows = 0;
  int64_t n_final_tokens = 0;
};

// Says after which rows a mechanism can give a prefix: after every page, or after all rows only.
enum class PrefixReach { kEveryPage, kAllRows };

// The pieces that a prefix is cut into where prefixes are kept in files.
struct PieceShape {
  int64_t n_tokens = 0;   // of every piece; a multiple of kPageTokens
  int64_t max_bytes = 0;  // of one piece
};

// Multiply-adds of attention in all layers for one sequence, without projections.
struct AttentionWork {
  double prefill = 0;  // a prompt of n tokens, from nothing
  double decode = 0;   // one token that sees n
};

// Says how the sequences of a request are held. Memory that they share counts once.
struct SequenceReport {
  int32_t rank = 0;  // mean rank of the compressed blocks; of the first one to come if none is
  int32_t n_compressed_blocks = 0;
  int64_t n_state_tokens = 0;  // tokens that a state stands for, in the longest sequence
  int64_t n_coded_tokens = 0;  // prompt tokens that later rows read in a calibrated code
};

// One way of computing attention over the projections q, k, v of a weight set. A step calls Plan
// once, Attend once per layer, and Advance once per sequence. One thread calls; the work inside is
// spread over the pool. An exception (memory that cannot be had) leaves the step's sequences such
// that they can only be dropped, and all others as they were. A row's output depends on positions
// and on the prompt's length alone, to the bit: never on how rows were cut into steps or on what
// else is in the step.
class AttentionMechanism {
 public:
  virtual ~AttentionMechanism() = default;

  virtual Mechanism id() const = 0;

  // Returns the options that run: what presets among them stand for on this model. Every other
  // function takes such options.
  virtual AttentionOptions Resolve(const AttentionOptions& options) const { return options; }
  // FAILED_PRECONDITION when the model cannot be attended to this way.
  virtual absl::Status CheckAvailable(const AttentionOptions&) const { return absl::OkStatus(); }
  // The longest sequence that can be attended to; nullopt: any.
  virtual std::optional<int64_t> max_tokens() const { return std::nullopt; }
  // Returns an upper bound of the bytes that a sequence holds at any time.
  virtual int64_t BoundBytes(const AttentionOptions& options, const SequenceBound& bound) const = 0;
  // Returns the bytes held while the last of n_tokens is computed, token by token: the prompt's
  // exact tokens are gone where the mechanism turns them into something smaller.
  virtual int64_t HeldBytes(const AttentionOptions& options, int64_t n_tokens) const {
    return BoundBytes(options, {1, n_tokens, 1});
  }
  // Returns how many of these bytes are held once by sequences that have their first
  // n_prompt_tokens in common: those that as many whole pages more would take.
  virtual int64_t SharedBytes(const AttentionOptions& options, int64_t n_prompt_tokens,
                              int64_t n_tokens) const {
    const int64_t n_shared = n_prompt_tokens / kPageTokens * kPageTokens;
    const int64_t held = HeldBytes(options, n_tokens);
    return std::clamp<int64_t>(HeldBytes(options, n_tokens + n_shared) - held, 0, held);
  }
  // Returns how many of these bytes the last token reads, at most.
  virtual int64_t ReadBytes(const AttentionOptions& options, int64_t n_tokens) const {
    return HeldBytes(options, n_tokens);
  }
  // Returns what a sequence of n_tokens costs; selection divides it by measured rates
  // (docs/selection.md).
  virtual AttentionWork Work(const AttentionOptions& options, int64_t n_tokens) const = 0;

  // Decides who attends to what, and takes every page and slab that the step writes.
  // RESOURCE_EXHAUSTED leaves sequences valid and the step unplanned. Segments must outlive the
  // step.
  virtual absl::Status Plan(absl::Span<const Segment> segments) = 0;
  // Returns a key after Plan, on a device: two plans of equal keys queue the same work in Attend,
  // which reads everything that differs from memory. nullopt: this plan equals no other.
  virtual std::optional<uint64_t> PlanKey() const { return std::nullopt; }
  // Says after Plan whether Attend reads LayerRows::x, which may be nullptr otherwise.
  virtual bool ReadsInputs() const { return false; }
  // Returns the pages, on a device, in which Attend would store the step's keys and values as they
  // are, so that others may; nullptr where Attend has to. Valid from Plan to the next Plan.
  virtual const CacheSlots* PageWrites() const { return nullptr; }
  // Says after Plan whether Attend heeds LayerRows::rounded.
  virtual bool RoundsResults() const { return false; }
  // Says whether Attend of such sequences only queues work, so that the step may follow one whose
  // tokens nobody has read.
  virtual bool OnlyQueues(const AttentionOptions&) const { return false; }
  // Caches the step's keys and values of one layer and computes its outputs. On a device, queues
  // that.
  virtual void Attend(const LayerRows& rows) = 0;
  // Returns how many of the sequence's next n_rows >= 1 rows a step may compute before it is known
  // which of them the sequence keeps: at least the first, which it does keep. The kept rows are the
  // first ones, and Advance takes them in one call or in several before the next Plan. The step
  // leaves nothing of the other rows that a later row reads.
  virtual int64_t RevocableRows(const SequenceCache&, int64_t /*n_rows*/) const { return 1; }
  // Ends the step after the last layer: the sequence has n_rows more tokens. Frees what no later
  // row reads.
  virtual void Advance(SequenceCache& sequence, int64_t n_rows) { sequence.n_tokens += n_rows; }

  // Returns the memory that the sequence held, or could have held, after its first n_tokens (a
  // multiple of kPageTokens). Another sequence that begins with the same tokens continues from
  // there, to the bit as if it had computed them; the two share pages and slabs. nullopt where the
  // pages are gone, or where those rows depend on this sequence's own prompt. n_computed >=
  // n_tokens rows are computed by now: all of Advance's, or, between Attend and Advance, those of
  // the step too.
  virtual std::optional<SequenceCache> Prefix(const SequenceCache&, int64_t /*n_computed*/,
                                              int64_t /*n_tokens*/) const {
    return std::nullopt;
  }
  // Returns the number of tokens, a multiple of kPageTokens, whose multiples a prefix can be cut
  // at, so that AppendPart joins the parts; nullopt: prefixes of such sequences are kept whole.
  virtual std::optional<int64_t> part_tokens(const AttentionOptions&) const { return std::nullopt; }
  // Appends to `prefix` the memory that `from` holds of its tokens [begin, end), which are whole
  // parts. Both are prefixes, or parts of one, whose options are set. `prefix` shares what `from`
  // holds, and is what Prefix gives for as many tokens once all parts before its end are in it.
  virtual void AppendPart(const SequenceCache& /*from*/, int64_t /*begin*/, int64_t /*end*/,
                          SequenceCache& /*prefix*/) const {}
  // Returns the shape of the pieces that prefixes of such sequences are cut into; nullopt: they are
  // kept in memory alone. The bytes of a piece follow from the tokens up to its end.
  virtual std::optional<PieceShape> piece_shape(const AttentionOptions&) const {
    return std::nullopt;
  }
  // Returns the bytes of piece i of what Prefix returned. They stay as they are while it is held.
  virtual absl::Span<const std::byte> PieceBytes(const SequenceCache&, int64_t /*i*/) const {
    return {};
  }
  // Appends a piece to a prefix of whole pieces. Bytes that PieceBytes gave for the same tokens
  // give the same prefix. INVALID_ARGUMENT for bytes that cannot be a piece, RESOURCE_EXHAUSTED
  // when the cache is full; the prefix is then as it was.
  virtual absl::Status AppendPiece(SequenceCache&, absl::Span<const std::byte> /*bytes*/) {
    return absl::UnimplementedError("prefixes of this mechanism are not cut into pieces");
  }
  // kAllRows: a prompt has to be interrupted where others are to continue from it.
  virtual PrefixReach prefix_reach() const { return PrefixReach::kEveryPage; }

  // Returns the length of the blocks that a prompt is computed in: no step computes rows of the
  // prompt on both sides of a multiple of it. nullopt: rows are cut into steps as they come.
  virtual std::optional<int64_t> prompt_block(const AttentionOptions&) const {
    return std::nullopt;
  }

  // Describes one request's sequences, of which there is at least one.
  virtual SequenceReport Report(absl::Span<const SequenceCache* const> /*sequences*/) const {
    return {};
  }
};

// The registry: every mechanism that this engine computes, made for one model and for the place
// that the context names. nullptr for one that needs weights when context.weights has none.
std::unique_ptr<AttentionMechanism> MakeMechanism(Mechanism id, const AttentionContext& context);

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_ATTENTION_ATTENTION_H_
