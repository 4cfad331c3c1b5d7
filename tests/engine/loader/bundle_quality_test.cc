#include "engine/loader/bundle_quality.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "engine/config/attention_option_table.h"
#include "tests/testing/temp_directory.h"

namespace lowkey {
namespace {

using testing::HasSubstr;

absl::StatusOr<PerplexityRatios> Ratios(const std::string& value) {
  const nlohmann::json object =
      nlohmann::json::parse(absl::StrCat(R"({"perplexity_ratio": )", value, "}"));
  return ReadPerplexityRatios(JsonFields(object, "lowkey.json"));
}

absl::StatusOr<std::vector<MeasuredQuality>> Measured(const std::string& entries) {
  const nlohmann::json object =
      nlohmann::json::parse(absl::StrCat(R"({"measured": )", entries, "}"));
  return ReadMeasuredQuality(JsonFields(object, "lowkey.json"));
}

TEST(PerplexityRatiosTest, AreANumberOrNumbersByLength) {
  EXPECT_TRUE(Ratios("null")->empty());
  EXPECT_EQ(Ratios("1.25")->At(77), 1.25);
  const auto ratios = Ratios(R"({"2048": 1.4, "512": 1.2})");
  ASSERT_TRUE(ratios.ok()) << ratios.status();
  EXPECT_DOUBLE_EQ(*ratios->At(64), 1.2);
  EXPECT_DOUBLE_EQ(*ratios->At(1024), 1.3);
  EXPECT_DOUBLE_EQ(*ratios->At(1 << 20), 1.4);
}

TEST(PerplexityRatiosTest, OfBadLengthsOrValuesAreRefusedByName) {
  for (const char* value : {"-1", "[]", R"("1")", R"({"0": 1})", R"({"x": 1})", R"({"64": 0})",
                            R"({"64": "1"})", R"({"64": null})", R"({"64": 1, "064": 2})"}) {
    const auto ratios = Ratios(value);
    EXPECT_EQ(ratios.status().code(), absl::StatusCode::kInvalidArgument) << value;
    EXPECT_THAT(std::string(ratios.status().message()), HasSubstr("perplexity_ratio")) << value;
  }
}

TEST(MeasuredQualityTest, HasTheOptionsOfOneMechanism) {
  const auto measured = Measured(
      R"([{"mechanism": "atp", "options": {"rank": "16", "block_tokens": 128, "merge": false},
           "perplexity_ratio": 1.1},
          {"mechanism": "standard", "options": {"cache_storage": "int8"},
           "perplexity_ratio": 1}])");
  ASSERT_TRUE(measured.ok()) << measured.status();
  ASSERT_EQ(measured->size(), 2u);
  EXPECT_EQ((*measured)[0].options.atp.block_tokens, 128);
  EXPECT_EQ((*measured)[0].options.atp.rank, RankPolicy(RankFixed{16}));
  EXPECT_EQ((*measured)[1].options.standard.storage, CacheStorage::kInt8);
}

TEST(MeasuredQualityTest, OfBadOptionsIsRefusedByName) {
  for (const char* entries :
       {"{}", "[1]", R"([{"mechanism": "magic"}])", R"([{"mechanism": "atp", "options": 1}])",
        R"([{"mechanism": "atp", "options": {"form": "auto"}}])",
        R"([{"mechanism": "atp", "options": {"rank": 16}}])",
        R"([{"mechanism": "atp", "options": {"block_tokens": 65}}])",
        R"([{"mechanism": "atp", "options": {"block_tokens": 5000000000}}])",
        R"([{"mechanism": "atp", "options": {"merge": 1}}])"}) {
    const auto measured = Measured(entries);
    EXPECT_EQ(measured.status().code(), absl::StatusCode::kInvalidArgument) << entries;
    EXPECT_THAT(std::string(measured.status().message()), HasSubstr("measured")) << entries;
  }
}

