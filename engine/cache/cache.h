#ifndef LOWKEY_ENGINE_CACHE_CACHE_H_
#define LOWKEY_ENGINE_CACHE_CACHE_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/functional/any_invocable.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/buffer.h"
#include "engine/base/round_up.h"
#include "engine/cache/arena.h"
#include "engine/cache/slab_regions.h"

namespace lowkey {

class Cache;
class Slab;

// Tells the pages and slabs that are held from one another: the addresses of their bytes may
// change.
using MemoryId = std::pair<const void*, int64_t>;
inline MemoryId IdOf(const Slab& slab) { return {&slab, -1}; }
inline bool IsSlab(const MemoryId& memory) { return memory.second == -1; }

// A counted reference to one page: one of the cache's, or a slab where a page has another size.
// Copies share the page; the last copy to go returns it. Write only while unique(). Used by the
// engine's thread alone; must not outlive its Cache.
class PageHandle {
 public:
  PageHandle() = default;
  explicit PageHandle(std::shared_ptr<Slab> slab) : slab_(std::move(slab)) {}
  PageHandle(const PageHandle& other);
  PageHandle(PageHandle&& other) noexcept;
  PageHandle& operator=(PageHandle other) noexcept;
  ~PageHandle();

  explicit operator bool() const { return cache_ != nullptr || slab_ != nullptr; }
  std::byte* data() const;
  int64_t size_bytes() const;
  bool unique() const;
  // Tells the memory from other memory that is held, wherever it moves (Cache::FitIn).
  MemoryId id() const { return slab_ != nullptr ? IdOf(*slab_) : MemoryId(cache_, number_); }

 private:
  friend class Cache;
  PageHandle(Cache* cache, int64_t number) : cache_(cache), number_(number) {}

  Cache* cache_ = nullptr;  // nullptr: the page is slab_, if there is one
  int64_t number_ = 0;
  std::shared_ptr<Slab> slab_;
};

// Memory of any size, counted against the same budget as pages (principal blocks, states). Shared
// by std::shared_ptr; immutable once other sequences may hold it.
class Slab {
 public:
  ~Slab();
  Slab(const Slab&) = delete;
  Slab& operator=(const Slab&) = delete;
  std::byte* data() { return const_cast<std::byte*>(std::as_const(*this).data()); }
  const std::byte* data() const;
  int64_t size_bytes() const;
  // Keeps the first size_bytes (at most all of them) and gives the rest back.
  void Shrink(int64_t size_bytes);

 private:
  friend class Cache;
  explicit Slab(Cache* cache) : cache_(cache) {}

  Cache* const cache_;
  SlabRegions::Lease lease_;
};

// Pages of one size and slabs of any size under one budget of bytes. The cache knows nothing of
// requests. Invariant: used_bytes() = page_bytes * live pages + bytes of live slabs <=
// budget_bytes(). One thread, except used_bytes().
//
// On the host the system gives memory as it is first written, and slabs lie in regions of their
// own. Before more than the budget would have been written, free pages go back to the system, and
// then the gaps between slabs: what stays beyond the budget is less than two of the system's pages
// for each slab, and what the system's huge pages take in advance.
//
// On a device pages and slabs are taken from one arena, without an allocation. It is a little
// larger than the budget, so that no gaps between slabs make it refuse what the budget has.
class Cache {
 public:
  // Reserves address space for the budget, or takes all of a device's. RESOURCE_EXHAUSTED when that
  // fails, INVALID_ARGUMENT when the budget holds no page. Pages and slabs lie in `memory`, which
  // outlives the cache; nullptr means the host's memory.
  static absl::StatusOr<std::unique_ptr<Cache>> Create(int64_t budget_bytes, int64_t page_bytes,
                                                       Memory* memory = nullptr);
  // Makes a cache of the host that reserves its address space when the first page is asked for.
  // INVALID_ARGUMENT when the budget holds no page.
  static absl::StatusOr<std::unique_ptr<Cache>> CreateUnreserved(int64_t budget_bytes,
                                                                 int64_t page_bytes);
  ~Cache();  // every handle and slab must be gone

  // Sets a function to call while an allocation would pass the budget: it drops handles or slabs
  // that nobody needs, or returns false when there are none.
  void SetReclaimer(absl::AnyInvocable<bool()> reclaim) { reclaim_ = std::move(reclaim); }

  // Returns a page with the contents it had before, or zeros. RESOURCE_EXHAUSTED past the budget,
  // or where no free memory in one piece is enough (FitIn).
  absl::StatusOr<PageHandle> AllocatePage();
  // Returns a page of any size: one of the cache's own where the size is theirs, else a slab.
  absl::StatusOr<PageHandle> AllocatePage(int64_t size_bytes);
  // Returns a slab: zeros on the host, on a device what the bytes were before. RESOURCE_EXHAUSTED
  // past the budget or the machine's memory, or where no free memory in one piece is enough.
  absl::StatusOr<std::shared_ptr<Slab>> AllocateSlab(int64_t size_bytes);

  // Makes `slab` one that nobody else holds: takes a slab of size_bytes where `slab` is null, and
  // copies it, size_bytes long, where others hold it too. AllocateSlab's errors leave it as it was.
  absl::Status MakeOwn(int64_t size_bytes, std::shared_ptr<Slab>& slab);

  // Calls `take`, which takes pages and slabs and returns RESOURCE_EXHAUSTED where it cannot have
  // them. On a device, free memory that is in pieces is then put together, and `take` is called
  // once more. Pages and slabs move in between: addresses from the first call do not hold.
  absl::Status FitIn(absl::FunctionRef<absl::Status()> take);

  // Copies bytes from one place in pages or slabs to another.
  void Copy(const std::byte* from, std::byte* to, int64_t size_bytes);

  int64_t page_bytes() const { return page_bytes_; }
  int64_t budget_bytes() const { return budget_bytes_; }
  int64_t used_bytes() const { return used_bytes_.load(std::memory_order_relaxed); }

 private:
  friend class PageHandle;
  friend class Slab;
  Cache(int64_t budget_bytes, int64_t page_bytes, Memory* memory)
      : memory_(memory), budget_bytes_(budget_bytes), page_bytes_(page_bytes) {}

  absl::Status Reserve();
  // Reclaims memory until `bytes` fit; false when they do not.
  bool MakeRoom(int64_t bytes);
  absl::Status NoRoom(const char* what, int64_t bytes) const;
  std::byte* PageAt(int64_t number) const;
  // Returns a free page's number; nullopt where the device's memory is in pieces.
  std::optional<int64_t> TakePage();
  void FreePage(int64_t number);
  // On the host: gives free pages, and then gaps between slabs, back until what is held, and may be
  // written from now on, is within the budget together with what was written before.
  void GiveBack();

  Memory* const memory_;
  const int64_t budget_bytes_;
  const int64_t page_bytes_;
  std::unique_ptr<Arena> arena_;     // on a device
  SlabRegions slabs_;                // on the host
  Buffer pages_;                     // on the host; page i is at i * page_bytes_
  std::vector<int64_t> free_pages_;  // on the host; last in, first out: the warmest memory again
  size_t n_given_back_ = 0;          // the first of free_pages_
  absl::AnyInvocable<bool()> reclaim_;
  std::atomic<int64_t> used_bytes_{0};
  std::vector<int32_t> references_;  // by page, of those that were ever taken
};

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_CACHE_CACHE_H_
