#ifndef LOWKEY_TESTS_ENGINE_CACHE_TEST_MEMORY_H_
#define LOWKEY_TESTS_ENGINE_CACHE_TEST_MEMORY_H_

#include <cstring>
#include <memory>
#include <vector>

#include "engine/base/buffer.h"
#include "gtest/gtest.h"

namespace lowkey {

// Stands for a device's memory; its bytes are not zero where they are given out.
class TestMemory : public Memory {
 public:
  absl::StatusOr<std::byte*> Allocate(int64_t size_bytes) override {
    ++n_allocations;
    auto& bytes = taken_.emplace_back(new std::byte[size_bytes]);
    std::memset(bytes.get(), 0xff, static_cast<size_t>(size_bytes));
    return bytes.get();
  }
  void Free(std::byte*) override {}
  void Copy(const std::byte* from, std::byte* to, int64_t size_bytes) override {
    EXPECT_TRUE(from + size_bytes <= to || to + size_bytes <= from) << "the regions overlap";
    std::memcpy(to, from, static_cast<size_t>(size_bytes));
    ++n_copies;
  }

  int n_allocations = 0;
  int64_t n_copies = 0;

 private:
  std::vector<std::unique_ptr<std::byte[]>> taken_;
};

}  // namespace lowkey

#endif  // LOWKEY_TESTS_ENGINE_CACHE_TEST_MEMORY_H_
