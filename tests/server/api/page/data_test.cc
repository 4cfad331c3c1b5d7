#include "server/api/page/data.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/server/fake_engine.h"
#include "tests/server/testing.h"

namespace lowkey {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

class PageDataTest : public ::testing::Test {
 protected:
  json Answer(std::string_view path, std::string_view query = "") {
    const auto answer = data_.Answer(path, query);
    EXPECT_TRUE(answer.ok()) << answer.status();
    return answer.ok() ? json::parse(*answer) : json();
  }

  absl::Status Error(std::string_view path, std::string_view query) {
    return data_.Answer(path, query).status();
  }

  FakeEngine engine_;
  TextService service_{engine_, TestTokenizer(), {"tales", {}}};
  WorkerPool pool_{1, 4};
  const RpcWorkers workers_{pool_, [](NetworkRefusal) {}};
  bool is_measuring_ = false;
  const PageData data_{service_, workers_, [this] { return is_measuring_; }};
};

TEST_F(PageDataTest, ModelHasItsLimitsAsNumbersAndEveryOption) {
  const json model = Answer("/lowkey/v1/model");
  EXPECT_EQ(model["name"], "tales");
  EXPECT_EQ(model["limits"]["cache_bytes"], 1 << 20);  // of 64 bits, and no string
  EXPECT_EQ(model["mechanisms"][1]["name"], "atp");
  EXPECT_EQ(model["mechanisms"][1]["approximate"], true);
  EXPECT_EQ(model["mechanisms"][1]["perplexity_ratio"], 1.2);
  EXPECT_FALSE(model["mechanisms"][0].contains("perplexity_ratio"));
  EXPECT_EQ(model["defaults"]["attention"]["mechanism"], "standard");
  EXPECT_THAT(model["chat_refusal"].get<std::string>(), HasSubstr("no chat template"));
  std::map<std::string, json> options;
  for (const json& option : model["attention_options"]) options[option["name"]] = option;
  EXPECT_EQ(options["rank"]["kind"], "rank");
  EXPECT_EQ(options["prefix_storage"]["kind"], "text");
  EXPECT_EQ(options["rank"]["default"], "0.25");
  EXPECT_EQ(options["basis"]["values"], json({"layer", "kv", "input", "calibrated"}));
  EXPECT_EQ(options["principal_storage"]["values"], json({"cache", "int8"}));
  EXPECT_EQ(options["block_tokens"]["min"], 64);
  EXPECT_EQ(options["block_tokens"]["max"], 4096);
  EXPECT_EQ(options["block_tokens"]["step"], 64);
  EXPECT_EQ(options["merge"]["default"], false);
  EXPECT_EQ(options["form"]["mechanism"], "taylorshift");
  EXPECT_EQ(model["objectives"], json({"latency", "memory", "balanced"}));
}

TEST_F(PageDataTest, StatsCountRequests) {
  const json stats = Answer("/lowkey/v1/stats");
  EXPECT_EQ(stats["running_requests"], 0);
  EXPECT_EQ(stats["cancelled_requests"], 0);
  EXPECT_GE(stats["uptime_s"].get<double>(), 0);
  EXPECT_FALSE(stats["version"].get<std::string>().empty());
}

TEST_F(PageDataTest, CrossoverHasCostsByLengthAndWhatAutoTakes) {
  engine_.SetProfile({.name = "measured"});
  const json costs = Answer("/lowkey/v1/crossover", "new_tokens=100");
  EXPECT_EQ(costs["profile"], "measured");
  EXPECT_EQ(costs["new_tokens"], 100);
  const json& points = costs["mechanisms"][0]["points"];
  EXPECT_EQ(points[0]["prompt_tokens"], 16);
  EXPECT_EQ(points.back()["prompt_tokens"], 2048 - 100);
  EXPECT_EQ(points[0]["request_s"], 0.5 + 0.25 * 100);
  EXPECT_EQ(points[0]["cache_bytes"], 16 * 116);
  EXPECT_EQ(costs["selections"][0]["objective"], "latency");
  EXPECT_EQ(costs["selections"][0]["first"], "standard");
  EXPECT_EQ(costs["selections"][0]["crossovers"][0],
            json({{"from", "standard"}, {"to", "taylorshift"}, {"prompt_tokens", 512}}));
  EXPECT_EQ(costs["selections"][1]["first"], nullptr);
}

TEST_F(PageDataTest, CrossoverWithoutRatesSaysWhy) {
  is_measuring_ = true;
  EXPECT_EQ(Error("/lowkey/v1/crossover", "").code(), absl::StatusCode::kUnavailable);
  is_measuring_ = false;
  const absl::Status status = Error("/lowkey/v1/crossover", "");
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(status.message()), HasSubstr("--profile none"));
}

