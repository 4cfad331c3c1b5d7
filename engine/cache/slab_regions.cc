#include "engine/cache/slab_regions.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "engine/base/status_macros.h"

namespace lowkey {

absl::StatusOr<SlabRegions::Region*> SlabRegions::AddRegion(int64_t size_bytes) {
  const int64_t n_bytes = std::max({int64_t{1}, size_bytes, kRegionBytes});
  LK_ASSIGN_OR_RETURN(auto arena, Arena::Create(n_bytes, 1, nullptr));
  std::vector<SystemPage> pages(static_cast<size_t>(PageFrom(arena->size_bytes())));
  regions_.push_back({std::move(arena), std::move(pages)});
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
  EnterPages(*region, *place);
  return Lease{region->arena.get(), place, region};
}

// Counts a new slab in its pages, and zeros its bytes in those that were written.
void SlabRegions::EnterPages(Region& region, const Arena::Place& place) {
  const int64_t end = place.offset + place.size_bytes;
  std::byte* const slab = region.arena->SlabAt(place);
  for (int64_t i = place.offset / page_bytes_; i < PageFrom(end); ++i) {
    SystemPage& page = region.pages[i];
    if (page.is_idle()) {
      --region.n_idle;
      --n_idle_;
    }
    if (page.is_written) {
      const int64_t from = std::max(place.offset, i * page_bytes_);
      const int64_t to = std::min(end, (i + 1) * page_bytes_);
      std::memset(slab + (from - place.offset), 0, static_cast<size_t>(to - from));
    } else {
      page.is_written = true;
      ++n_written_;
    }
    ++page.n_slabs;
  }
}

void SlabRegions::LeavePages(Region& region, int64_t first, int64_t end) {
  for (int64_t i = first; i < end; ++i) {
    if (--region.pages[i].n_slabs > 0) continue;
    ++region.n_idle;
    ++n_idle_;
  }
}

void SlabRegions::Free(const Lease& lease) {
  Region& region = *lease.region;
  const int64_t begin = lease.place->offset, end = begin + lease.place->size_bytes;
  LeavePages(region, begin / page_bytes_, PageFrom(end));
  lease.arena->FreeSlab(lease.place);
  if (!lease.arena->is_empty()) return;
  const auto is_empty = [](const Region& r) { return r.arena->is_empty(); };
  if (std::count_if(regions_.begin(), regions_.end(), is_empty) < 2) return;
  n_written_ -= region.n_idle;
  n_idle_ -= region.n_idle;
  regions_.remove_if([&](const Region& r) { return &r == &region; });
}

void SlabRegions::Shrink(int64_t size_bytes, const Lease& lease) {
  const int64_t begin = lease.place->offset, end = begin + lease.place->size_bytes;
  lease.arena->ShrinkSlab(size_bytes, *lease.place);
  LeavePages(*lease.region, std::max(begin / page_bytes_, PageFrom(begin + size_bytes)),
             PageFrom(end));
}

void SlabRegions::GiveBack(int64_t max_written_bytes) {
  for (Region& region : regions_) {
    if (n_idle_ == 0 || written_bytes() <= max_written_bytes) return;
    if (region.n_idle > 0) GiveBackIdle(region);
  }
}

// Gives all idle pages of a region back: whoever asks will soon ask for more, and every page of the
// region is looked at either way.
void SlabRegions::GiveBackIdle(Region& region) {
  const auto is_idle = [](const SystemPage& page) { return page.is_idle(); };
  const auto pages_begin = region.pages.begin(), pages_end = region.pages.end();
  for (auto end = pages_begin;;) {
    const auto begin = std::find_if(end, pages_end, is_idle);
    if (begin == pages_end) return;
    end = std::find_if_not(begin, pages_end, is_idle);
    // A region that the system does not map has no pages to give back.
    if (!region.arena->GiveBack((begin - pages_begin) * page_bytes_,
                                (end - pages_begin) * page_bytes_)) {
      return;
    }
    std::fill(begin, end, SystemPage());
    n_written_ -= end - begin;
    n_idle_ -= end - begin;
    region.n_idle -= end - begin;
  }
}

}  // namespace lowkey
