#include "engine/cache/cache.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/memory/memory.h"
#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"

namespace lowkey {
namespace {

absl::Status CheckBudget(int64_t budget_bytes, int64_t page_bytes) {
  if (page_bytes > 0 && budget_bytes >= page_bytes) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "cache: ", budget_bytes, " bytes, expected at least one page of ", page_bytes, " bytes"));
}

}  // namespace

PageHandle::PageHandle(const PageHandle& other)
    : cache_(other.cache_), number_(other.number_), slab_(other.slab_) {
  if (cache_ != nullptr) ++cache_->references_[number_];
}

PageHandle::PageHandle(PageHandle&& other) noexcept
    : cache_(std::exchange(other.cache_, nullptr)),
      number_(other.number_),
      slab_(std::move(other.slab_)) {}

PageHandle& PageHandle::operator=(PageHandle other) noexcept {
  std::swap(cache_, other.cache_);
  std::swap(number_, other.number_);
  std::swap(slab_, other.slab_);
  return *this;
}

PageHandle::~PageHandle() {
  if (cache_ == nullptr || --cache_->references_[number_] > 0) return;
  cache_->FreePage(number_);
  cache_->used_bytes_.fetch_sub(cache_->page_bytes_, std::memory_order_relaxed);
}

std::byte* PageHandle::data() const {
  return slab_ != nullptr ? slab_->data() : cache_->PageAt(number_);
}

int64_t PageHandle::size_bytes() const {
  return slab_ != nullptr ? slab_->size_bytes() : cache_->page_bytes_;
}

bool PageHandle::unique() const {
  return slab_ != nullptr ? slab_.use_count() == 1 : cache_->references_[number_] == 1;
}

Slab::~Slab() {
  if (lease_.place == nullptr) return;
  cache_->used_bytes_.fetch_sub(size_bytes(), std::memory_order_relaxed);
  if (cache_->arena_ != nullptr) {
    cache_->arena_->FreeSlab(lease_.place);
  } else {
    cache_->slabs_.Free(lease_);
  }
}

const std::byte* Slab::data() const { return lease_.arena->SlabAt(*lease_.place); }

int64_t Slab::size_bytes() const { return lease_.place->size_bytes; }

void Slab::Shrink(int64_t size_bytes) {
  const int64_t before = this->size_bytes();
  LK_CHECK(size_bytes >= 0 && size_bytes <= before);
  if (lease_.region == nullptr) {
    lease_.arena->ShrinkSlab(size_bytes, *lease_.place);
  } else {
    cache_->slabs_.Shrink(size_bytes, lease_);
  }
  cache_->used_bytes_.fetch_sub(before - size_bytes, std::memory_order_relaxed);
}

absl::StatusOr<std::unique_ptr<Cache>> Cache::Create(int64_t budget_bytes, int64_t page_bytes,
                                                     Memory* memory) {
  LK_RETURN_IF_ERROR(CheckBudget(budget_bytes, page_bytes));
  auto cache = absl::WrapUnique(new Cache(budget_bytes, page_bytes, memory));
  if (memory == nullptr) {
    LK_RETURN_IF_ERROR(cache->Reserve());
  } else {
    const int64_t n_bytes = budget_bytes + budget_bytes / Arena::kSlackPart;
    LK_ASSIGN_OR_RETURN(cache->arena_, Arena::Create(n_bytes, page_bytes, memory));
  }
  return cache;
}

absl::StatusOr<std::unique_ptr<Cache>> Cache::CreateUnreserved(int64_t budget_bytes,
                                                               int64_t page_bytes) {
  LK_RETURN_IF_ERROR(CheckBudget(budget_bytes, page_bytes));
  return absl::WrapUnique(new Cache(budget_bytes, page_bytes, nullptr));
}

