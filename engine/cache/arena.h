#ifndef LOWKEY_ENGINE_CACHE_ARENA_H_
#define LOWKEY_ENGINE_CACHE_ARENA_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/base/buffer.h"

namespace lowkey {

// One region of a device's memory that holds pages of one size and slabs of any size. Pages lie
// from its begin up, slabs from its end down, and the free middle serves both. Nothing is allocated
// or zeroed after Create: pages and slabs have the contents that their bytes had before.
//
// Compact moves pages and slabs, so that addresses hold until the next Compact only. A page keeps
// its number, and a slab its Place. One thread.
class Arena {
 public:
  // A slab lies here until it is freed or moved.
  struct Place {
    int64_t offset = 0;      // bytes from the begin of the arena
    int64_t size_bytes = 0;  // as asked for
  };

  // An arena that is larger than all that it holds by this part always has room after Compact, if
  // no slab has less than 4 KiB: gaps take less than a 64th of the slabs, and rounding as much.
  static constexpr int64_t kSlackPart = 32;

  // `memory` outlives the arena. RESOURCE_EXHAUSTED when it has no such room.
  static absl::StatusOr<std::unique_ptr<Arena>> Create(int64_t size_bytes, int64_t page_bytes,
                                                       Memory* memory);

  // Takes a page and returns its number, the lowest free one; nullopt when no free bytes in one
  // piece are enough.
  std::optional<int64_t> TakePage();
  void FreePage(int64_t number);
  std::byte* PageAt(int64_t number) { return data_.data() + slot_of_[number] * page_bytes_; }

  // Takes a slab, aligned to 64 bytes; nullptr when no free bytes in one piece are enough. The
  // place is the arena's and lasts until FreeSlab, which needs no memory itself, as ShrinkSlab does
  // not.
  Place* TakeSlab(int64_t size_bytes);
  void FreeSlab(Place* place);
  // Frees the bytes of a slab from size_bytes on.
  void ShrinkSlab(int64_t size_bytes, Place& place);
  std::byte* SlabAt(const Place& place) { return data_.data() + place.offset; }

  // Calls Buffer::GiveBack for bytes of the host that no page and no slab has.
  bool GiveBack(int64_t begin, int64_t end) {
    return data_.GiveBack(static_cast<size_t>(begin), static_cast<size_t>(end));
  }

  int64_t size_bytes() const { return size_bytes_; }
  // Returns whether the arena holds no slab.
  bool is_empty() const { return slabs_.empty(); }

  // Moves pages down and slabs up, so that the free bytes are in one piece, but for gaps that are
  // less than a 64th of the slab below them. Queues the copies behind what was queued before.
  // Returns whether anything moved.
  bool Compact();

 private:
  Arena(Buffer data, int64_t page_bytes, Memory* memory);

  using Holes = std::map<int64_t, int64_t>;
  using Sizes = std::set<std::pair<int64_t, int64_t>>;
  // The nodes of one hole in both containers.
  struct HoleNodes {
    Holes::node_type hole;
    Sizes::node_type size;
  };

  // Makes nodes for as many holes as `n` slabs can leave between them.
  void ReserveNodes(size_t n);
  int64_t slabs_begin() const { return slabs_.empty() ? size_bytes_ : slabs_.begin()->first; }
  void AddHole(int64_t begin, int64_t end);
  void RemoveHole(Holes::iterator hole);
  void FreeBytes(int64_t begin, int64_t end);
  bool CompactPages();
  bool CompactSlabs();
  // Copies a slab upwards by `distance` bytes; the two places may overlap.
  void MoveUp(const Place& place, int64_t distance);

  Memory* const memory_;
  Buffer data_;
  const int64_t size_bytes_, page_bytes_;
  // Slot i of pages is [i * page_bytes_, ..); slots from end_slot_ on are free.
  std::vector<int64_t> slot_of_;    // by page number
  std::vector<int64_t> number_of_;  // by slot
  std::set<int64_t> free_slots_;    // below end_slot_
  std::set<int64_t> free_numbers_;  // below slot_of_.size()
  int64_t end_slot_ = 0;
  std::map<int64_t, std::unique_ptr<Place>> slabs_;  // by offset
  Holes holes_;                                      // free bytes between slabs: begin to end
  Sizes holes_by_size_;                              // (size, begin)
  std::vector<HoleNodes> spares_;  // with those of holes_ as many as there are slabs, or more
};

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_CACHE_ARENA_H_
