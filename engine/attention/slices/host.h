#ifndef LOWKEY_ENGINE_ATTENTION_SLICES_HOST_H_
#define LOWKEY_ENGINE_ATTENTION_SLICES_HOST_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "engine/attention/attention.h"
#include "engine/attention/pages/row_block.h"

namespace lowkey {

// Where a mechanism's keys and values come from. A slice is columns h * head_dim .. of x, the
// layer's input, for head h.
struct SliceSources {
  enum class Keys { kProjected, kSlices };
  enum class Values { kProjected, kSlices };
  enum class Alignment { kNone, kTriangular };
  Keys keys = Keys::kSlices;  // slices are cached as they are and rotated where they are read
  Values values = Values::kSlices;
  Alignment alignment = Alignment::kNone;  // values are V' = tril(Wa) V
};

// Of optimised, efficient, and super over another; nullopt: another mechanism.
std::optional<SliceSources> SliceSourcesOf(Mechanism id, Mechanism over);

// Softmax attention whose keys or values may be slices of x instead of projections (optimised,
// efficient) and whose values may be mixed over earlier tokens (super). Caches pages of 64 tokens
// of a layout of its own; for each layer
//   keys     [n_kv_heads][head_dim][64]     if projected
//   values   [n_value_heads][head_dim][64]  n_heads slices, or n_kv_heads projected
//   aligned  [n_value_heads][head_dim][64]  if aligned
// in the cache's type, a token being a column. context.weights has inverse_frequencies and, if
// aligned, alignment; it outlives this.
class SliceAttention : public AttentionMechanism {
 public:
  SliceAttention(Mechanism id, const SliceSources& sources, const AttentionContext& context);

  Mechanism id() const override { return id_; }
  absl::Status CheckAvailable(const AttentionOptions&) const override { return absl::OkStatus(); }
  std::optional<int64_t> max_tokens() const override;
  int64_t BoundBytes(const AttentionOptions& options, const SequenceBound& bound) const override;
  AttentionWork Work(const AttentionOptions& options, int64_t n_tokens) const override;
  absl::Status Plan(absl::Span<const Segment> segments) override;
  void Attend(const LayerRows& rows) override;
  void Advance(SequenceCache& sequence, int64_t n_rows) override;
  std::optional<SequenceCache> Prefix(const SequenceCache& sequence, int64_t n_computed,
                                      int64_t n_tokens) const override;

 protected:
  const AttentionContext& context() const { return context_; }
  const SliceSources& sources() const { return sources_; }
  // As rows of a task share tiles: n_kv_heads value heads.
  const AttentionGeometry& geometry() const { return geometry_; }
  int64_t n_key_heads() const { return n_key_heads_; }  // 0 when keys are slices
  int64_t PageBytes() const { return geometry_.n_layers * layer_bytes_; }

 private:
  struct Tiles {
    std::byte* keys = nullptr;  // nullptr: slices
    std::byte* values = nullptr;
    std::byte* aligned = nullptr;  // nullptr: none
  };
  struct AlignTask {
    int32_t segment = 0;
    int32_t head = 0;
    int64_t first_row = 0;  // within the segment
    int64_t n_rows = 0;
  };
  // Scratch of one thread.
  struct Scratch {
    RowBlock block;
    std::vector<float> keys;   // [head_dim, 64]
    std::vector<float> align;  // rows of Wa, then rows of V'
  };

  Tiles TilesOf(const SequenceCache& sequence, int64_t page, int64_t layer, int64_t head) const;
  void PlanRotations(int64_t n_pages);
  void Write(const LayerRows& rows);
  void AlignRows(const AlignTask& task, int64_t layer, Scratch& scratch);
  void AttendRows(const LayerRows& rows, const RowBlockTask& task, Scratch& scratch);

  const Mechanism id_;
  const SliceSources sources_;
  const AttentionContext context_;
  const AttentionGeometry geometry_;
  const int64_t n_key_heads_;
  const int64_t tile_bytes_;
  const int64_t layer_bytes_;
  absl::Span<const Segment> segments_;
  std::vector<RowBlockTask> tasks_;
  std::vector<AlignTask> align_tasks_;
  std::vector<Scratch> scratch_;               // by thread
  std::vector<std::vector<float>> rotations_;  // by page: cos, then sin, [head_dim / 2, 64] each
};

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_ATTENTION_SLICES_HOST_H_
