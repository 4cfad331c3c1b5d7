#ifndef LOWKEY_ENGINE_ATTENTION_DEVICE_STANDARD_H_
#define LOWKEY_ENGINE_ATTENTION_DEVICE_STANDARD_H_

#include <optional>
#include <vector>

#include "engine/attention/device/packed_tables.h"
#include "engine/attention/standard_cache.h"
#include "engine/base/buffer.h"
#include "engine/kernels/device_attention.h"

namespace lowkey {

// Softmax attention over pages in a device's memory, by its own kernels (device_attention.h). What
// a step's blocks do is planned on the host and uploaded once a step.
class DeviceStandardAttention : public StandardCacheMechanism {
 public:
  // Whether the kernels compute it. Else the host has to.
  static bool Serves(const AttentionGeometry& geometry);

  // The geometry is one that it serves; context.place is set.
  explicit DeviceStandardAttention(const AttentionContext& context)
      : StandardCacheMechanism(context) {}

  // FAILED_PRECONDITION for a quantised cache.
  absl::Status CheckAvailable(const AttentionOptions& options) const override;
  // RESOURCE_EXHAUSTED also when the device has no memory for tables.
  absl::Status Plan(absl::Span<const Segment> segments) override;
  // Steps of one row a sequence.
  std::optional<uint64_t> PlanKey() const override { return key_; }
  void Attend(const LayerRows& rows) override;

 private:
  // Tiles of one size, each one task; then, where there are few, a task for each span.
  struct Tiles {
    RowTile size = RowTile::kFew;
    std::vector<RowTileTask> tasks;
    std::vector<JoinTask> joins;  // of each tile; no rows where it was not spread
  };

  int64_t MaxRows(RowTile size) const;
  void AppendSlots(const Segment& segment);
  void AppendTiles(const Segment& segment);
  // Part rows are numbered from n_part_rows on.
  void Spread(Tiles& tiles, int64_t& n_part_rows) const;
  absl::Status UploadTables();
  AttendArgs ArgsOf(const LayerRows& rows);
  void AttendTiles(const Tiles& tiles, int64_t tasks_at, int64_t joins_at, AttendArgs args);

  std::vector<CacheSlot> slots_;
  Tiles few_{RowTile::kFew, {}, {}}, many_{RowTile::kMany, {}, {}};
  std::vector<const std::byte*> pages_;
  bool has_joins_ = false;
  std::optional<uint64_t> key_;

  PackedTables tables_;
  struct {
    int64_t slots = 0, few = 0, few_joins = 0, many = 0, many_joins = 0, pages = 0;
  } at_;
  Buffer parts_;          // PartRowBytes each, then states
  uint64_t n_moves_ = 0;  // of tables_ and parts_
};

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_ATTENTION_DEVICE_STANDARD_H_
