#include "server/http/h2_memory.h"

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

namespace lowkey {
namespace {

class H2MemoryTest : public testing::Test {
 protected:
  void* Malloc(size_t n) { return mem_.malloc(n, mem_.mem_user_data); }
  void* Calloc(size_t n, size_t size) { return mem_.calloc(n, size, mem_.mem_user_data); }
  void* Realloc(void* block, size_t n) { return mem_.realloc(block, n, mem_.mem_user_data); }
  void Free(void* block) { mem_.free(block, mem_.mem_user_data); }

  H2Memory memory_;
  nghttp2_mem mem_ = memory_.Allocator();
};

TEST_F(H2MemoryTest, BlocksOfAStartAreApartAndTheFirstOnesShareAPage) {
  std::vector<std::pair<char*, size_t>> blocks;
  for (const size_t n : {2928, 1024, 1024, 4096, 48, 16394}) {
    blocks.emplace_back(static_cast<char*>(n == 48      ? Malloc(n)
                                           : n == 16394 ? Realloc(nullptr, n)
                                                        : Calloc(1, n)),
                        n);
    EXPECT_TRUE(memory_.Holds(blocks.back().first)) << n;
    EXPECT_EQ(reinterpret_cast<uintptr_t>(blocks.back().first) % alignof(std::max_align_t), 0u);
  }
  char fill = 1;
  for (const auto& [begin, n] : blocks) {
    for (size_t i = 0; i < n; ++i) ASSERT_EQ(begin[i], 0) << n << " " << i;
    std::memset(begin, fill++, n);
  }
  EXPECT_LT(blocks[5].first - blocks[0].first, 4096) << "the state and what it writes frames to";
  EXPECT_GT(blocks[3].first, blocks[5].first) << "tables are behind";
  for (const auto& [begin, n] : blocks) {
    EXPECT_EQ(begin[0], begin[n - 1]);
    Free(begin);
  }
}

TEST_F(H2MemoryTest, LaterAndLargerBlocksComeFromTheHeap) {
  void* large = Malloc(64 << 10);
  EXPECT_FALSE(memory_.Holds(large));
  Free(large);
  int n_held = 0;
  std::vector<void*> blocks;
  for (int i = 0; i < 20; ++i) {
    blocks.push_back(Malloc(4096));
    n_held += memory_.Holds(blocks.back()) ? 1 : 0;
  }
  EXPECT_EQ(n_held, 7) << "28 KiB";
  for (void* block : blocks) Free(block);
  memory_.EndOfStart();
  void* late = Malloc(16);
  EXPECT_FALSE(memory_.Holds(late));
  Free(late);
  Free(nullptr);
}

TEST_F(H2MemoryTest, BlocksMoveToTheHeapWithWhatIsInThem) {
  const std::string text = "a table of fields";
  void* block = Malloc(text.size());
  std::memcpy(block, text.data(), text.size());
  block = Realloc(block, 4096);
  EXPECT_FALSE(memory_.Holds(block));
  EXPECT_EQ(std::string(static_cast<char*>(block), text.size()), text);
  block = Realloc(block, 5);
  EXPECT_EQ(std::string(static_cast<char*>(block), 5), text.substr(0, 5));
  Free(block);
  void* fresh = Realloc(nullptr, 10);
  EXPECT_TRUE(memory_.Holds(fresh)) << "nghttp2 takes its buffers so";
  Free(fresh);
}

TEST_F(H2MemoryTest, RefusesWhatOverflows) { EXPECT_EQ(Calloc(SIZE_MAX / 2, 3), nullptr); }

}  // namespace
}  // namespace lowkey