TEST(RecordQualityTest, AddsToTheBundleAndKeepsTheRest) {
  const TempDirectory directory;
  MeasuredQuality int8;
  int8.options.standard.storage = CacheStorage::kInt8;
  int8.ratios = PerplexityRatios({{512, 1.01}});
  ASSERT_TRUE(RecordQuality(directory.path(), {int8}).ok());
  const std::string path = directory.File("lowkey.json");
  auto bundle = nlohmann::ordered_json::parse(ReadFileOrDie(path));
  bundle["max_perplexity_ratio"] = 1.3;
  WriteFileOrDie(path, bundle.dump());

  int8.ratios = PerplexityRatios({{512, 1.02}, {2048, 1.03}});
  MeasuredQuality atp;
  atp.options.mechanism = Mechanism::kAtp;
  atp.options.atp.rank = RankFixed{16};
  atp.ratios = PerplexityRatios({{64, 1.5}});
  ASSERT_TRUE(RecordQuality(directory.path(), {int8, atp}).ok());
  const nlohmann::json read = nlohmann::json::parse(ReadFileOrDie(path));
  EXPECT_EQ(read["max_perplexity_ratio"], 1.3);
  EXPECT_EQ(read["format"], 1);
  const auto measured = ReadMeasuredQuality(JsonFields(read, "lowkey.json"));
  ASSERT_TRUE(measured.ok()) << measured.status();
  ASSERT_EQ(measured->size(), 2u);
  EXPECT_EQ(AttentionLabel((*measured)[0].options), AttentionLabel(int8.options));
  EXPECT_EQ((*measured)[0].ratios.At(512), 1.02);
  EXPECT_EQ((*measured)[0].ratios.At(2048), 1.03);
  EXPECT_EQ(AttentionLabel((*measured)[1].options), AttentionLabel(atp.options));
}

// Else no command would open the model any more.
TEST(RecordQualityTest, WritesNothingThatTheReaderRefuses) {
  const TempDirectory directory;
  MeasuredQuality standard;
  standard.ratios = PerplexityRatios({{512, 1.5}});
  ASSERT_TRUE(RecordQuality(directory.path(), {standard}).ok());
  const std::string before = ReadFileOrDie(directory.File("lowkey.json"));
  std::vector<PerplexityRatios::Point> points;
  for (int64_t n = 1; n <= 33; ++n) points.push_back({n, 1.0});
  standard.ratios = PerplexityRatios(points);
  const absl::Status status = RecordQuality(directory.path(), {standard});
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("nothing is recorded"), std::string::npos) << status;
  standard.ratios = PerplexityRatios({{512, 1e-6}});  // rounds to 0
  EXPECT_FALSE(RecordQuality(directory.path(), {standard}).ok());
  EXPECT_EQ(ReadFileOrDie(directory.File("lowkey.json")), before);
}

TEST(RecordQualityTest, KeepsSharesByLengthBesideRatios) {
  const TempDirectory directory;
  MeasuredQuality standard;
  standard.recalled_digits = {{2048, 0.9}, {4096, 0.8}};
  standard.copied_tokens = {{2048, 1}};
  ASSERT_TRUE(RecordQuality(directory.path(), {standard}).ok());
  MeasuredQuality later;
  later.recalled_digits = {{1024, 0.95}, {4096, 0.81}};
  later.right_answers = 0.43217;
  ASSERT_TRUE(RecordQuality(directory.path(), {later}).ok());
  const nlohmann::json read = nlohmann::json::parse(ReadFileOrDie(directory.File("lowkey.json")));
  EXPECT_EQ(read["measured"][0]["recalled_digits"],
            (nlohmann::json{{"1024", 0.95}, {"2048", 0.9}, {"4096", 0.81}}));
  const auto measured = ReadMeasuredQuality(JsonFields(read, "lowkey.json"));
  ASSERT_TRUE(measured.ok()) << measured.status();
  ASSERT_EQ(measured->size(), 1u);
  const MeasuredQuality& m = (*measured)[0];
  EXPECT_TRUE(m.ratios.empty());
  ASSERT_EQ(m.recalled_digits.size(), 3u);
  EXPECT_EQ(m.recalled_digits[0].n_tokens, 1024);
  EXPECT_EQ(m.recalled_digits[2].share, 0.81);
  ASSERT_EQ(m.copied_tokens.size(), 1u);
  EXPECT_EQ(m.right_answers, 0.4322);
}

TEST(MeasuredQualityTest, OfBadSharesIsRefusedByName) {
  for (const char* field :
       {R"("recalled_digits": 0.5)", R"("recalled_digits": {"4096": 1.5})",
        R"("copied_tokens": {"-1": 0.5})", R"("copied_tokens": {"64": 0.5, "064": 0.5})",
        R"("right_answers": 2)", R"("right_answers": "all")"}) {
    const auto measured = Measured(absl::StrCat(R"([{"mechanism": "standard", )", field, "}]"));
    EXPECT_EQ(measured.status().code(), absl::StatusCode::kInvalidArgument) << field;
    EXPECT_THAT(std::string(measured.status().message()), HasSubstr("measured[0]: ")) << field;
  }
}

TEST(RecordQualityTest, RefusesAFileThatIsNoBundle) {
  const TempDirectory directory;
  WriteFileOrDie(directory.File("lowkey.json"), "[]");
  EXPECT_EQ(RecordQuality(directory.path(), {}).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ReadFileOrDie(directory.File("lowkey.json")), "[]");
}

}  // namespace
}  // namespace lowkey