absl::Status Cache::Reserve() {
  const int64_t n_bytes = budget_bytes_ / page_bytes_ * page_bytes_;
  LK_ASSIGN_OR_RETURN(pages_, Buffer::Allocate(static_cast<size_t>(n_bytes)));
  return absl::OkStatus();
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

absl::Status Cache::NoRoom(const char* what, int64_t bytes) const {
  const bool is_in_pieces = bytes >= 0 && bytes <= budget_bytes_ - used_bytes();
  return absl::ResourceExhaustedError(
      absl::StrCat("cache: ", used_bytes(), " of ", budget_bytes_, " bytes used, no ", what, " of ",
                   bytes, " bytes left", is_in_pieces ? " in one piece" : ""));
}

std::byte* Cache::PageAt(int64_t number) const {
  if (arena_ != nullptr) return arena_->PageAt(number);
  return const_cast<std::byte*>(pages_.data()) + number * page_bytes_;
}

std::optional<int64_t> Cache::TakePage() {
  if (arena_ != nullptr) return arena_->TakePage();
  if (free_pages_.empty()) return static_cast<int64_t>(references_.size());
  const int64_t number = free_pages_.back();
  free_pages_.pop_back();
  n_given_back_ = std::min(n_given_back_, free_pages_.size());
  return number;
}

void Cache::GiveBack() {
  const auto pages_bytes = [this] {
    return static_cast<int64_t>(references_.size() - n_given_back_) * page_bytes_;
  };
  while (n_given_back_ < free_pages_.size() &&
         pages_bytes() + slabs_.written_bytes() > budget_bytes_) {
    const auto begin = static_cast<size_t>(free_pages_[n_given_back_++] * page_bytes_);
    pages_.GiveBack(begin, begin + static_cast<size_t>(page_bytes_));
  }
  slabs_.GiveBack(budget_bytes_ - pages_bytes());
}

void Cache::FreePage(int64_t number) {
  if (arena_ != nullptr) return arena_->FreePage(number);
  free_pages_.push_back(number);
}

absl::StatusOr<PageHandle> Cache::AllocatePage() {
  if (!MakeRoom(page_bytes_)) return NoRoom("page", page_bytes_);
  if (arena_ == nullptr && pages_.size_bytes() == 0) LK_RETURN_IF_ERROR(Reserve());
  const std::optional<int64_t> number = TakePage();
  if (!number.has_value()) return NoRoom("page", page_bytes_);
  if (*number == static_cast<int64_t>(references_.size())) references_.push_back(0);
  references_[*number] = 1;
  if (arena_ == nullptr) GiveBack();
  used_bytes_.fetch_add(page_bytes_, std::memory_order_relaxed);
  return PageHandle(this, *number);
}

absl::StatusOr<PageHandle> Cache::AllocatePage(int64_t size_bytes) {
  if (size_bytes == page_bytes_) return AllocatePage();
  LK_ASSIGN_OR_RETURN(std::shared_ptr<Slab> slab, AllocateSlab(size_bytes));
  return PageHandle(std::move(slab));
}

absl::StatusOr<std::shared_ptr<Slab>> Cache::AllocateSlab(int64_t size_bytes) {
  if (size_bytes < 0 || !MakeRoom(size_bytes)) return NoRoom("slab", size_bytes);
  std::shared_ptr<Slab> slab(absl::WrapUnique(new Slab(this)));
  if (arena_ != nullptr) {
    slab->lease_ = {arena_.get(), arena_->TakeSlab(size_bytes)};
    if (slab->lease_.place == nullptr) return NoRoom("slab", size_bytes);
  } else {
    LK_ASSIGN_OR_RETURN(slab->lease_, slabs_.Take(size_bytes));
    GiveBack();
  }
  used_bytes_.fetch_add(size_bytes, std::memory_order_relaxed);
  return slab;
}

absl::Status Cache::MakeOwn(int64_t size_bytes, std::shared_ptr<Slab>& slab) {
  const auto is_own = [&slab] { return slab != nullptr && slab.use_count() == 1; };
  if (is_own()) return absl::OkStatus();
  absl::StatusOr<std::shared_ptr<Slab>> taken = AllocateSlab(size_bytes);
  // The reclaimer may have dropped the prefix that shared the slab, to make room.
  if (is_own()) return absl::OkStatus();
  LK_RETURN_IF_ERROR(taken.status());
  if (slab != nullptr) Copy(slab->data(), (*taken)->data(), size_bytes);
  slab = *std::move(taken);
  return absl::OkStatus();
}

absl::Status Cache::FitIn(absl::FunctionRef<absl::Status()> take) {
  const absl::Status taken = take();
  if (!absl::IsResourceExhausted(taken) || arena_ == nullptr || !arena_->Compact()) return taken;
  return take();
}

}  // namespace lowkey
