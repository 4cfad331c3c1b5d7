#include "engine/attention/standard/device.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "engine/attention/pages/paged_kv.h"
#include "engine/base/status_macros.h"
#include "engine/kernels/device/kernels.h"

namespace lowkey {
namespace {

// Memory for rows that are spread over thread blocks: 2 million tokens of decoding steps with 8 KV
// heads of 4 query heads of 128. Tiles that do not fit are not spread.
constexpr int64_t kPartsBytes = int64_t{64} << 20;
// The number of thread blocks that fills a device: more tiles than that are not spread,
constexpr int64_t kEnoughBlocksOfFew = 1024, kEnoughBlocksOfMany = 264;
// except for tiles that read this many times the average.
constexpr int64_t kOutlier = 4;

// Returns the bits of a sequence's closed pages; 0 if it closes none.
int64_t ClosedBits(const AttentionOptions& options) {
  if (!IsQuantized(options)) return 0;
  return options.standard.storage == CacheStorage::kInt8 ? 8 : 4;
}

const std::byte* AddressOf(const PageHandle& page) { return page ? page.data() : nullptr; }

int64_t SpansOf(const RowTileTask& tile) {
  return (tile.end_page - 1) / tile.span_pages - tile.begin_page / tile.span_pages + 1;
}

// Returns the number of tokens before its own that a row sees.
int64_t TokensBefore(const AttentionGeometry& g) {
  constexpr int64_t kAll = std::numeric_limits<int32_t>::max();  // the most that kernels take
  return g.sliding_window.has_value() ? std::min(*g.sliding_window - 1, kAll) : kAll;
}

// Returns the first position behind `position` whose row has longer spans.
int64_t SameSpansEnd(int64_t position, const AttentionGeometry& g) {
  const int64_t end = 16 * kPageTokens * SpanPages(std::min(position, TokensBefore(g)));
  return end > TokensBefore(g) ? std::numeric_limits<int32_t>::max() : end;
}

}  // namespace

void AppendSlots(const Segment& s, PlanTable<CacheSlot>& slots) {
  for (int64_t i = 0; i < s.n_rows; ++i) {
    const int64_t position = s.first_position + i;
    slots.push_back({s.sequence->pages[position / kPageTokens].data(),
                     static_cast<int32_t>(s.first_row + i),
                     static_cast<int32_t>(position % kPageTokens)});
  }
}

bool DeviceStandard::Fits(const AttentionGeometry& g) { return g.head_dim <= kMaxDeviceHeadDim; }

int64_t DeviceStandard::MaxRows(RowTile size) const {
  return MaxTileRows(size, context_.geometry.cache_type, context_.geometry.head_dim);
}

DeviceStandard::Tiles& DeviceStandard::TilesFor(const Segment& s) {
  const int64_t n_rows = s.n_rows * context_.geometry.group();
  const RowTile size =
      n_rows <= MaxRows(RowTile::kFew) || s.n_rows == 1 ? RowTile::kFew : RowTile::kMany;
  const int64_t bits = ClosedBits(s.sequence->options);
  return *std::find_if(tiles_.begin(), tiles_.end(), [&](const Tiles& tiles) {
    return tiles.size == size && tiles.closed_bits == bits;
  });
}

RowTileTask DeviceStandard::TileAt(const Segment& s, int64_t row, int64_t n_rows) const {
  const AttentionGeometry& g = context_.geometry;
  const int64_t first = s.first_position + row / g.group();
  const int64_t last = s.first_position + (row + n_rows - 1) / g.group();
  const int64_t begin_page = std::max<int64_t>(0, first - TokensBefore(g)) / kPageTokens;
  return {.first_position = static_cast<int32_t>(s.first_position),
          .end_position = static_cast<int32_t>(s.first_position + s.n_rows),
          .first_step_row = static_cast<int32_t>(s.first_row),
          .first = static_cast<int32_t>(row),
          .n_rows = static_cast<int32_t>(n_rows),
          .begin_page = static_cast<int32_t>(begin_page),
          .end_page = static_cast<int32_t>(PagesFor(last + 1)),
          .span_pages = static_cast<int32_t>(SpanPages(std::min(first, TokensBefore(g))))};
}

void DeviceStandard::AppendTiles(const Segment& s) {
  const AttentionGeometry& g = context_.geometry;
  const SequenceCache& sequence = *s.sequence;
  const int64_t first_page = std::max<int64_t>(0, s.first_position - TokensBefore(g)) / kPageTokens;
  const int64_t end_page = PagesFor(s.first_position + s.n_rows);
  Tiles& tiles = TilesFor(s);
  const int64_t pages_at = pages_.n() - first_page;
  for (int64_t page = first_page; page < end_page; ++page) {
    pages_.push_back(AddressOf(sequence.pages[page]));
  }
  const int64_t closed_at = pages_.n() - first_page;
  if (tiles.closed_bits > 0) {
    const auto& closed = sequence.state.As<StandardState>().closed_pages;
    for (size_t page = first_page; page < closed.size(); ++page) {
      pages_.push_back(closed[page]->data());
    }
  }
  const size_t first_task = tiles.tasks.size();
  const int64_t n_rows = s.n_rows * g.group();
  for (int64_t row = 0; row < n_rows; row += tiles.tasks.back().n_rows) {
    int64_t n = std::min(MaxRows(tiles.size), n_rows - row);
    // Rows of one page read the same closed pages.
    const int64_t position = s.first_position + row / g.group();
    const int64_t page_end = (position / kPageTokens + 1) * kPageTokens - s.first_position;
    if (tiles.closed_bits > 0) n = std::min(n, page_end * g.group() - row);
    n = std::min(n, (SameSpansEnd(position, g) - s.first_position) * g.group() - row);
    RowTileTask task = TileAt(s, row, n);
    task.pages = pages_at;
    task.closed_pages = closed_at;
    tiles.tasks.push_back(task);
  }
  // The last tile reads most, and begins first.
  std::reverse(tiles.tasks.begin() + static_cast<int64_t>(first_task), tiles.tasks.end());
}

void DeviceStandard::Spread(Tiles& tiles, int64_t& n_part_rows) const {
  const AttentionGeometry& g = context_.geometry;
  const int64_t max_part_rows = kPartsBytes / PartRowBytes(g.n_kv_heads, g.head_dim);
  const int64_t n_tiles = tiles.tasks.n();
  int64_t n_spans = 0;
  for (const RowTileTask& tile : tiles.tasks) n_spans += SpansOf(tile);
  const bool spreads_all = n_tiles * g.n_kv_heads <
                           (tiles.size == RowTile::kFew ? kEnoughBlocksOfFew : kEnoughBlocksOfMany);
  PlanTable<RowTileTask> tasks;
  tiles.joins.assign(n_tiles, {});
  for (int64_t i = 0; i < n_tiles; ++i) {
    RowTileTask task = tiles.tasks[i];
    const int64_t n_parts = SpansOf(task);
    if (n_parts == 1 || n_part_rows + n_parts * task.n_rows > max_part_rows ||
        !(spreads_all || n_parts * n_tiles > kOutlier * n_spans)) {
      tasks.push_back(task);
      continue;
    }
    const auto part = static_cast<int32_t>(n_part_rows);
    tiles.joins[i] = {task.first_step_row, task.first, task.n_rows, static_cast<int32_t>(n_parts),
                      part};
    n_part_rows += n_parts * task.n_rows;
    const int32_t end_page = task.end_page;
    task.n_parts = static_cast<int32_t>(n_parts);
    task.part = part;
    for (; task.begin_page < end_page; task.begin_page = task.end_page) {
      const int32_t span_end = (task.begin_page / task.span_pages + 1) * task.span_pages;
      task.end_page = std::min(end_page, span_end);
      tasks.push_back(task);
      task.part += task.n_rows;
    }
  }
  tiles.tasks = std::move(tasks);
}

absl::Status DeviceStandard::TakeCache(const Segment& s) {
  const AttentionGeometry& g = context_.geometry;
  LK_RETURN_IF_ERROR(TakePages(s, PageBytes(g), *context_.cache));
  const int64_t bits = ClosedBits(s.sequence->options);
  if (bits == 0) return absl::OkStatus();
  LK_RETURN_IF_ERROR(
      TakeClosedPages(s, g.n_layers * g.n_kv_heads * ClosedTileBytes(g.head_dim, bits)));
  const auto& closed = s.sequence->state.As<StandardState>().closed_pages;
  for (size_t page = s.first_position / kPageTokens; page < closed.size(); ++page) {
    closes_.push_back(
        {s.sequence->pages[page].data(), closed[page]->data(), static_cast<int32_t>(bits)});
  }
  return absl::OkStatus();
}

absl::Status DeviceStandard::Plan(absl::Span<const Segment> segments) {
  slots_.clear();
  closes_.clear();
  pages_.clear();
  for (Tiles& tiles : tiles_) tiles.tasks.clear();
  const bool decodes = IsDecodeStep(segments);
  for (const Segment& segment : segments) {
    LK_RETURN_IF_ERROR(TakeCache(segment));
    AppendSlots(segment, slots_);
    AppendTiles(segment);
  }
  int64_t n_part_rows = 0;
  for (Tiles& tiles : tiles_) Spread(tiles, n_part_rows);
  has_joins_ = n_part_rows > 0;
  if (decodes) PadTables();
  LK_RETURN_IF_ERROR(UploadTables());
  key_ = std::nullopt;
  if (decodes) key_ = KeyOfPlan();
  return absl::OkStatus();
}

// Adds entries that do nothing, which make the launches of different steps equal.
void DeviceStandard::PadTables() {
  PadTable(slots_);
  PadTable(closes_);
  for (Tiles& tiles : tiles_) {
    PadTable(tiles.tasks);
    PadTable(tiles.joins);
  }
}

uint64_t DeviceStandard::KeyOfPlan() const {
  std::vector<int64_t> numbers = {static_cast<int64_t>(n_moves_), has_joins_ ? 1 : 0, slots_.n(),
                                  closes_.n()};
  for (const Tiles& tiles : tiles_) {
    numbers.insert(numbers.end(), {tiles.tasks.n(), tiles.joins.n()});
  }
  return KeyOf(numbers);
}

absl::Status DeviceStandard::UploadTables() {
  Device& device = *context_.place->device;
  tables_.Clear();
  tables_.Add(slots_);
  tables_.Add(closes_);
  for (Tiles& tiles : tiles_) {
    tables_.Add(tiles.tasks);
    tables_.Add(tiles.joins);
  }
  // Last: the number of pages does not tell plans apart.
  tables_.Add(pages_);
  const void* before = tables_.data();
  LK_RETURN_IF_ERROR(tables_.Upload(device));
  if (tables_.data() != before) ++n_moves_;
  page_slots_ = {tables_.At(slots_), slots_.n(), context_.geometry.cache_type};
  if (has_joins_ && parts_.size_bytes() == 0) {
    LK_ASSIGN_OR_RETURN(parts_, Buffer::Allocate(kPartsBytes, &device));
    ++n_moves_;
  }
  return absl::OkStatus();
}

AttendArgs DeviceStandard::ArgsOf(const LayerRows& rows) {
  const AttentionGeometry& g = context_.geometry;
  AttendArgs args = {.pages = tables_.At(pages_),
                     .cache_type = g.cache_type,
                     .layer = rows.layer,
                     .n_kv_heads = g.n_kv_heads,
                     .group = g.group(),
                     .head_dim = g.head_dim,
                     .n_before = TokensBefore(g),
                     .q = rows.q,
                     .ld_q = rows.ld_qkv,
                     .out = rows.out,
                     .ld_out = rows.ld_out,
                     .rounded = rows.rounded};
  if (!has_joins_) return args;
  const int64_t n_part_rows = kPartsBytes / PartRowBytes(g.n_kv_heads, g.head_dim);
  args.parts = parts_.as<float>();
  args.part_states = args.parts + n_part_rows * g.n_kv_heads * g.head_dim;
  return args;
}

void DeviceStandard::ClosePages(int64_t layer) {
  const AttentionGeometry& g = context_.geometry;
  Device& device = *context_.place->device;
  if (closes_.empty()) return;
  device.kernels().close_pages(
      device, {tables_.At(closes_), closes_.n(), g.cache_type, layer, g.n_kv_heads, g.head_dim});
}

void DeviceStandard::AttendTiles(const Tiles& tiles, AttendArgs args) {
  Device& device = *context_.place->device;
  if (tiles.tasks.empty()) return;
  args.tile = tiles.size;
  args.closed_bits = tiles.closed_bits;
  args.tasks = tables_.At(tiles.tasks);
  args.n_tasks = tiles.tasks.n();
  args.joins = tables_.At(tiles.joins);
  args.n_joins = tiles.joins.n();
  device.kernels().attend(device, args);
  if (has_joins_) device.kernels().join_parts(device, args);
}

void DeviceStandard::Attend(const LayerRows& rows) {
  const AttentionGeometry& g = context_.geometry;
  Device& device = *context_.place->device;
  if (rows.k != nullptr) {
    device.kernels().write_kv(
        device, {page_slots_, rows.layer, g.n_kv_heads, g.head_dim, rows.k, rows.v, rows.ld_qkv});
  }
  ClosePages(rows.layer);
  const AttendArgs args = ArgsOf(rows);
  for (const Tiles& tiles : tiles_) AttendTiles(tiles, args);
}

}  // namespace lowkey
