#ifndef LOWKEY_ENGINE_ATTENTION_TAYLORSHIFT_DEVICE_H_
#define LOWKEY_ENGINE_ATTENTION_TAYLORSHIFT_DEVICE_H_

#include <array>
#include <vector>

#include "engine/attention/place/packed_tables.h"
#include "engine/attention/taylorshift/policy.h"
#include "engine/kernels/device/taylorshift.h"

namespace lowkey {

// TaylorShift on a device (engine/kernels/device/taylorshift.h). Pages and sums lie in its memory:
// pages as paged_kv.h lays them out, sums as TaylorSequence does, in no more bytes than on the
// host. The step's rounds are launches in order. A round's blocks whose slots would need more
// memory than a wave has wait for the next wave.
class DeviceTaylorShift : public TaylorShiftPolicy {
 public:
  // context.place is set.
  explicit DeviceTaylorShift(const AttentionContext& context);

  absl::Status Plan(absl::Span<const Segment> segments) override;
  // Keys exist for steps in which every sequence has one row.
  std::optional<uint64_t> PlanKey() const override { return key_; }
  bool OnlyQueues(const AttentionOptions&) const override { return true; }
  void Attend(const LayerRows& rows) override;

 private:
  // Lists of pieces, by what they read and by their blocks' number of rows.
  enum List { kFewState, kManyState, kFewPages, kManyPages, kFewNear, kManyNear, kLists };
  // Blocks whose slots are filled together.
  struct Wave {
    TableRange blocks;
    std::array<TableRange, kLists> pieces;
    int64_t max_rows = 0;  // the most rows of a block
    int64_t n_slots = 0;
  };
  struct Launches {
    TableRange folds, waves;
  };

  void AddSequence(const Segment& segment);
  void AddReads(const ReadRange& range);
  void AddBlock(const ReadRange& range, int64_t first_row, int64_t n_rows);
  // Adds a piece for every span of pages [begin, end); returns the next slot.
  int32_t AddSpans(List list, int32_t slot, const TableRange& pages, int64_t span);
  void BeginWave();
  void EndWave();
  absl::Status TakeMemory();
  uint64_t KeyOfPlan() const;
  TaylorStep StepShape() const;  // without addresses
  TaylorStep StepAt(const LayerRows& rows) const;
  void Read(const TaylorStep& step, const Wave& wave, const LayerRows& rows) const;
  int64_t SlotFloats() const;  // over all KV heads

  Device& device_;
  // The step's tables.
  PlanTable<TaylorSequence> sequences_;
  PlanTable<std::byte*> pages_;
  PlanTable<TaylorRow> rows_;
  PlanTable<TaylorBlock> blocks_;
  std::array<PlanTable<TaylorPiece>, kLists> pieces_;
  PlanTable<TaylorFold> folds_;
  PackedTables tables_;
  std::vector<Wave> waves_;
  std::vector<Launches> launches_;       // by round
  Buffer device_tau_, queries_, slots_;  // queries_: far ones, then near ones
  bool decodes_ = false;                 // every sequence has one row
  std::optional<uint64_t> key_;
};

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_ATTENTION_TAYLORSHIFT_DEVICE_H_
