#include "gtest/gtest.h"
#include "tests/arch/rules.h"
#include "tests/testing/source_path.h"

namespace lowkey::arch {
namespace {

TEST(RepositoryTest, FollowsItsOwnRules) {
  for (const std::string& violation : CheckTree(SourcePath(""))) ADD_FAILURE() << violation;
}

// An empty tree has no violations either: the folders must have been found.
TEST(RepositoryTest, HasEveryModuleOfThePlan) {
  for (const auto& [module, targets] : DirectEdges()) {
    if (module == "main") continue;  // a few files of server/
    EXPECT_TRUE(std::filesystem::is_directory(SourcePath(module))) << module;
  }
}

}  // namespace
}  // namespace lowkey::arch
