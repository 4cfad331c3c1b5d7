#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "server/trace/span.h"

namespace lowkey {
namespace {

using Json = nlohmann::ordered_json;

constexpr uint32_t kSampledFlag = 1, kHasIsRemoteFlag = 0x100, kIsRemoteFlag = 0x200;
constexpr int kStatusError = 2;

struct ValueWriter {
  Json operator()(const std::string& text) const { return {{"stringValue", text}}; }
  // OTLP writes 64-bit integers as text: readers of JSON keep 53 bits.
  Json operator()(int64_t number) const { return {{"intValue", absl::StrCat(number)}}; }
  Json operator()(double number) const { return {{"doubleValue", number}}; }
  Json operator()(bool is_true) const { return {{"boolValue", is_true}}; }
  Json operator()(const std::vector<std::string>& texts) const {
    Json values = Json::array();
    for (const std::string& text : texts) values.push_back((*this)(text));
    return {{"arrayValue", {{"values", std::move(values)}}}};
  }
};

Json AttributesJson(const std::vector<SpanAttribute>& attributes) {
  Json json = Json::array();
  for (const SpanAttribute& attribute : attributes) {
    json.push_back({{"key", attribute.key}, {"value", std::visit(ValueWriter(), attribute.value)}});
  }
  return json;
}

std::string NanosText(absl::Time time) { return absl::StrCat(absl::ToUnixNanos(time)); }

Json SpanJson(const Span& span) {
  Json json = {{"traceId", HexOf(span.trace_id)}, {"spanId", HexOf(span.id)}};
  if (!span.trace_state.empty()) json["traceState"] = span.trace_state;
  if (span.parent_id.has_value()) json["parentSpanId"] = HexOf(*span.parent_id);
  json["flags"] =
      kSampledFlag | kHasIsRemoteFlag | (span.is_parent_remote ? kIsRemoteFlag : uint32_t{0});
  json["name"] = span.name;
  json["kind"] = static_cast<int>(span.kind);
  json["startTimeUnixNano"] = NanosText(span.start);
  json["endTimeUnixNano"] = NanosText(span.end);
  if (!span.attributes.empty()) json["attributes"] = AttributesJson(span.attributes);
  if (span.error.has_value()) {
    json["status"] = {{"message", *span.error}, {"code", kStatusError}};
  }
  return json;
}

}  // namespace

std::string OtlpJson(const TraceResource& resource, const std::vector<Span>& spans) {
  Json list = Json::array();
  for (const Span& span : spans) list.push_back(SpanJson(span));
  const Json scope = {{"name", resource.scope_name}, {"version", resource.scope_version}};
  Json scope_spans = {{"scope", scope}, {"spans", std::move(list)}};
  Json resource_spans = {{"resource", {{"attributes", AttributesJson(resource.attributes)}}}};
  resource_spans["scopeSpans"] = Json::array({std::move(scope_spans)});
  Json json;
  json["resourceSpans"] = Json::array({std::move(resource_spans)});
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace lowkey