TEST_F(PageDataTest, CrossoverRefusesLengthsOutsideTheContext) {
  for (const char* query : {"new_tokens=0", "new_tokens=2048", "new_tokens=-1",
                            "new_tokens=", "new_tokens=9999999999999999999999", "new_tokens=1e2"}) {
    const absl::Status status = Error("/lowkey/v1/crossover", query);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << query;
    EXPECT_THAT(std::string(status.message()), HasSubstr("expected 1..2047")) << query;
  }
  EXPECT_THAT(std::string(Error("/lowkey/v1/crossover", "tokens=1").message()),
              HasSubstr("tokens: unknown parameter"));
}

TEST_F(PageDataTest, CrossoversAreComputedForOneClientAtATime) {
  engine_.SetProfile({.name = "measured"});
  absl::Status second;
  engine_.on_costs = [&] { second = Error("/lowkey/v1/crossover", ""); };
  Answer("/lowkey/v1/crossover");
  EXPECT_EQ(second.code(), absl::StatusCode::kUnavailable);
  engine_.on_costs = nullptr;
  Answer("/lowkey/v1/crossover");
  EXPECT_FALSE(Error("/lowkey/v1/crossover", "new_tokens=0").ok());
  Answer("/lowkey/v1/crossover");  // after an error too
}

TEST_F(PageDataTest, CacheHasBytesBesideStandards) {
  const json cache =
      Answer("/lowkey/v1/cache", "mechanism=atp&rank=1%2F2&block_tokens=64&merge=false");
  EXPECT_EQ(cache["mechanism"], "atp");
  EXPECT_THAT(cache["label"].get<std::string>(), HasSubstr("rank 0.5"));
  const json& last = cache["points"].back();
  EXPECT_EQ(last["tokens"], 2048);
  EXPECT_EQ(last["cache_bytes"], 8 * 2048);
  EXPECT_EQ(last["standard_cache_bytes"], 16 * 2048);
  EXPECT_EQ(Answer("/lowkey/v1/cache")["mechanism"], "standard");
}

TEST_F(PageDataTest, CacheRefusesWhatRequestsWouldBeRefused) {
  const std::pair<const char*, const char*> cases[] = {
      {"mechanism=auto", "expected standard"},
      {"mechanism=", "expected standard"},
      {"mechanism=lasso", "needs weights"},
      {"mechanism=atp&rank=x", "rank"},
      {"mechanism=atp&block_tokens=65", "multiple of 64"},
      {"mechanism=atp&block_tokens=many", "expected an integer"},
      {"mechanism=atp&block_tokens=99999999999", "expected an integer"},
      {"mechanism=atp&merge=1", "expected true or false"},
      {"rank=1/4", "atp"},
      {"size=1", "size: unknown parameter"},
      {"%zz=1", "percent encoding"},
      {"rank=%4", "percent encoding"},
  };
  for (const auto& [query, message] : cases) {
    const absl::Status status = Error("/lowkey/v1/cache", query);
    EXPECT_FALSE(status.ok()) << query;
    EXPECT_THAT(std::string(status.message()), HasSubstr(message)) << query;
  }
}

TEST_F(PageDataTest, BytesThatAreNoTextAreRefused) {
  const absl::Status status = Error("/lowkey/v1/cache", "mechanism=%ff%00");
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace lowkey
