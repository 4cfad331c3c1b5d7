#include "server/http/h2_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <new>

namespace lowkey {
namespace {

constexpr size_t kMappedBytes = 28 << 10;
constexpr size_t kAlignment = alignof(std::max_align_t);

// Blocks between these sizes are tables, which requests fill.
constexpr size_t kMinTableBytes = 512;
constexpr size_t kMaxTableBytes = 8 << 10;

char* Map() {
  void* begin =
      mmap(nullptr, kMappedBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (begin == MAP_FAILED) throw std::bad_alloc();
  // A huge page would hold all of it.
  (void)madvise(begin, kMappedBytes, MADV_NOHUGEPAGE);
  return static_cast<char*>(begin);
}

}  // namespace

H2Memory::H2Memory() : begin_(Map()), front_(begin_), back_(begin_ + kMappedBytes) {}

H2Memory::~H2Memory() { munmap(begin_, kMappedBytes); }

nghttp2_mem H2Memory::Allocator() { return {this, &Allocate, &Free, &AllocateZeros, &Reallocate}; }

bool H2Memory::Holds(const void* block) const {
  const std::less_equal<const void*> is_up_to;
  return is_up_to(begin_, block) && !is_up_to(begin_ + kMappedBytes, block);
}

void* H2Memory::Take(size_t n_bytes) {
  if (!is_starting_ || n_bytes > kMappedBytes) return nullptr;
  const size_t n_taken = (n_bytes + kAlignment - 1) / kAlignment * kAlignment;
  if (n_taken > static_cast<size_t>(back_ - front_)) return nullptr;
  const bool is_table = front_ != begin_ && n_bytes >= kMinTableBytes && n_bytes <= kMaxTableBytes;
  if (is_table) return back_ -= n_taken;
  front_ += n_taken;
  return front_ - n_taken;
}

void* H2Memory::Allocate(size_t n_bytes, void* self) {
  void* block = static_cast<H2Memory*>(self)->Take(n_bytes);
  return block != nullptr ? block : std::malloc(n_bytes);
}

void H2Memory::Free(void* block, void* self) {
  if (!static_cast<H2Memory*>(self)->Holds(block)) std::free(block);
}

void* H2Memory::AllocateZeros(size_t n, size_t n_bytes, void* self) {
  size_t n_all = 0;
  if (__builtin_mul_overflow(n, n_bytes, &n_all)) return nullptr;
  void* block = static_cast<H2Memory*>(self)->Take(n_all);
  return block != nullptr ? block : std::calloc(n, n_bytes);
}

void* H2Memory::Reallocate(void* block, size_t n_bytes, void* self) {
  const auto& memory = *static_cast<H2Memory*>(self);
  if (block == nullptr) return Allocate(n_bytes, self);
  if (!memory.Holds(block)) return std::realloc(block, n_bytes);
  void* copy = std::malloc(n_bytes);
  if (copy == nullptr) return nullptr;
  // Blocks have no sizes, which would touch the pages of tables: what follows comes along.
  const char* begin = static_cast<const char*>(block);
  const auto n_left = static_cast<size_t>(memory.begin_ + kMappedBytes - begin);
  std::memcpy(copy, block, std::min(n_bytes, n_left));
  return copy;
}

}  // namespace lowkey
