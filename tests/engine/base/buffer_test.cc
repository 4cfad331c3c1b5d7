#include "engine/base/buffer.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>

#include "gtest/gtest.h"

namespace lowkey {
namespace {

TEST(Buffer, IsZeroAlignedAndWritableOnBothSidesOfTheHugePageLimit) {
  for (size_t size : {size_t{1}, size_t{64}, size_t{100}, (size_t{2} << 20) - 1, size_t{2} << 20,
                      (size_t{5} << 20) + 3}) {
    absl::StatusOr<Buffer> buffer = Buffer::Allocate(size);
    ASSERT_TRUE(buffer.ok()) << buffer.status();
    EXPECT_EQ(buffer->size_bytes(), size);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer->data()) % 64, 0u);
    EXPECT_TRUE(std::all_of(buffer->data(), buffer->data() + size,
                            [](std::byte b) { return b == std::byte{0}; }));
    std::fill_n(buffer->data(), size, std::byte{0xab});
    EXPECT_EQ(buffer->as<uint8_t>()[size - 1], 0xab);
  }
}

TEST(Buffer, LargeOnesStartOnAHugePage) {
  const absl::StatusOr<Buffer> buffer = Buffer::Allocate(size_t{3} << 20);
  ASSERT_TRUE(buffer.ok());
  EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer->data()) % (size_t{2} << 20), 0u);
}

TEST(Buffer, GivesBackWholePagesOfTheSystemAlone) {
  const size_t page = SystemPageBytes(), size = (size_t{2} << 20) + 100;
  Buffer buffer = *Buffer::Allocate(size);
  std::fill_n(buffer.data(), size, std::byte{1});
  EXPECT_TRUE(buffer.GiveBack(1, 3 * page - 1));
  EXPECT_EQ(buffer.data()[page - 1], std::byte{1});
  EXPECT_EQ(buffer.data()[page], std::byte{0});
  EXPECT_EQ(buffer.data()[2 * page - 1], std::byte{0});
  EXPECT_EQ(buffer.data()[2 * page], std::byte{1});
  EXPECT_TRUE(buffer.GiveBack(size - 100, size));
  EXPECT_EQ(buffer.data()[size - 1], std::byte{0}) << "the last page counts as whole";
  EXPECT_FALSE(Buffer::Allocate(4 * page)->GiveBack(0, 4 * page)) << "the heap has it";
}

TEST(Buffer, OfNothingHasNoMemory) {
  const absl::StatusOr<Buffer> buffer = Buffer::Allocate(0);
  ASSERT_TRUE(buffer.ok());
  EXPECT_EQ(buffer->size_bytes(), 0u);
  EXPECT_EQ(buffer->data(), nullptr);
  EXPECT_EQ(Buffer().data(), nullptr);
}

TEST(Buffer, MovingTakesTheMemoryAlong) {
  Buffer a = *Buffer::Allocate(128);
  a.as<int>()[3] = 7;
  const std::byte* data = a.data();
  const Buffer b = std::move(a);
  EXPECT_EQ(b.data(), data);
  EXPECT_EQ(b.as<int>()[3], 7);
}

TEST(Buffer, ImpossibleSizesAreResourceExhausted) {
  for (size_t size : {std::numeric_limits<size_t>::max(), std::numeric_limits<size_t>::max() - 63,
                      (size_t{1} << 46) + 1}) {
    EXPECT_EQ(Buffer::Allocate(size).status().code(), absl::StatusCode::kResourceExhausted);
  }
}

}  // namespace
}  // namespace lowkey
