#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "server/trace/span.h"

namespace lowkey {
namespace {

nlohmann::json Written(const Span& span) {
  const auto json = nlohmann::json::parse(
      OtlpJson({{{"service.name", std::string("lowkey")}}, "scope", "1.2"}, {span}));
  EXPECT_EQ(json["resourceSpans"][0]["resource"]["attributes"][0]["value"]["stringValue"],
            "lowkey");
  EXPECT_EQ(json["resourceSpans"][0]["scopeSpans"][0]["scope"]["name"], "scope");
  EXPECT_EQ(json["resourceSpans"][0]["scopeSpans"][0]["scope"]["version"], "1.2");
  return json["resourceSpans"][0]["scopeSpans"][0]["spans"][0];
}

Span Plain() {
  Span span;
  span.trace_id[15] = 0xab;
  span.id[0] = 1;
  span.name = "name";
  span.start = absl::FromUnixSeconds(1'800'000'000) + absl::Nanoseconds(7);
  span.end = span.start + absl::Milliseconds(1);
  return span;
}

TEST(OtlpJsonTest, IdsAreHexadecimalAndTimesAreTextOfNanoseconds) {
  const nlohmann::json json = Written(Plain());
  EXPECT_EQ(json["traceId"], "000000000000000000000000000000ab");
  EXPECT_EQ(json["spanId"], "0100000000000000");
  EXPECT_EQ(json["startTimeUnixNano"], "1800000000000000007");
  EXPECT_EQ(json["endTimeUnixNano"], "1800000000001000007");
  EXPECT_EQ(json["kind"], 1);
  EXPECT_EQ(json["flags"], 0x101);
  for (const char* absent : {"parentSpanId", "traceState", "status", "attributes"}) {
    EXPECT_FALSE(json.contains(absent)) << absent;
  }
}

TEST(OtlpJsonTest, ARemoteParentItsStateAndAnErrorAreWritten) {
  Span span = Plain();
  span.kind = SpanKind::kServer;
  span.parent_id = SpanId{2};
  span.is_parent_remote = true;
  span.trace_state = "a=1";
  span.error = "what";
  const nlohmann::json json = Written(span);
  EXPECT_EQ(json["parentSpanId"], "0200000000000000");
  EXPECT_EQ(json["traceState"], "a=1");
  EXPECT_EQ(json["kind"], 2);
  EXPECT_EQ(json["flags"], 0x301);
  EXPECT_EQ(json["status"]["code"], 2);
  EXPECT_EQ(json["status"]["message"], "what");
}

TEST(OtlpJsonTest, AttributesKeepTheirTypes) {
  Span span = Plain();
  span.attributes = {{"text", std::string("a\"\xff")},
                     {"number", int64_t{1} << 60},
                     {"real", 0.5},
                     {"truth", true},
                     {"list", std::vector<std::string>{"x", "y"}},
                     {"nothing", std::vector<std::string>{}}};
  const nlohmann::json json = Written(span)["attributes"];
  EXPECT_EQ(json[0]["key"], "text");
  EXPECT_EQ(json[0]["value"]["stringValue"], "a\"\xef\xbf\xbd");
  EXPECT_EQ(json[1]["value"]["intValue"], "1152921504606846976");
  EXPECT_EQ(json[2]["value"]["doubleValue"], 0.5);
  EXPECT_EQ(json[3]["value"]["boolValue"], true);
  EXPECT_EQ(json[4]["value"]["arrayValue"]["values"][1]["stringValue"], "y");
  EXPECT_TRUE(json[5]["value"]["arrayValue"]["values"].empty());
}

}  // namespace
}  // namespace lowkey
