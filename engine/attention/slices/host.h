#ifndef LOWKEY_ENGINE_ATTENTION_SLICES_HOST_H_
#define LOWKEY_ENGINE_ATTENTION_SLICES_HOST_H_

#include <cstdint>
#include <vector>

#include "engine/attention/pages/row_block.h"
#include "engine/attention/slices/policy.h"

namespace lowkey {

// Slices on the host.
class HostSlices : public SlicePolicy {
 public:
  HostSlices(Mechanism id, const AttentionContext& context);

  absl::Status Plan(absl::Span<const Segment> segments) override;
  void Attend(const LayerRows& rows) override;

 private:
  struct Tiles {
    std::byte* keys = nullptr;  // nullptr: slices
    std::byte* values = nullptr;
    std::byte* aligned = nullptr;  // nullptr: none
  };
  // Scratch of one thread.
  struct Scratch {
    RowBlock block;
    std::vector<float> keys;   // [head_dim, 64]
    std::vector<float> align;  // rows of Wa, then rows of V'
  };

  Tiles TilesOf(const SequenceCache& sequence, int64_t page, int64_t layer, int64_t head) const;
  void Write(const LayerRows& rows);
  void AlignRows(const RowBlockTask& task, int64_t layer, Scratch& scratch);
  void AttendRows(const LayerRows& rows, const RowBlockTask& task, Scratch& scratch);

  absl::Span<const Segment> segments_;
  std::vector<RowBlockTask> tasks_, align_tasks_;
  std::vector<Scratch> scratch_;  // by thread
};

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_ATTENTION_SLICES_HOST_H_
