#include "engine/kernels/isa.h"

#include <algorithm>
#include <cstdlib>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "gtest/gtest.h"

namespace lowkey {
namespace {

TEST(AvailableKernels, StartsWithThePortableTable) {
  ASSERT_FALSE(AvailableKernels().empty());
  EXPECT_EQ(AvailableKernels().front()->name, "portable");
}

TEST(AvailableKernels, HoldsTheTableInUse) {
  bool found = false;
  for (const KernelTable* t : AvailableKernels()) found = found || t == &Kernels();
  EXPECT_TRUE(found);
}

TEST(AvailableKernels, PanelsDivideAPage) {
  for (const KernelTable* t : AvailableKernels()) EXPECT_EQ(64 % t->panel_columns, 0) << t->name;
}

TEST(BestKernels, IsTheWidestThatPays) {
  KernelTable portable, portable_bf16, portable_amx, avx2, avx512, avx512_vnni, avx512_bf16, amx;
  for (KernelTable* table : {&portable_bf16, &portable_amx, &avx512_bf16, &amx}) {
    table->rounds_activations = true;
  }
  amx.has_matrix_unit = portable_amx.has_matrix_unit = true;
  const std::vector<const KernelTable*> all = {&portable, &portable_bf16, &portable_amx, &avx2,
                                               &avx512,   &avx512_vnni,   &avx512_bf16,  &amx};
  for (bool is_intel : {false, true}) {
    const auto best = [&](size_t n) {
      return &BestKernels(absl::MakeConstSpan(all).first(n), is_intel);
    };
    EXPECT_EQ(best(3), &portable);
    EXPECT_EQ(best(4), &avx2);
    EXPECT_EQ(best(5), &avx512);
    EXPECT_EQ(best(6), &avx512_vnni);
    EXPECT_EQ(best(7), is_intel ? &avx512_vnni : &avx512_bf16);
    EXPECT_EQ(best(8), &amx);
  }
}

// Sets LOWKEY_ISA, or unsets it, and puts the value from before back.
class IsaTest : public ::testing::Test {
 protected:
  IsaTest() {
    if (const char* value = std::getenv("LOWKEY_ISA"); value != nullptr) before_ = value;
  }
  ~IsaTest() override { Set(before_); }
  static void Set(const std::optional<std::string>& value) {
    if (value.has_value()) {
      setenv("LOWKEY_ISA", value->c_str(), 1);
    } else {
      unsetenv("LOWKEY_ISA");
    }
  }

 private:
  std::optional<std::string> before_;
};

TEST_F(IsaTest, UnsetAndEmptyAreTheBestOfTheCpu) {
  Set(std::nullopt);
  EXPECT_TRUE(CheckIsa().ok());
  Set("");
  EXPECT_TRUE(CheckIsa().ok());
}

TEST_F(IsaTest, EveryAvailableNameIsTaken) {
  for (const std::string& name : AvailableIsas()) {
    Set(name);
    EXPECT_TRUE(CheckIsa().ok()) << CheckIsa();
  }
}

TEST_F(IsaTest, AnUnknownNameListsTheKnownOnes) {
  Set("avx9");
  EXPECT_EQ(CheckIsa(), absl::InvalidArgumentError(
                            "LOWKEY_ISA: \"avx9\", expected one of portable, portable_bf16, "
                            "portable_amx, avx2, avx512, avx512_vnni, avx512_bf16, amx, neon, "
                            "neon_dot, neon_bf16"));
}

TEST_F(IsaTest, ANameThatThisCpuLacksListsWhatItHas) {
  for (const char* name : {"avx2", "avx512", "avx512_bf16", "amx", "neon", "neon_bf16"}) {
    const std::vector<std::string> available = AvailableIsas();
    if (std::find(available.begin(), available.end(), name) != available.end()) continue;
    Set(name);
    EXPECT_EQ(CheckIsa(),
              absl::InvalidArgumentError(absl::StrCat("LOWKEY_ISA: \"", name, "\", this CPU has ",
                                                      absl::StrJoin(available, ", "))));
  }
}

TEST_F(IsaTest, KernelsEndTheProgramWithTheMessage) {
#ifdef LOWKEY_EMULATED_CPU
  GTEST_SKIP() << "an emulated program cannot start itself";
#endif
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  Set("avx9");
  EXPECT_EXIT(Kernels(), ::testing::ExitedWithCode(2), "LOWKEY_ISA: \"avx9\", expected one of");
}

}  // namespace
}  // namespace lowkey
