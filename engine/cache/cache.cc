#include "engine/cache/cache.h"

#include <cstring>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"

namespace lowkey {

PageHandle::PageHandle(const PageHandle& other)
    : cache_(other.cache_), index_(other.index_), slab_(other.slab_) {
  if (cache_ != nullptr) ++cache_->references_[index_];
}

PageHandle::PageHandle(PageHandle&& other) noexcept
    : cache_(std::exchange(other.cache_, nullptr)),
      index_(other.index_),
      slab_(std::move(other.slab_)) {}

PageHandle& PageHandle::operator=(PageHandle other) noexcept {
  std::swap(cache_, other.cache_);
  std::swap(index_, other.index_);
  std::swap(slab_, other.slab_);
  return *this;
}

PageHandle::~PageHandle() {
  if (cache_ == nullptr || --cache_->references_[index_] > 0) return;
  cache_->free_pages_.push_back(index_);
  cache_->used_bytes_.fetch_sub(cache_->page_bytes_, std::memory_order_relaxed);
}

std::byte* PageHandle::data() const {
  return slab_ != nullptr ? slab_->data() : cache_->arena_.data() + index_ * cache_->page_bytes_;
}

int64_t PageHandle::size_bytes() const {
  return slab_ != nullptr ? slab_->size_bytes() : cache_->page_bytes_;
}

bool PageHandle::unique() const {
  return slab_ != nullptr ? slab_.use_count() == 1 : cache_->references_[index_] == 1;
}

Slab::~Slab() { cache_->used_bytes_.fetch_sub(size_bytes(), std::memory_order_relaxed); }

void Slab::Shrink(int64_t size_bytes) {
  LK_CHECK(size_bytes >= 0 && size_bytes <= this->size_bytes());
  if (size_bytes == this->size_bytes()) return;
  absl::StatusOr<Buffer> smaller =
      Buffer::Allocate(static_cast<size_t>(size_bytes), cache_->memory_);
  if (!smaller.ok()) return;
  cache_->Copy(data(), smaller->data(), size_bytes);
  cache_->used_bytes_.fetch_sub(this->size_bytes() - size_bytes, std::memory_order_relaxed);
  buffer_ = *std::move(smaller);
}

absl::StatusOr<std::unique_ptr<Cache>> Cache::Create(int64_t budget_bytes, int64_t page_bytes,
                                                     Memory* memory) {
  if (page_bytes <= 0 || budget_bytes < page_bytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "cache: ", budget_bytes, " bytes, expected at least one page of ", page_bytes, " bytes"));
  }
  const int64_t n_pages = budget_bytes / page_bytes;
  LK_ASSIGN_OR_RETURN(Buffer arena,
                      Buffer::Allocate(static_cast<size_t>(n_pages * page_bytes), memory));
  return absl::WrapUnique(new Cache(std::move(arena), budget_bytes, page_bytes, memory));
}

Cache::Cache(Buffer arena, int64_t budget_bytes, int64_t page_bytes, Memory* memory)
    : memory_(memory),
      arena_(std::move(arena)),
      budget_bytes_(budget_bytes),
      page_bytes_(page_bytes),
      references_(budget_bytes / page_bytes, 0) {
  free_pages_.reserve(references_.size());
  for (int64_t i = static_cast<int64_t>(references_.size()); i-- > 0;) free_pages_.push_back(i);
}

Cache::~Cache() { LK_CHECK(used_bytes() == 0); }

void Cache::Copy(const std::byte* from, std::byte* to, int64_t size_bytes) {
  if (memory_ != nullptr) return memory_->Copy(from, to, size_bytes);
  std::memcpy(to, from, static_cast<size_t>(size_bytes));
}

bool Cache::MakeRoom(int64_t bytes) {
  while (bytes > budget_bytes_ - used_bytes()) {
    if (!reclaim_ || !reclaim_()) return false;
  }
  return true;
}

absl::StatusOr<PageHandle> Cache::AllocatePage() {
  if (!MakeRoom(page_bytes_)) {
    return absl::ResourceExhaustedError(absl::StrCat("cache: ", used_bytes(), " of ", budget_bytes_,
                                                     " bytes used, no page of ", page_bytes_,
                                                     " bytes left"));
  }
  const int64_t index = free_pages_.back();
  free_pages_.pop_back();
  references_[index] = 1;
  used_bytes_.fetch_add(page_bytes_, std::memory_order_relaxed);
  return PageHandle(this, index);
}

absl::StatusOr<PageHandle> Cache::AllocatePage(int64_t size_bytes) {
  if (size_bytes == page_bytes_) return AllocatePage();
  LK_ASSIGN_OR_RETURN(std::shared_ptr<Slab> slab, AllocateSlab(size_bytes));
  return PageHandle(std::move(slab));
}

absl::StatusOr<std::shared_ptr<Slab>> Cache::AllocateSlab(int64_t size_bytes) {
  if (size_bytes < 0 || !MakeRoom(size_bytes)) {
    return absl::ResourceExhaustedError(absl::StrCat("cache: ", used_bytes(), " of ", budget_bytes_,
                                                     " bytes used, no slab of ", size_bytes,
                                                     " bytes left"));
  }
  LK_ASSIGN_OR_RETURN(Buffer buffer, Buffer::Allocate(static_cast<size_t>(size_bytes), memory_));
  std::unique_ptr<Slab> slab(new Slab(this, std::move(buffer)));  // whose destructor subtracts them
  used_bytes_.fetch_add(size_bytes, std::memory_order_relaxed);
  return std::shared_ptr<Slab>(std::move(slab));
}

}  // namespace lowkey
