// `lowkey calibrate` and the commands that use what it writes, as a user runs them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/integration/child_process.h"
#include "tests/testing/source_path.h"
#include "tests/testing/tiny_model.h"

namespace lowkey {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

ModelConfig Config() {
  ModelConfig config = TinyConfig();
  config.vocab_size = 4096;
  config.context_tokens = 2048;
  return config;
}

class CalibrateTest : public ::testing::Test {
 protected:
  CalibrateTest() : model_({.config = Config(), .dtype = DType::kF32, .seed = 5}) {
    std::filesystem::copy_file(SourcePath("models/tales/tokenizer.model"),
                               model_.File("tokenizer.model"));
  }

  // Runs the command on the model; returns its standard output.
  std::string Run(const std::vector<std::string>& words, int expected_code = 0) {
    std::vector<std::string> arguments = {LOWKEY_BINARY};
    arguments.insert(arguments.end(), words.begin(), words.end());
    arguments.insert(arguments.end(), {"--model", model_.path(), "--json", "--threads", "1"});
    ChildProcess child(arguments);
    EXPECT_EQ(child.Wait(), expected_code) << child.errors();
    errors_ = child.errors();
    return child.output();
  }

  const TinyModel model_;
  std::string errors_;
};

TEST_F(CalibrateTest, WritesBesideTheModelWhatInspectShowsAndEvalUses) {
  const auto written = nlohmann::json::parse(Run({"calibrate"}));
  EXPECT_EQ(written["output"], model_.File("principal.safetensors"));
  EXPECT_GT(written["tokens"], 10000);
  EXPECT_TRUE(std::filesystem::exists(model_.File("principal.safetensors")));
  const auto shown = nlohmann::json::parse(Run({"inspect"}));
  EXPECT_EQ(shown["calibration"]["curve"], written["curve"]);
  const auto measured = nlohmann::json::parse(
      Run({"eval", "perplexity", SourcePath("LICENSE"), "--context", "1024", "--windows", "1",
           "--try", "standard", "--try", "standard --prefix-storage calibrated:8"}));
  const auto& rows = measured["results"];
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[1]["attention"], "standard prefixes calibrated:8");
  EXPECT_NE(rows[0]["perplexity"], rows[1]["perplexity"]);
  EXPECT_NEAR(static_cast<double>(rows[1]["ratio_to_first"]), 1, 0.01);
}

TEST_F(CalibrateTest, AtpReadsTheSameFile) {
  const std::vector<std::string> eval = {
      "eval",
      "perplexity",
      SourcePath("LICENSE"),
      "--context",
      "1024",
      "--windows",
      "1",
      "--try",
      "standard",
      "--try",
      "atp --basis calibrated --block 64 --refine 64 --kept-storage int4",
      "--try",
      "atp --aim fast"};
  Run(eval, 1);
  EXPECT_THAT(errors_, AllOf(HasSubstr("basis"), HasSubstr("lowkey calibrate")));
  Run({"calibrate"});
  const auto rows = nlohmann::json::parse(Run(eval))["results"];
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[2]["attention"], "atp basis calibrated block 128 window 1 refine 64 kept int4");
  EXPECT_EQ(rows[1]["attention"], "atp basis calibrated block 64 window 1 refine 64 kept int4");
  EXPECT_NE(rows[0]["perplexity"], rows[1]["perplexity"]);
  EXPECT_NEAR(static_cast<double>(rows[1]["ratio_to_first"]), 1, 0.05);
  Run({"serve", "--port", "0", "--attention", "atp", "--basis", "calibrated"}, 2);
  EXPECT_THAT(errors_, HasSubstr("refine"));
}

TEST_F(CalibrateTest, EvalRecordsWhatItMeasuredBesideTheModel) {
  const std::string questions = model_.File("questions.jsonl");
  WriteFileOrDie(questions, R"({"prompt": "Once", "choices": [" upon", " a"], "answer": 0})");
  const std::string int4 = "standard --cache-storage int4";
  Run({"eval", "recall", SourcePath("LICENSE"), "--context", "1024", "--windows", "1", "--codes",
       "2", "--passage", "64", "--record", "--try", "standard", "--try", int4});
  Run({"eval", "choice", questions, "--record", "--try", int4});
  Run({"eval", "perplexity", SourcePath("LICENSE"), "--context", "512", "--windows", "1",
       "--record", "--try", "standard", "--try", int4});
  const auto bundle = nlohmann::json::parse(ReadFileOrDie(model_.File("lowkey.json")));
  const auto& measured = bundle["measured"];
  ASSERT_EQ(measured.size(), 2u) << bundle;
  EXPECT_FALSE(measured[0].contains("options"));
  EXPECT_FALSE(measured[0].contains("perplexity_ratio")) << "standard has none";
  EXPECT_TRUE(measured[0]["recalled_digits"].contains("1024"));
  EXPECT_EQ(measured[1]["options"]["cache_storage"], "int4");
  EXPECT_TRUE(measured[1]["copied_tokens"].contains("1024"));
  EXPECT_TRUE(measured[1]["perplexity_ratio"].contains("512"));
  EXPECT_TRUE(measured[1]["right_answers"].is_number());
  Run({"inspect"});
}

TEST_F(CalibrateTest, TakesTextsOfTheUsersAndAnotherPlace) {
  const std::string path = model_.File("mine.safetensors");
  const auto written =
      nlohmann::json::parse(Run({"calibrate", SourcePath("LICENSE"), SourcePath("README.md"),
                                 "--output", path, "--piece", "512"}));
  EXPECT_EQ(written["output"], path);
  EXPECT_FALSE(std::filesystem::exists(model_.File("principal.safetensors")));
  EXPECT_FALSE(nlohmann::json::parse(Run({"inspect"})).contains("calibration"));
  EXPECT_TRUE(
      nlohmann::json::parse(Run({"inspect", "--calibration", path})).contains("calibration"));
}

TEST_F(CalibrateTest, ServeSaysAtStartWhatIsMissing) {
  Run({"serve", "--port", "0", "--prefix-storage", "calibrated"}, 1);
  EXPECT_THAT(errors_, HasSubstr("lowkey calibrate"));
  Run({"serve", "--port", "0", "--prefix-storage", "calibrated:9"}, 2);
  EXPECT_THAT(errors_, HasSubstr("1.5..8"));
}

TEST_F(CalibrateTest, AFileThatDoesNotFitTheModelIsLeftOutUnlessItIsNamed) {
  const std::string path = model_.File("principal.safetensors");
  WriteFileOrDie(path, "no such thing");
  EXPECT_FALSE(nlohmann::json::parse(Run({"inspect"})).contains("calibration"));
  EXPECT_THAT(errors_, HasSubstr("warning: without calibration: principal.safetensors: "));
  Run({"inspect", "--calibration", path}, 1);
  EXPECT_THAT(errors_, AllOf(HasSubstr("lowkey inspect: --calibration: "),
                             HasSubstr("principal.safetensors: ")));
  Run({"serve", "--port", "0", "--prefix-storage", "calibrated"}, 1);
  EXPECT_THAT(errors_, AllOf(HasSubstr("warning"), HasSubstr("lowkey calibrate")));
}

}  // namespace
}  // namespace lowkey
