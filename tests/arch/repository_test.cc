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
  std::set<std::string> found;
  for (const auto& [module, targets] : DirectEdges()) {
    const std::filesystem::path folder = SourcePath(module.substr(0, module.find('/')));
    if (!std::filesystem::is_directory(folder)) continue;  // "main" is a few files of server/
    for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
      found.insert(ModuleOf(entry.path().lexically_relative(SourcePath("")).generic_string()));
    }
  }
  for (const auto& [module, targets] : DirectEdges()) EXPECT_TRUE(found.contains(module)) << module;
}

}  // namespace
}  // namespace lowkey::arch
