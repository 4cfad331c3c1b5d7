#include "engine/cache/arena.h"

#include <algorithm>

#include "absl/memory/memory.h"
#include "engine/base/round_up.h"
#include "engine/base/status_macros.h"

namespace lowkey {
namespace {

constexpr int64_t kAlignment = 64;
// A slab is not moved to close a gap of less than this part of its size: that would take as many
// copies.
constexpr int64_t kMostPieces = 64;

// Returns where the bytes of a slab end. An empty slab takes some, so that no two have one offset.
int64_t EndOf(const Arena::Place& place) {
  return place.offset + RoundUp(std::max<int64_t>(1, place.size_bytes), kAlignment);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Arena>> Arena::Create(int64_t size_bytes, int64_t page_bytes,
                                                     Memory* memory) {
  LK_ASSIGN_OR_RETURN(
      Buffer data, Buffer::Allocate(static_cast<size_t>(RoundUp(size_bytes, kAlignment)), memory));
  return absl::WrapUnique(new Arena(std::move(data), page_bytes, memory));
}

Arena::Arena(Buffer data, int64_t page_bytes, Memory* memory)
    : memory_(memory),
      data_(std::move(data)),
      size_bytes_(static_cast<int64_t>(data_.size_bytes())),
      page_bytes_(page_bytes) {}

std::optional<int64_t> Arena::TakePage() {
  int64_t slot = end_slot_;
  if (!free_slots_.empty()) {
    slot = *free_slots_.begin();
    free_slots_.erase(free_slots_.begin());
  } else if ((end_slot_ + 1) * page_bytes_ <= slabs_begin()) {
    ++end_slot_;
    number_of_.resize(end_slot_);
  } else {
    return std::nullopt;
  }
  auto number = static_cast<int64_t>(slot_of_.size());
  if (free_numbers_.empty()) {
    slot_of_.push_back(slot);
  } else {
    number = *free_numbers_.begin();
    free_numbers_.erase(free_numbers_.begin());
    slot_of_[number] = slot;
  }
  number_of_[slot] = number;
  return number;
}

void Arena::FreePage(int64_t number) {
  free_numbers_.insert(number);
  free_slots_.insert(slot_of_[number]);
  while (end_slot_ > 0 && free_slots_.erase(end_slot_ - 1) > 0) --end_slot_;
}

void Arena::ReserveNodes(size_t n) {
  while (holes_.size() + spares_.size() < n) {
    if (spares_.capacity() < n) spares_.reserve(2 * n);
    Holes holes = {{0, 0}};
    Sizes sizes = {{0, 0}};
    spares_.push_back({holes.extract(holes.begin()), sizes.extract(sizes.begin())});
  }
}

void Arena::AddHole(int64_t begin, int64_t end) {
  if (begin == end) return;
  HoleNodes nodes = std::move(spares_.back());
  spares_.pop_back();
  nodes.hole.key() = begin;
  nodes.hole.mapped() = end;
  nodes.size.value() = {end - begin, begin};
  holes_.insert(std::move(nodes.hole));
  holes_by_size_.insert(std::move(nodes.size));
}

void Arena::RemoveHole(Holes::iterator hole) {
  const std::pair<int64_t, int64_t> size = {hole->second - hole->first, hole->first};
  spares_.push_back({holes_.extract(hole), holes_by_size_.extract(size)});
}

Arena::Place* Arena::TakeSlab(int64_t size_bytes) {
  auto place = std::make_unique<Place>(Place{0, size_bytes});
  const int64_t n_bytes = EndOf(*place);
  const auto fits = holes_by_size_.lower_bound({n_bytes, 0});
  const bool is_in_hole = fits != holes_by_size_.end();
  const int64_t end = is_in_hole ? fits->second + fits->first : slabs_begin();
  place->offset = end - n_bytes;
  if (!is_in_hole && place->offset < end_slot_ * page_bytes_) return nullptr;
  ReserveNodes(slabs_.size() + 1);
  Place* const taken = place.get();
  slabs_.emplace(taken->offset, std::move(place));
  if (is_in_hole) {
    const int64_t begin = fits->second;
    RemoveHole(holes_.find(begin));
    AddHole(begin, taken->offset);
  }
  return taken;
}

// Makes bytes between slabs, or below them, free.
void Arena::FreeBytes(int64_t begin, int64_t end) {
  const auto above = holes_.find(end);
  if (above != holes_.end()) {
    end = above->second;
    RemoveHole(above);
  }
  auto below = holes_.lower_bound(begin);
  if (below != holes_.begin() && (--below)->second == begin) {
    begin = below->first;
    RemoveHole(below);
  }
  if (begin >= slabs_begin()) AddHole(begin, end);  // else the middle has them
}

void Arena::FreeSlab(Place* place) {
  const int64_t begin = place->offset, end = EndOf(*place);
  slabs_.erase(begin);
  FreeBytes(begin, end);
}

void Arena::ShrinkSlab(int64_t size_bytes, Place& place) {
  const int64_t end = EndOf(place);
  place.size_bytes = size_bytes;
  if (EndOf(place) < end) FreeBytes(EndOf(place), end);
}

bool Arena::Compact() {
  const bool pages_moved = CompactPages(), slabs_moved = CompactSlabs();
  return pages_moved || slabs_moved;
}

// Moves the last pages into the first free slots.
bool Arena::CompactPages() {
  bool moved = false;
  while (!free_slots_.empty()) {
    const int64_t to = *free_slots_.begin(), from = end_slot_ - 1;
    free_slots_.erase(free_slots_.begin());
    memory_->Copy(data_.data() + from * page_bytes_, data_.data() + to * page_bytes_, page_bytes_);
    number_of_[to] = number_of_[from];
    slot_of_[number_of_[to]] = to;
    --end_slot_;
    while (end_slot_ > 0 && free_slots_.erase(end_slot_ - 1) > 0) --end_slot_;
    moved = true;
  }
  return moved;
}

void Arena::MoveUp(const Place& place, int64_t distance) {
  std::byte* const from = data_.data() + place.offset;
  for (int64_t end = place.size_bytes; end > 0;) {
    const int64_t begin = std::max<int64_t>(0, end - distance);
    memory_->Copy(from + begin, from + begin + distance, end - begin);
    end = begin;
  }
}

bool Arena::CompactSlabs() {
  if (holes_.empty()) return false;
  bool moved = false;
  while (!holes_.empty()) RemoveHole(holes_.begin());
  std::map<int64_t, std::unique_ptr<Place>> placed;
  int64_t end = size_bytes_;  // slabs lie from here on
  for (auto slab = slabs_.rbegin(); slab != slabs_.rend(); ++slab) {
    Place& place = *slab->second;
    const int64_t gap = end - EndOf(place);
    if (gap > 0 && gap * kMostPieces >= place.size_bytes) {
      MoveUp(place, gap);
      place.offset += gap;
      moved = true;
    } else {
      AddHole(end - gap, end);
    }
    end = place.offset;
    placed.emplace_hint(placed.begin(), place.offset, std::move(slab->second));
  }
  slabs_ = std::move(placed);
  return moved;
}

}  // namespace lowkey
