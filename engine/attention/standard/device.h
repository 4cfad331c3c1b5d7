#ifndef LOWKEY_ENGINE_ATTENTION_STANDARD_DEVICE_H_
#define LOWKEY_ENGINE_ATTENTION_STANDARD_DEVICE_H_

#include <array>
#include <optional>
#include <vector>

#include "engine/attention/place/packed_tables.h"
#include "engine/attention/standard/policy.h"
#include "engine/base/buffer.h"
#include "engine/kernels/device/attention.h"

namespace lowkey {

// Softmax attention over pages in a device's memory, by its own kernels (device_attention.h). What
// a step's blocks do is planned on the host and uploaded once a step.
class DeviceStandard : public StandardPolicy {
 public:
  // Whether the kernels are made for the model; the host attends to others.
  static bool Fits(const AttentionGeometry& geometry);

  // The geometry fits; context.place is set.
  explicit DeviceStandard(const AttentionContext& context) : StandardPolicy(context) {}

  // RESOURCE_EXHAUSTED also when the device has no memory for tables.
  absl::Status Plan(absl::Span<const Segment> segments) override;
  // Steps of one row a sequence.
  std::optional<uint64_t> PlanKey() const override { return key_; }
  bool OnlyQueues(const AttentionOptions&) const override { return true; }
  void Attend(const LayerRows& rows) override;

 private:
  // Tiles of one size over pages that are closed to so many bits (0: not at all), each one task;
  // then, where there are few, a task for each span.
  struct Tiles {
    RowTile size = RowTile::kFew;
    int64_t closed_bits = 0;
    std::vector<RowTileTask> tasks = {};
    std::vector<JoinTask> joins = {};    // of each tile; no rows where it was not spread
    int64_t tasks_at = 0, joins_at = 0;  // in tables_
  };

  int64_t MaxRows(RowTile size) const;
  Tiles& TilesFor(const Segment& segment);
  absl::Status TakeCache(const Segment& segment);
  void AppendSlots(const Segment& segment);
  void AppendTiles(const Segment& segment);
  // Rows [row, row + n_rows) of the segment as one tile, but for where its pages are.
  RowTileTask TileAt(const Segment& segment, int64_t row, int64_t n_rows) const;
  // Part rows are numbered from n_part_rows on.
  void Spread(Tiles& tiles, int64_t& n_part_rows) const;
  absl::Status UploadTables();
  uint64_t KeyOfPlan() const;
  AttendArgs ArgsOf(const LayerRows& rows);
  void ClosePages(int64_t layer);
  void AttendTiles(const Tiles& tiles, AttendArgs args);

  std::vector<CacheSlot> slots_;
  std::vector<ClosePageTask> closes_;
  std::array<Tiles, 6> tiles_{{{RowTile::kFew, 0},
                               {RowTile::kMany, 0},
                               {RowTile::kFew, 8},
                               {RowTile::kMany, 8},
                               {RowTile::kFew, 4},
                               {RowTile::kMany, 4}}};
  std::vector<const std::byte*> pages_;
  bool has_joins_ = false;
  std::optional<uint64_t> key_;

  PackedTables tables_;
  struct {
    int64_t slots = 0, closes = 0, pages = 0;
  } at_;
  Buffer parts_;          // PartRowBytes each, then states
  uint64_t n_moves_ = 0;  // of tables_ and parts_
};

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_ATTENTION_STANDARD_DEVICE_H_
