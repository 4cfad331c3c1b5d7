#include "tests/arch/rules.h"

#include <fstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/temp_directory.h"

namespace lowkey::arch {
namespace {

namespace fs = std::filesystem;

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A made-up repository in a folder of its own.
class RulesTest : public ::testing::Test {
 protected:
  void Write(const std::string& path, const std::string& content) {
    fs::create_directories((root_ / path).parent_path());
    std::ofstream(root_ / path) << content;
  }

  std::vector<std::string> Check() const { return CheckTree(root_); }

  const TempDirectory directory_;
  const fs::path root_ = directory_.path();
};

TEST_F(RulesTest, AcceptsArrowsDownwardsAndSkippedOnes) {
  Write("engine/kernels/a.cc", "#include \"engine/base/buffer.h\"\n");
  Write("engine/model/a.cc", "#include \"engine/base/buffer.h\"\n#include \"engine/cache/c.h\"\n");
  Write("server/main.cc", "#include <vector>\n#include \"engine/runtime/engine.h\"\n");
  Write("tokenizer/a.cc", "#include \"engine/base/buffer.h\"\n");
  EXPECT_THAT(Check(), IsEmpty());
}

TEST_F(RulesTest, RejectsArrowUpwards) {
  Write("engine/kernels/a.cc", "// first line\n#include \"engine/attention/attention.h\"\n");
  EXPECT_THAT(Check(), ElementsAre("engine/kernels/a.cc:2: includes engine/attention/attention.h, "
                                   "but engine/kernels may include only engine/base, "
                                   "engine/kernels"));
}

TEST_F(RulesTest, RejectsArrowSideways) {
  Write("engine/scheduler/a.cc", "#include \"engine/attention/attention.h\"\n");
  Write("tokenizer/a.cc", "#include \"engine/runtime/engine.h\"\n");
  EXPECT_THAT(Check(),
              ElementsAre(HasSubstr("engine/scheduler/a.cc:1"), HasSubstr("tokenizer/a.cc:1")));
}

TEST_F(RulesTest, RejectsForbiddenArrowInUnusualSpelling) {
  Write("engine/base/a.cc", "  #  include \"engine/kernels/kernels.h\"  // why\n");
  Write("engine/base/b.cc", "#include <engine/kernels/kernels.h>\n");
  EXPECT_THAT(Check(),
              ElementsAre(HasSubstr("engine/base/a.cc:1"), HasSubstr("engine/base/b.cc:1")));
}

TEST_F(RulesTest, IgnoresIncludeInLineComment) {
  Write("engine/base/a.cc", "// #include \"engine/kernels/kernels.h\"\n");
  EXPECT_THAT(Check(), IsEmpty());
}

TEST_F(RulesTest, RejectsEngineIncludingServer) {
  Write("engine/runtime/a.cc", "#include \"server/request/request.h\"\n");
  EXPECT_THAT(Check(), ElementsAre(HasSubstr("includes server/request/request.h")));
}

TEST_F(RulesTest, RejectsClientAndToolsIncludingWhatServes) {
  Write("client/a.cc",
        "#include \"server/request/request.h\"\n#include \"server/front/server.h\"\n");
  Write("server/config/a.cc", "#include \"server/text/chat.h\"\n");
  Write("tools/a.cc",
        "#include \"server/model_files/load_tokenizer.h\"\n#include \"client/client.h\"\n");
  EXPECT_THAT(Check(), ElementsAre(HasSubstr("client/a.cc:2"), HasSubstr("server/config/a.cc:1"),
                                   HasSubstr("tools/a.cc:2")));
}

TEST_F(RulesTest, RejectsProductIncludingTests) {
  Write("server/text/a.cc", "#include \"tests/testing/files.h\"\n");
  EXPECT_THAT(Check(), ElementsAre(HasSubstr("includes tests/testing/files.h")));
}

TEST_F(RulesTest, RejectsIncludeNotFromTheRoot) {
  Write("engine/base/a.cc", "#include \"buffer.h\"\n#include \"../kernels/kernels.h\"\n");
  EXPECT_THAT(Check(), ElementsAre(HasSubstr("buffer.h, expected its path from the root"),
                                   HasSubstr("kernels.h, expected its path from the root")));
}

TEST_F(RulesTest, RejectsCudaOutsideItsKernels) {
  Write("engine/kernels/cuda/a.cu", "#include <cuda_runtime.h>\n#include <cublas_v2.h>\n");
  Write("engine/kernels/cpu/a.cc", "#include <cuda_runtime.h>\n");
  EXPECT_THAT(Check(), ElementsAre(HasSubstr("engine/kernels/cpu/a.cc:1")));
}

TEST_F(RulesTest, RejectsGrpcAndProtobufOutsideTheirFolder) {
  Write("client/a.cc", "#include <grpcpp/grpcpp.h>\n#include \"lowkey/v1/admin.grpc.pb.h\"\n");
  Write("server/rpc/a.cc", "#include \"lowkey/v1/admin.pb.h\"\n");
  Write("server/auth/a.cc", "#include \"lowkey/v1/admin.pb.h\"\n");
  Write("server/request/request.h", "#include <grpcpp/grpcpp.h>\n");
  Write("tokenizer/a.cc", "#include <google/protobuf/message.h>\n");
  EXPECT_THAT(
      Check(),
      ElementsAre(HasSubstr("server/auth may include only"), HasSubstr("server/auth/a.cc:1"),
                  HasSubstr("server/request/request.h:1"), HasSubstr("tokenizer/a.cc:1")));
}

TEST_F(RulesTest, RejectsGeneratedMessagesInEngine) {
  Write("engine/runtime/a.cc", "#include \"lowkey/v1/generation.pb.h\"\n");
  EXPECT_THAT(Check(), ElementsAre(HasSubstr("engine/runtime may include only"),
                                   HasSubstr("protobuf headers belong only in")));
}

TEST_F(RulesTest, RejectsJsonWhereNoBytesEnter) {
  Write("engine/base/json.cc", "#include <nlohmann/json.hpp>\n");
  Write("engine/loader/a.cc", "#include \"nlohmann/json.hpp\"\n");
  EXPECT_THAT(Check(), ElementsAre(HasSubstr("engine/loader/a.cc:1")));
}

TEST_F(RulesTest, RejectsFileOverTheLineLimit) {
  std::string lines;
  for (int i = 0; i < 500; ++i) lines += "\n";
  Write("bench/at_the_limit.cc", lines);
  Write("bench/over.cc", lines + "\n");
  EXPECT_THAT(Check(), ElementsAre("bench/over.cc: 501 lines, limit 500"));
}

TEST_F(RulesTest, RejectsLineOverTheColumnLimit) {
  const std::string comment = "//" + std::string(98, 'x');
  Write("bench/a.cc", comment + "\n" + comment + "x\n");
  Write("tests/bench/a_test.cc", "\n" + comment + "\u00E9");
  Write("tools/a.h", "//" + std::string(97, 'x') + "\u00E9\n");
  EXPECT_THAT(Check(), ElementsAre("bench/a.cc:2: 101 columns, limit 100",
                                   "tests/bench/a_test.cc:2: 101 columns, limit 100"));
}

TEST_F(RulesTest, RejectsFunctionOverTheLineLimit) {
  const auto function = [](const std::string& indent, int n_statements) {
    std::string text = indent + "void F(int a,\n" + indent + "       int b) {\n";
    for (int i = 0; i < n_statements; ++i) text += indent + "  if (a) {\n" + indent + "  }\n";
    return text + indent + "}\n";
  };
  Write("bench/a.cc", "namespace a {\n\n" + function("", 28) + "\n}  // namespace a\n");
  Write("bench/b.cc", "namespace a {\n\n" + function("", 29) + "\n}  // namespace a\n");
  Write("bench/c.cc", "class A {\n" + function("  ", 28) + function("  ", 29) + "};\n");
  EXPECT_THAT(Check(), ElementsAre("bench/b.cc:3: 61 lines of a function, limit 60",
                                   "bench/c.cc:61: 61 lines of a function, limit 60"));
}

TEST_F(RulesTest, RejectsFolderOverTheFileLimit) {
  for (int i = 0; i < 28; ++i) Write("bench/a" + std::to_string(i) + ".cc", "");
  for (int i = 0; i < 25; ++i) Write("tools/a" + std::to_string(i) + ".cc", "");
  EXPECT_THAT(Check(), ElementsAre("bench/: 28 files, limit 27"));
}

TEST_F(RulesTest, RejectsFoldersOutsideThePlan) {
  Write("utilities/a.cc", "");
  Write("engine/utils/a.cc", "");
  Write("engine/plumbing/a.cc", "");
  EXPECT_THAT(Check(), ElementsAre("utilities/: top-level folder not in the plan",
                                   HasSubstr("engine/utils/: name a folder for what it holds"),
                                   HasSubstr("folder engine/plumbing is not in the plan"),
                                   HasSubstr("folder engine/utils is not in the plan")));
}

TEST_F(RulesTest, IgnoresBuildAndHiddenFolders) {
  Write("build/a.cc", "#include \"server/request/request.h\"\n");
  Write("build-asan/a.cc", "");
  Write(".git/config", "");
  EXPECT_THAT(Check(), IsEmpty());
}

TEST(EdgesTest, FollowPathsOfAnyLength) {
  const Edges closure = Closure({{"a", {"b"}}, {"b", {"c"}}, {"c", {"d"}}, {"d", {}}});
  EXPECT_THAT(closure.at("a"), ElementsAre("a", "b", "c", "d"));
  EXPECT_THAT(closure.at("d"), ElementsAre("d"));
}

TEST(EdgesTest, HaveNoCycle) {
  const Edges closure = Closure(DirectEdges());
  for (const auto& [module, targets] : DirectEdges()) {
    for (const std::string& target : targets) {
      ASSERT_TRUE(closure.contains(target)) << target;
      EXPECT_FALSE(closure.at(target).contains(module)) << module << " and " << target;
    }
  }
}

TEST(EdgesTest, NamesTheModuleOfAPath) {
  EXPECT_EQ(ModuleOf("engine/kernels/cpu/a.cc"), "engine/kernels");
  EXPECT_EQ(ModuleOf("server/front/server.h"), "server/front");
  EXPECT_EQ(ModuleOf("server/api/lowkey/convert_request.cc"), "server/convert");
  EXPECT_EQ(ModuleOf("server/text/text_service.h"), "server/text");
  EXPECT_EQ(ModuleOf("server/main.cc"), "main");
  EXPECT_EQ(ModuleOf("client/report/page.h"), "client/report");
  EXPECT_EQ(ModuleOf("vector"), "vector");
}

}  // namespace
}  // namespace lowkey::arch
