#ifndef LOWKEY_ENGINE_ATTENTION_ATP_DEVICE_H_
#define LOWKEY_ENGINE_ATTENTION_ATP_DEVICE_H_

#include <vector>

#include "engine/attention/atp/policy.h"
#include "engine/attention/place/packed_tables.h"
#include "engine/attention/standard/device.h"
#include "engine/kernels/device/kernels.h"

namespace lowkey {

// Atp by a device's kernels (engine/kernels/device/atp.h), over pages and blocks in its memory. The
// host never waits.
//
// The standard mechanism computes rows that read everything exactly, over the same pages. Another
// row's softmax is a fold of parts on an absolute grid in one order. Few rows are computed part by
// part and joined, many fold on the way, to the same bits.
class DeviceAtp : public AtpPolicy {
 public:
  // Say whether the kernels are made for a model and for a sequence's options.
  static bool Fits(const AttentionGeometry& geometry);
  static bool Serves(const AttentionOptions& options);

  explicit DeviceAtp(const AttentionContext& context);

  // FAILED_PRECONDITION also where the rank needs more shared memory than the device has.
  absl::Status CheckAvailable(const AttentionOptions& options) const override;
  absl::Status Plan(absl::Span<const Segment> segments) override;
  // Keys exist for steps of one row per sequence that close no block.
  std::optional<uint64_t> PlanKey() const override;
  bool OnlyQueues(const AttentionOptions&) const override { return true; }
  // Returns its own, or those of exact attention; nullptr where both have rows.
  const CacheSlots* PageWrites() const override;
  bool RoundsResults() const override { return n_rows_ == 0 && exact_.RoundsResults(); }
  void Attend(const LayerRows& rows) override;

 private:
  // Work that shares the slots, scores and choices: runs, scores of tiles that refine and their
  // choices, runs that need those, and the joining of slots.
  struct Batch {
    TableRange runs, scores, choices, late_runs, combined;
    int64_t n_slots = 0, n_scores = 0;
  };
  struct CompressBatch {
    AtpCompressArgs sizes;  // the sizes of its tasks
    TableRange tasks;
    void (*DeviceKernels::*kernel)(Device&, const AtpCompressArgs&) = &DeviceKernels::atp_compress;
  };

  // Calls body(table...) with the step's tables, in the order in which they lie on the device: last
  // those that grow with sequences, so that the others stay in place.
  template <typename Self, typename Body>
  static auto WithTables(Self& self, const Body& body) {
    return body(self.sequences_, self.tiles_, self.cache_slots_, self.runs_, self.score_runs_,
                self.late_runs_, self.choices_, self.combined_, self.tasks_, self.blocks_,
                self.pages_);
  }
  void ClearTables();
  // Returns the number of a segment's rows, from its first, that read everything exactly.
  int64_t NumExactRows(const Segment& segment) const;
  void AddSequence(const Segment& segment);
  // Adds the tiles of the remaining rows.
  void AddTiles(int32_t index, const Segment& segment);
  AtpTile TileAt(int32_t index, const Segment& segment, int64_t row) const;
  // Cuts tiles into batches and their runs.
  void AddRuns();
  void AddSpread(int32_t tile);
  void PadBatch();
  void CloseBatch();
  void AddCompression();
  void AddMerging();
  // Adds task `t` of a block, of which kv_head, n_heads, n_merged, n and n_cols are set.
  void AddTask(const CompressTask& of, AtpCompressTask t, CompressBatch& open);
  void CloseTasks(CompressBatch& open);
  absl::Status Prepare();

  int64_t SlotFloats() const;
  AtpReadArgs ReadArgs(const LayerRows& rows) const;
  void Compress(int64_t layer);
  void AttendBatch(const Batch& batch, const AtpReadArgs& read);

  Device& device_;
  const AtpModel model_;
  DeviceStandard exact_;
  std::vector<Segment> exact_segments_;  // of the step's rows

  // The step's tables.
  PlanTable<AtpSequence> sequences_;
  PlanTable<AtpTile> tiles_;
  PlanTable<void*> pages_, blocks_;
  PlanTable<CacheSlot> cache_slots_;
  PlanTable<AtpPartRun> runs_, score_runs_, late_runs_;
  PlanTable<int32_t> choices_, combined_;
  PlanTable<AtpCompressTask> tasks_;
  PackedTables tables_;

  std::vector<Batch> batches_;
  Batch open_;
  std::vector<CompressBatch> compress_batches_;
  bool decodes_ = false;   // every sequence has one row
  int64_t n_rows_ = 0;     // rows that are not exact
  CacheSlots page_slots_;  // their places
  int64_t max_rank_ = 0, max_tile_rows_ = 0, max_refined_ = 0;
  Buffer slots_, scores_, weights_, chosen_, compress_scratch_;
};

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_ATTENTION_ATP_DEVICE_H_
