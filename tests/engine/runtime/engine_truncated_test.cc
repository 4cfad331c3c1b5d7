// A model file that is cut short while it is served ends requests with an error, not the process.
#include <unistd.h>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/engine/runtime/engine_fixture.h"

namespace lowkey {
namespace {

using ::testing::HasSubstr;

class EngineTruncatedTest : public EngineTest {
 protected:
  void StartOnTheHost() {
    EngineOptions options;
    options.n_threads = 2;
    options.cache_bytes = 32 << 20;
    engine_ = CreateEngine(OpenCheckpoint(model_.path()).value(), options, nullptr).value();
  }
};

TEST_F(EngineTruncatedTest, RequestsEndWithAnErrorThatNamesTheFile) {
  StartOnTheHost();
  ASSERT_TRUE(Submit(Request(20, 4))->Wait().status.ok());
  ASSERT_EQ(truncate(model_.File("model.safetensors").c_str(), 100), 0);
  std::vector<std::shared_ptr<Collected>> requests;
  for (int i = 0; i < 3; ++i) requests.push_back(Submit(Request(20 + i, 4, i)));
  for (const auto& request : requests) {
    const FinalEvent event = request->Wait();
    EXPECT_EQ(event.status.code(), absl::StatusCode::kInternal);
    EXPECT_THAT(std::string(event.status.message()),
                HasSubstr("model.safetensors: has become shorter since it was loaded"));
  }
  EXPECT_EQ(engine_->Stats().n_running_requests, 0);
  EXPECT_EQ(engine_->Stats().cache_bytes_used, 0);
}

TEST_F(EngineTruncatedTest, AFileThatIsCutShortWhileItLoadsIsAnError) {
  const auto checkpoint = OpenCheckpoint(model_.path()).value();
  ASSERT_EQ(truncate(model_.File("model.safetensors").c_str(), 100), 0);
  EngineOptions options;
  options.cache_bytes = 32 << 20;
  const absl::Status status = CreateEngine(checkpoint, options, nullptr).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("model.safetensors: has become shorter"));
}

// Replacing is the right way: the engine goes on with the file that it opened.
TEST_F(EngineTruncatedTest, AFileThatIsReplacedIsServedOn) {
  StartOnTheHost();
  const auto before = Submit(Request(20, 8));
  ASSERT_TRUE(before->Wait().status.ok());
  WriteFileOrDie(model_.File("new"), "nothing");
  ASSERT_EQ(rename(model_.File("new").c_str(), model_.File("model.safetensors").c_str()), 0);
  const auto after = Submit(Request(20, 8));
  ASSERT_TRUE(after->Wait().status.ok());
  EXPECT_EQ(after->tokens, before->tokens);
}

}  // namespace
}  // namespace lowkey
