#include "engine/attention/sequence.h"

#include "gtest/gtest.h"

namespace lowkey {
namespace {

struct TwoSlabs {
  std::vector<std::shared_ptr<Slab>> slabs = {nullptr, nullptr};
  int64_t n = 0;
  void VisitSlabs(SlabVisitor visit) const { VisitAll(slabs, visit); }
};

int64_t SlabBytes(const MechanismState& state) {
  int64_t bytes = 0;
  state.VisitSlabs([&](const Slab& slab) { bytes += slab.size_bytes(); });
  return bytes;
}

TEST(MechanismState, ReadsAsTheDefaultUntilItIsWritten) {
  MechanismState state;
  EXPECT_EQ(std::as_const(state).As<TwoSlabs>().n, 0);
  EXPECT_TRUE(state.is_empty());
  EXPECT_EQ(SlabBytes(state), 0);
  state.As<TwoSlabs>().n = 3;
  EXPECT_EQ(std::as_const(state).As<TwoSlabs>().n, 3);
}

TEST(MechanismState, ACopySharesSlabsAndNothingElse) {
  const auto cache = Cache::Create(1 << 16, 64).value();
  MechanismState state;
  state.As<TwoSlabs>().slabs[1] = cache->AllocateSlab(100).value();
  MechanismState copy = state;
  copy.As<TwoSlabs>().n = 1;
  EXPECT_EQ(state.As<TwoSlabs>().n, 0);
  EXPECT_EQ(copy.As<TwoSlabs>().slabs[1], state.As<TwoSlabs>().slabs[1]);
  EXPECT_EQ(SlabBytes(copy), 100);
  EXPECT_EQ(cache->used_bytes(), 100);
  copy = {};
  state = {};
  EXPECT_EQ(cache->used_bytes(), 0);
}

TEST(MechanismStateDeathTest, OneMechanismDoesNotReadTheStateOfAnother) {
  struct Other {
    void VisitSlabs(SlabVisitor) const {}
  };
  MechanismState state;
  state.As<TwoSlabs>();
  EXPECT_DEATH(state.As<Other>(), "check failed");
}

}  // namespace
}  // namespace lowkey
