#ifndef LOWKEY_ENGINE_ATTENTION_SLICES_DEVICE_H_
#define LOWKEY_ENGINE_ATTENTION_SLICES_DEVICE_H_

#include <vector>

#include "engine/attention/place/packed_tables.h"
#include "engine/attention/slices/policy.h"
#include "engine/kernels/device/slices.h"

namespace lowkey {

// Slices on a device (engine/kernels/device/slices.h): the same pages, in its memory.
class DeviceSlices : public SlicePolicy {
 public:
  // context.place is set.
  DeviceSlices(Mechanism id, const AttentionContext& context);

  absl::Status Plan(absl::Span<const Segment> segments) override;
  // Keys exist for steps in which every sequence has one row.
  std::optional<uint64_t> PlanKey() const override { return key_; }
  bool OnlyQueues(const AttentionOptions&) const override { return true; }
  void Attend(const LayerRows& rows) override;

 private:
  int64_t AlignmentFloats() const;  // for one layer
  absl::Status TakeAlignment();
  absl::Status TakeRotations(int64_t n_pages);
  // Adds the rows of a segment in blocks that do not straddle multiples of `every`.
  void AddBlocks(const Segment& segment, int64_t every, std::vector<SliceRows>& blocks) const;
  void AddSegment(const Segment& segment);
  uint64_t KeyOfPlan() const;
  SliceStep StepAt(int64_t layer) const;

  Device& device_;
  // The step's tables.
  PlanTable<SliceSequence> sequences_;
  PlanTable<std::byte*> pages_;
  PlanTable<SliceRows> rows_, align_blocks_, attend_blocks_;
  PackedTables tables_;
  int64_t max_rows_ = 1;  // the most rows of a block that attends
  int64_t max_tokens_ = 0;

  Buffer device_rotations_;
  StorageType alignment_type_ = StorageType::kFloat32;
  Buffer alignment_;  // [n_layers, AlignmentFloats()]
  std::optional<uint64_t> key_;
};

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_ATTENTION_SLICES_DEVICE_H_
