#ifndef LOWKEY_ENGINE_CACHE_SLAB_REGIONS_H_
#define LOWKEY_ENGINE_CACHE_SLAB_REGIONS_H_

#include <cstdint>
#include <list>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/cache/arena.h"

namespace lowkey {

// The host's memory for slabs of any size, in regions that the system can back with huge pages. A
// mapping for each slab would be rounded up to huge pages, or have none. A region goes back to the
// system when it is empty and another one is. Slabs do not move, so that gaps between them can be
// too small for every slab to come: GiveBack gives the memory of such gaps back. One thread.
class SlabRegions {
  struct Region;

 public:
  // Says where a slab lies.
  struct Lease {
    Arena* arena = nullptr;
    Arena::Place* place = nullptr;
    Region* region = nullptr;  // nullptr: the slab lies in an arena of no region
  };

  // Under AddressSanitizer every slab is a region, so that it sees who reads beyond one.
  static constexpr int64_t kRegionBytes =
#if defined(__SANITIZE_ADDRESS__)
      0;
#else
      int64_t{32} << 20;
#endif

  // Takes a slab of zeros, aligned to 64 bytes, which counts as written from now on. Writes nothing
  // where memory was never written or was given back. RESOURCE_EXHAUSTED when the machine has no
  // memory for the slab.
  absl::StatusOr<Lease> Take(int64_t size_bytes);
  // Free and Shrink need no memory themselves.
  void Free(const Lease& lease);
  // Frees the bytes of a slab from size_bytes on.
  void Shrink(int64_t size_bytes, const Lease& lease);

  // Returns the bytes of the system's pages that slabs have, or had and that were not given back.
  int64_t written_bytes() const { return n_written_ * page_bytes_; }
  // Gives memory that no slab has back to the system until at most max_written_bytes are written,
  // or every such page is given back. At most two pages for each slab then hold free bytes too.
  void GiveBack(int64_t max_written_bytes);

  int64_t n_regions() const { return static_cast<int64_t>(regions_.size()); }

 private:
  // One of the system's pages.
  struct SystemPage {
    uint16_t n_slabs = 0;  // that have bytes of the page
    bool is_written = false;
    bool is_idle() const { return is_written && n_slabs == 0; }
  };
  struct Region {
    std::unique_ptr<Arena> arena;
    std::vector<SystemPage> pages;
    int64_t n_idle = 0;
  };

  absl::StatusOr<Region*> AddRegion(int64_t size_bytes);
  // Returns the number of the first page from that byte of a region on.
  int64_t PageFrom(int64_t offset) const { return (offset + page_bytes_ - 1) / page_bytes_; }
  void EnterPages(Region& region, const Arena::Place& place);
  void LeavePages(Region& region, int64_t first, int64_t end);
  void GiveBackIdle(Region& region);

  const int64_t page_bytes_ = static_cast<int64_t>(SystemPageBytes());
  std::list<Region> regions_;
  int64_t n_written_ = 0;  // pages of all regions
  int64_t n_idle_ = 0;     // those of them that no slab has
};

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_CACHE_SLAB_REGIONS_H_
