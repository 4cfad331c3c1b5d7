#include "engine/base/buffer.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"

namespace lowkey {
namespace {
constexpr size_t kHugePageBytes = size_t{2} << 20;
constexpr size_t kAlignment = 64;
}  // namespace

void Buffer::Unmap::operator()(std::byte* p) const {
  if (memory != nullptr) {
    memory->Free(p);
  } else if (mapped_bytes != 0) {
    munmap(p, mapped_bytes);
  } else {
    std::free(p);
  }
}

size_t SystemPageBytes() {
  static const auto page_bytes = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return page_bytes;
}

bool Buffer::GiveBack(size_t begin, size_t end) {
  const size_t mapped_bytes = data_.get_deleter().mapped_bytes, page_bytes = SystemPageBytes();
  if (mapped_bytes == 0) return false;
  if (end >= size_bytes_) end = mapped_bytes;
  begin = (begin + page_bytes - 1) / page_bytes * page_bytes;
  end = end / page_bytes * page_bytes;
  return begin >= end || madvise(data_.get() + begin, end - begin, MADV_DONTNEED) == 0;
}

absl::StatusOr<Buffer> Buffer::Allocate(size_t size_bytes, Memory* memory) {
  Buffer buffer;
  buffer.size_bytes_ = size_bytes;
  if (size_bytes == 0) return buffer;
  const auto failed = [&] {
    return absl::ResourceExhaustedError(absl::StrCat("cannot allocate ", size_bytes, " bytes"));
  };
  if (size_bytes > (size_t{1} << 46)) return failed();
  if (memory != nullptr) {
    LK_ASSIGN_OR_RETURN(std::byte * p, memory->Allocate(static_cast<int64_t>(size_bytes)));
    buffer.data_ = std::unique_ptr<std::byte, Unmap>(p, Unmap{0, memory});
    return buffer;
  }
  if (size_bytes < kHugePageBytes) {
    const size_t rounded = (size_bytes + kAlignment - 1) / kAlignment * kAlignment;
    void* p = std::aligned_alloc(kAlignment, rounded);
    if (p == nullptr) return failed();
    std::memset(p, 0, rounded);
    buffer.data_ = std::unique_ptr<std::byte, Unmap>(static_cast<std::byte*>(p), Unmap{0, nullptr});
    return buffer;
  }
  // Maps too much and trims, so that the region starts on a huge page.
  const size_t rounded = (size_bytes + kHugePageBytes - 1) / kHugePageBytes * kHugePageBytes;
  const size_t mapped = rounded + kHugePageBytes;
  void* p = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) return failed();
  auto* start = static_cast<std::byte*>(p);
  const size_t offset =
      (kHugePageBytes - reinterpret_cast<uintptr_t>(p) % kHugePageBytes) % kHugePageBytes;
  if (offset > 0) munmap(start, offset);
  if (kHugePageBytes > offset) munmap(start + offset + rounded, kHugePageBytes - offset);
  madvise(start + offset, rounded, MADV_HUGEPAGE);
  buffer.data_ = std::unique_ptr<std::byte, Unmap>(start + offset, Unmap{rounded, nullptr});
  return buffer;
}

}  // namespace lowkey
