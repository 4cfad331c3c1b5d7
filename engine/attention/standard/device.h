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

// Appends the places of a segment's rows in the pages, which the sequence holds.
void AppendSlots(const Segment& segment, PlanTable<CacheSlot>& slots);

// Softmax attention over pages in a device's memory, by its own kernels
// (engine/kernels/device/attention.h). The host plans the work of a step's thread blocks and
// uploads the plan.
class DeviceStandard : public StandardPolicy {
 public:
  // Returns whether the kernels are made for the model; the host computes attention for others.
  static bool Fits(const AttentionGeometry& geometry);

  // The geometry fits; context.place is set.
  DeviceStandard(Mechanism id, const AttentionContext& context) : StandardPolicy(id, context) {}

  // Returns RESOURCE_EXHAUSTED also when the device has no memory for tables.
  absl::Status Plan(absl::Span<const Segment> segments) override;
  // Keys exist for steps of one row per sequence.
  std::optional<uint64_t> PlanKey() const override { return key_; }
  bool OnlyQueues(const AttentionOptions&) const override { return true; }
  const CacheSlots* PageWrites() const override { return &page_slots_; }
  bool RoundsResults() const override { return true; }
  void Attend(const LayerRows& rows) override;

 private:
  // Tiles of one size, whose closed pages have closed_bits per number (0: no page is closed). Each
  // tile is one task; where tiles are few, each span of a tile is one.
  struct Tiles {
    RowTile size = RowTile::kFew;
    int64_t closed_bits = 0;
    PlanTable<RowTileTask> tasks = {};
    PlanTable<JoinTask> joins = {};  // by tile; no rows where it was not spread
  };

  int64_t MaxRows(RowTile size) const;
  Tiles& TilesFor(const Segment& segment);
  absl::Status TakeCache(const Segment& segment);
  void AppendTiles(const Segment& segment);
  // Returns rows [row, row + n_rows) of the segment as one tile, without its pages.
  RowTileTask TileAt(const Segment& segment, int64_t row, int64_t n_rows) const;
  // Cuts tiles into spans. Part rows are numbered from n_part_rows on.
  void Spread(Tiles& tiles, int64_t& n_part_rows) const;
  absl::Status UploadTables();
  void PadTables();
  uint64_t KeyOfPlan() const;
  AttendArgs ArgsOf(const LayerRows& rows);
  void ClosePages(int64_t layer);
  void AttendTiles(const Tiles& tiles, AttendArgs args);

  PlanTable<CacheSlot> slots_;
  CacheSlots page_slots_;  // slots_ on the device
  PlanTable<ClosePageTask> closes_;
  std::array<Tiles, 6> tiles_{{{RowTile::kFew, 0},
                               {RowTile::kMany, 0},
                               {RowTile::kFew, 8},
                               {RowTile::kMany, 8},
                               {RowTile::kFew, 4},
                               {RowTile::kMany, 4}}};
  PlanTable<const std::byte*> pages_;
  bool has_joins_ = false;
  std::optional<uint64_t> key_;

  PackedTables tables_;
  Buffer parts_;          // partial rows of PartRowBytes each, then states
  uint64_t n_moves_ = 0;  // how often tables_ and parts_ moved
};

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_ATTENTION_STANDARD_DEVICE_H_
