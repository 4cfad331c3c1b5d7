#include "engine/cache/slab_regions.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "engine/base/status_macros.h"

namespace lowkey {

absl::StatusOr<SlabRegions::Region*> SlabRegions::AddRegion(int64_t size_bytes) {
  const int64_t n_bytes = std::max({int64_t{1}, size_bytes, kRegionBytes});
  LK_ASSIGN_OR_RETURN(auto arena, Arena::Create(n_bytes, 1, nullptr));
  const int64_t end = arena->size_bytes();
  regions_.push_back({std::move(arena), end});
  return &regions_.back();
}

absl::StatusOr<SlabRegions::Lease> SlabRegions::Take(int64_t size_bytes) {
  Region* region = nullptr;
  Arena::Place* place = nullptr;
  for (Region& r : regions_) {
    place = r.arena->TakeSlab(size_bytes);
    region = &r;
    if (place != nullptr) break;
  }
  if (place == nullptr) {
    LK_ASSIGN_OR_RETURN(region, AddRegion(size_bytes));
    place = region->arena->TakeSlab(size_bytes);
  }
  const int64_t end = place->offset + size_bytes;
  const int64_t written = std::clamp(region->first_used, place->offset, end);
  std::byte* const slab = region->arena->SlabAt(*place);
  std::memset(slab + (written - place->offset), 0, static_cast<size_t>(end - written));
  region->first_used = std::min(region->first_used, place->offset);
  return Lease{region->arena.get(), place};
}

int64_t SlabRegions::written_bytes() const {
  int64_t n_bytes = 0;
  for (const Region& r : regions_) n_bytes += r.arena->size_bytes() - r.first_used;
  return n_bytes;
}

void SlabRegions::Free(const Lease& lease) {
  lease.arena->FreeSlab(lease.place);
  if (!lease.arena->is_empty()) return;
  const auto is_empty = [](const Region& r) { return r.arena->is_empty(); };
  if (std::count_if(regions_.begin(), regions_.end(), is_empty) < 2) return;
  std::erase_if(regions_, [&](const Region& r) { return r.arena.get() == lease.arena; });
}

}  // namespace lowkey
