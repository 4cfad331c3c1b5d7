// `lowkey quantize`, and the commands that read what it writes, as a user runs them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/integration/child_process.h"
#include "tests/testing/source_path.h"
#include "tests/testing/temp_directory.h"
#include "tests/testing/tiny_model.h"

namespace lowkey {
namespace {

using ::testing::HasSubstr;
using Words = std::vector<std::string>;

// Runs the command; returns its standard output.
std::string Lowkey(const Words& words, int expected_code = 0, std::string* errors = nullptr) {
  Words arguments = {LOWKEY_BINARY};
  arguments.insert(arguments.end(), words.begin(), words.end());
  ChildProcess child(arguments);
  EXPECT_EQ(child.Wait(), expected_code) << child.errors();
  if (errors != nullptr) *errors = child.errors();
  return child.output();
}

std::string ErrorOf(const Words& words, int expected_code) {
  std::string errors;
  Lowkey(words, expected_code, &errors);
  return errors;
}

class QuantizeTest : public ::testing::Test {
 protected:
  static double Perplexity(const std::string& model) {
    const auto measured = nlohmann::json::parse(
        Lowkey({"eval", "perplexity", SourcePath("tools/calibration/sample.txt"), "--context",
                "512", "--windows", "4", "--threads", "1", "--model", model, "--json"}));
    return measured["results"][0]["perplexity"];
  }

  const std::string tales_ = SourcePath("models/tales");
  TempDirectory directory_;
};

TEST_F(QuantizeTest, WritesAModelThatPredictsNearlyAsWell) {
  const std::string small = directory_.File("small"), plain = directory_.File("plain");
  const auto report = nlohmann::json::parse(
      Lowkey({"quantize", "--model", tales_, "--output", small, "--threads", "1", "--json"}));
  EXPECT_EQ(report["output"], small);
  EXPECT_GT(report["tokens"], 10000);
  EXPECT_LT(static_cast<double>(report["bytes_after"]),
            0.5 * static_cast<double>(report["bytes_before"]));
  for (const auto& map : report["maps"]) EXPECT_LT(map["error_share"], 0.01) << map;
  const auto shown = nlohmann::json::parse(Lowkey({"inspect", "--model", small, "--json"}));
  EXPECT_EQ(shown["dtype"], "int4") << shown;
  EXPECT_TRUE(std::filesystem::exists(small + "/tokenizer.model"));
  Lowkey({"quantize", "--model", tales_, "--output", plain, "--plain", "--json"});
  const double before = Perplexity(tales_);
  EXPECT_LT(Perplexity(small), 1.03 * before);
  EXPECT_GT(Perplexity(plain), Perplexity(small)) << "reading texts should pay";
}

TEST_F(QuantizeTest, EightBitsAreKeptAsSignedCodes) {
  const std::string small = directory_.File("small"), linked = directory_.File("linked");
  std::filesystem::copy(tales_, linked);
  std::filesystem::create_symlink("nothing", linked + "/dangling");
  Lowkey({"quantize", "--model", linked, "--output", small, "--bits", "8", "--plain"});
  const auto shown = nlohmann::json::parse(Lowkey({"inspect", "--model", small, "--json"}));
  EXPECT_EQ(shown["dtype"], "Q8_0") << shown;
  EXPECT_NEAR(Perplexity(small) / Perplexity(tales_), 1, 0.003);
}

TEST_F(QuantizeTest, SaysWhatItCannotQuantize) {
  const std::string out = directory_.File("out"), small = directory_.File("small");
  const TinyModel tiny;  // 48 is no multiple of 32
  std::filesystem::copy_file(SourcePath("models/tales/tokenizer.model"),
                             tiny.File("tokenizer.model"));
  EXPECT_THAT(ErrorOf({"quantize", "--model", tiny.path(), "--output", out, "--plain"}, 1),
              HasSubstr("expected groups of 32 to divide them"));
  EXPECT_FALSE(std::filesystem::exists(out + "/config.json"));
  EXPECT_THAT(ErrorOf({"quantize", "--model", tales_, "--output", tiny.path()}, 2),
              HasSubstr("a folder that is new or empty"));
  EXPECT_THAT(ErrorOf({"quantize", "--model", tales_}, 2), HasSubstr("--output"));
  EXPECT_THAT(ErrorOf({"quantize", "--model", tales_, "--output", out, "--bits", "5"}, 2),
              HasSubstr("4 or 8"));
  EXPECT_THAT(ErrorOf({"quantize", "--model", tales_, "--output", out, "--group", "96"}, 2),
              HasSubstr("32, 64 or 128"));
  Lowkey({"quantize", "--model", tales_, "--output", small, "--plain"});
  EXPECT_THAT(ErrorOf({"quantize", "--model", small, "--output", out, "--plain"}, 1),
              HasSubstr("quantized already"));
}

}  // namespace
}  // namespace lowkey
