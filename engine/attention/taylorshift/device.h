#ifndef LOWKEY_ENGINE_ATTENTION_TAYLORSHIFT_DEVICE_H_
#define LOWKEY_ENGINE_ATTENTION_TAYLORSHIFT_DEVICE_H_

#include <array>
#include <vector>

#include "engine/attention/place/packed_tables.h"
#include "engine/attention/taylorshift/policy.h"
#include "engine/kernels/device/taylorshift.h"

namespace lowkey {

// TaylorShift on a device (engine/kernels/device/taylorshift.h). Pages and states lie in its
// memory: pages as paged_kv.h has them, a state as TaylorSequence does, in no more bytes than the
// host's. The step's rounds are launches in order; within one, blocks whose slots would need more
// memory than a wave has wait for the next wave.
class DeviceTaylorShift : public TaylorShiftPolicy {
 public:
  // context.place is set.
  explicit DeviceTaylorShift(const AttentionContext& context);

  absl::Status Plan(absl::Span<const Segment> segments) override;
  // Of steps in which every sequence has one row.
  std::optional<uint64_t> PlanKey() const override { return key_; }
  bool OnlyQueues(const AttentionOptions&) const override { return true; }
  void Attend(const LayerRows& rows) override;

 private:
  // Lists of pieces, by what they read and by how many rows their blocks have.
  enum List { kFewState, kManyState, kFewPages, kManyPages, kLists };
  struct Range {
    int64_t begin = 0, end = 0;
  };
  // Blocks whose slots are filled together.
  struct Wave {
    Range blocks;
    std::array<Range, kLists> pieces;
    int64_t max_rows = 0;  // of a block
    int64_t n_slots = 0;
  };
  struct Launches {
    Range folds, waves;
  };

  void AddSequence(const Segment& segment);
  void AddReads(const ReadRange& range);
  void AddBlock(const ReadRange& range, int64_t first_row, int64_t n_rows);
  void AddPiece(List list, const TaylorPiece& piece);
  void BeginWave();
  void EndWave();
  absl::Status TakeMemory();
  void MakeKey();
  TaylorStep StepShape() const;  // without places
  TaylorStep StepAt(const LayerRows& rows) const;
  void Read(const TaylorStep& step, const Wave& wave, const LayerRows& rows) const;
  int64_t SlotFloats() const;  // of all KV heads

  Device& device_;
  // Of the step, on the host and then, from offsets_ on, on the device.
  std::vector<TaylorSequence> sequences_;
  std::vector<std::byte*> pages_;
  std::vector<TaylorRow> rows_;
  std::vector<TaylorBlock> blocks_;
  std::array<std::vector<TaylorPiece>, kLists> pieces_;
  std::vector<TaylorFold> folds_;
  PackedTables tables_;
  struct Offsets {
    int64_t sequences = 0, pages = 0, rows = 0, blocks = 0, folds = 0;
    std::array<int64_t, kLists> pieces = {};
  } offsets_;

  std::vector<Wave> waves_;
  std::vector<Launches> launches_;  // by round
  Buffer tau_there_, queries_, slots_;
  std::optional<uint64_t> key_;
};

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_ATTENTION_TAYLORSHIFT_DEVICE_H_
