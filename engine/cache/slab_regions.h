#ifndef LOWKEY_ENGINE_CACHE_SLAB_REGIONS_H_
#define LOWKEY_ENGINE_CACHE_SLAB_REGIONS_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/cache/arena.h"

namespace lowkey {

// The host's memory for slabs of any size, in regions that the system can back with huge pages. A
// mapping for each slab would be rounded up to huge pages, or have none. A region goes back to the
// system when it is empty and another one is. One thread.
class SlabRegions {
 public:
  // Says where a slab lies.
  struct Lease {
    Arena* arena = nullptr;
    Arena::Place* place = nullptr;
  };

  // Under AddressSanitizer every slab is a region, so that it sees who reads beyond one.
  static constexpr int64_t kRegionBytes =
#if defined(__SANITIZE_ADDRESS__)
      0;
#else
      int64_t{32} << 20;
#endif

  // Takes a slab of zeros, aligned to 64 bytes. RESOURCE_EXHAUSTED when the machine has no memory
  // for it.
  absl::StatusOr<Lease> Take(int64_t size_bytes);
  void Free(const Lease& lease);

  // Returns how much memory was ever written, and not given back.
  int64_t written_bytes() const;

  int64_t n_regions() const { return static_cast<int64_t>(regions_.size()); }

 private:
  struct Region {
    std::unique_ptr<Arena> arena;
    int64_t first_used = 0;  // bytes before it were never written
  };
  absl::StatusOr<Region*> AddRegion(int64_t size_bytes);

  std::vector<Region> regions_;
};

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_CACHE_SLAB_REGIONS_H_
