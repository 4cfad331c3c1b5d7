#include "gtest/gtest.h"
#include "tests/arch/rules.h"

namespace lowkey::arch {
namespace {

TEST(RepositoryTest, FollowsItsOwnRules) {
  for (const std::string& violation : CheckTree(LOWKEY_SOURCE_DIR)) ADD_FAILURE() << violation;
}

// An empty tree has no violations either: the folders must have been found.
TEST(RepositoryTest, HasEveryModuleOfThePlan) {
  for (const auto& [module, targets] : DirectEdges()) {
    EXPECT_TRUE(std::filesystem::is_directory(std::filesystem::path(LOWKEY_SOURCE_DIR) / module))
        << module;
  }
}

}  // namespace
}  // namespace lowkey::arch
