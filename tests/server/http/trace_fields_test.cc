#include "server/http/trace_fields.h"

#include <gtest/gtest.h>

namespace lowkey {
namespace {

constexpr char kParent[] = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

HttpHead Head(HttpFields fields) {
  HttpHead head;
  head.fields = std::move(fields);
  return head;
}

TEST(TraceFieldsTest, ReadsTheCallersContext) {
  const auto context = ReadTraceContext(Head({{"traceparent", kParent}}));
  ASSERT_TRUE(context.has_value());
  EXPECT_EQ(HexOf(context->trace_id), "0af7651916cd43dd8448eb211c80319c");
  EXPECT_TRUE(context->is_sampled);
}

TEST(TraceFieldsTest, StatesOfSeveralFieldsAreOneList) {
  const auto context = ReadTraceContext(
      Head({{"traceparent", kParent}, {"tracestate", "a=1"}, {"tracestate", "b=2"}}));
  ASSERT_TRUE(context.has_value());
  EXPECT_EQ(context->state, "a=1,b=2");
}

TEST(TraceFieldsTest, BadStateIsDroppedByItself) {
  const auto context =
      ReadTraceContext(Head({{"traceparent", kParent}, {"tracestate", "a=1,A=2"}}));
  ASSERT_TRUE(context.has_value());
  EXPECT_EQ(context->state, "");
}

TEST(TraceFieldsTest, NoParentOrTwoAreNone) {
  EXPECT_FALSE(ReadTraceContext(Head({})).has_value());
  EXPECT_FALSE(ReadTraceContext(Head({{"tracestate", "a=1"}})).has_value());
  EXPECT_FALSE(
      ReadTraceContext(Head({{"traceparent", kParent}, {"traceparent", kParent}})).has_value());
  EXPECT_FALSE(ReadTraceContext(Head({{"traceparent", "00-0-0-00"}})).has_value());
}

}  // namespace
}  // namespace lowkey
