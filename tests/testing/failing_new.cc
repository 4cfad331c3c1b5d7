#include "tests/testing/failing_new.h"

#include <atomic>
#include <cstdlib>
#include <new>

namespace {

std::atomic<int64_t> n_allocations{0};
std::atomic<int64_t> failing{0};
thread_local bool is_exempt = false;

}  // namespace

void* operator new(size_t n_bytes) {
  if (!is_exempt && ++n_allocations == failing) throw std::bad_alloc();
  void* const memory = std::malloc(n_bytes > 0 ? n_bytes : 1);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

// AddressSanitizer has an operator of its own for this form, which does not call the one above.
void* operator new(size_t n_bytes, const std::nothrow_t&) noexcept {
  try {
    return operator new(n_bytes);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }

// Protobuf loses an element of a repeated field when there is no memory to note its address.
extern "C" const char* __lsan_default_suppressions() {
  return "leak:google::protobuf::internal::RepeatedPtrFieldBase::Add<\n";
}

namespace lowkey {

void FailAllocation(int64_t n) {
  n_allocations = 0;
  failing = n;
}

int64_t NumAllocations() { return n_allocations; }

Exemption::Exemption(bool exempts) : before_(is_exempt) { is_exempt = exempts; }
Exemption::~Exemption() { is_exempt = before_; }

}  // namespace lowkey
