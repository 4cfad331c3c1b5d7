#ifndef LOWKEY_ENGINE_ATTENTION_ATP_DEVICE_H_
#define LOWKEY_ENGINE_ATTENTION_ATP_DEVICE_H_

#include <vector>

#include "engine/attention/atp/policy.h"
#include "engine/attention/place/packed_tables.h"
#include "engine/attention/standard/device.h"
#include "engine/kernels/device/kernels.h"

namespace lowkey {

// Atp by a device's kernels, over pages and blocks in its memory; the host waits for nothing.
//
// Rows that read everything exactly are the standard mechanism's, over the same pages. Another
// row's softmax is a fold of parts on an absolute grid (device_atp.h), in one order: tiles of
// rows that are few are computed part by part and joined, many fold on the way, to the same bits.
class DeviceAtp : public AtpPolicy {
 public:
  // Whether the kernels are made for the model, and for a sequence's options.
  static bool Fits(const AttentionGeometry& geometry);
  static bool Serves(const AttentionOptions& options);

  explicit DeviceAtp(const AttentionContext& context);

  absl::Status Plan(absl::Span<const Segment> segments) override;
  // Of steps of one row a sequence that close no block.
  std::optional<uint64_t> PlanKey() const override;
  bool OnlyQueues(const AttentionOptions&) const override { return true; }
  void Attend(const LayerRows& rows) override;

 private:
  // Entries [begin, end) of a table.
  struct Range {
    int64_t begin = 0, end = 0;
    int64_t size() const { return end - begin; }
  };
  // What is computed before the slots, scores and choices are used again: items, scores of tiles
  // that refine and their choices, items that need those, and the joining of slots.
  struct Batch {
    Range items, scores, choices, late_items, combined;
    int64_t n_slots = 0, n_scores = 0;
  };
  struct CompressBatch {
    AtpCompressArgs sizes;  // of its tasks
    Range tasks;
    void (*DeviceKernels::*way)(Device&, const AtpCompressArgs&) = &DeviceKernels::atp_compress;
  };

  void ClearTables();
  // Of a segment, its first ones: that read everything exactly.
  int64_t NumExactRows(const Segment& segment) const;
  void AddSequence(const Segment& segment);
  // Of the rows that are left.
  void AddTiles(int32_t index, const Segment& segment);
  AtpTile TileAt(int32_t index, const Segment& segment, int64_t row) const;
  // Cuts tiles into batches and their items.
  void AddItems();
  void AddSpread(int32_t tile);
  void CloseBatch();
  void AddCompression();
  void AddMerging();
  void AddTask(const AtpCompressTask& task, int64_t rank, CompressBatch& open);
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

  // The step's tables, and where they are on the device.
  std::vector<AtpSequence> sequences_;
  std::vector<AtpTile> tiles_;
  std::vector<void*> pages_, blocks_;
  std::vector<int32_t> row_sequences_, row_offsets_;
  std::vector<AtpPartRun> items_, score_items_, late_items_;
  std::vector<int32_t> choices_, combined_;
  std::vector<AtpCompressTask> tasks_;
  // On the device, from which byte on.
  struct {
    int64_t sequences = 0, tiles = 0, pages = 0, blocks = 0, row_sequences = 0, row_offsets = 0;
    int64_t items = 0, score_items = 0, late_items = 0, choices = 0, combined = 0, tasks = 0;
  } at_;
  PackedTables tables_;

  std::vector<Batch> batches_;
  Batch open_;
  std::vector<CompressBatch> compress_batches_;
  bool decodes_ = false;  // every sequence has one row
  int64_t n_rows_ = 0;    // that are not exact
  int64_t max_rank_ = 0, max_tile_rows_ = 0, max_refined_ = 0;
  Buffer slots_, scores_, weights_, chosen_, compress_scratch_;
};

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_ATTENTION_ATP_DEVICE_H_
