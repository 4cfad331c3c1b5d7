#include "server/api/http/proto_json.h"

#include <gtest/gtest.h>

#include "lowkey/v1/generation.pb.h"
#include "lowkey/v1/models.pb.h"

namespace lowkey {
namespace {

TEST(ProtoJsonTest, EveryKindOfFieldHasItsOwnForm) {
  v1::FinalEvent event;
  event.set_request_id("a\"b");
  event.set_seed(UINT64_MAX);
  event.add_choices()->set_reason(v1::FINISH_REASON_LENGTH);
  event.mutable_attention()->set_cache_bytes(int64_t{1} << 60);
  event.mutable_attention()->set_approximate(true);
  EXPECT_EQ(ProtoJson(event).dump(),
            R"({"request_id":"a\"b","model":"","choices":[{"choice":0,)"
            R"("reason":"FINISH_REASON_LENGTH","generated_tokens":0}],"seed":18446744073709551615,)"
            R"("attention":{"mechanism":"","reason":"","compressed_blocks":0,)"
            R"("cache_bytes":1152921504606846976,"peak_cache_bytes":0,"standard_cache_bytes":0,)"
            R"("approximate":true,"crossovers":[],"state_tokens":0,)"
            R"("coded_tokens":0,"options":""}})");
}

TEST(ProtoJsonTest, FloatsHaveTheirFewestDigitsAndMapsAreObjects) {
  v1::SamplingOptions sampling;
  sampling.set_temperature(0.8f);
  sampling.set_top_k(0);
  (*sampling.mutable_logit_bias())[-7] = 0.1f;
  EXPECT_EQ(ProtoJson(sampling).dump(), R"({"temperature":0.8,"top_k":0,"logit_bias":{"-7":0.1}})");
}

TEST(ProtoJsonTest, RepeatedNumbersAndDoublesAreKept) {
  v1::Model model;
  model.mutable_architecture()->add_eos_token_ids(2);
  model.mutable_architecture()->add_eos_token_ids(0);
  model.add_mechanisms()->set_cache_bytes_per_token(0.1);
  const nlohmann::ordered_json json = ProtoJson(model);
  EXPECT_EQ(json["architecture"]["eos_token_ids"].dump(), "[2,0]");
  EXPECT_EQ(json["mechanisms"][0]["cache_bytes_per_token"].dump(), "0.1");
  EXPECT_FALSE(json.contains("limits"));
}

}  // namespace
}  // namespace lowkey
