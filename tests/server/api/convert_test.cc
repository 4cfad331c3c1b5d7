#include <gmock/gmock.h>
#include <google/protobuf/util/message_differencer.h>
#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <sstream>

#include "engine/config/limits.h"
#include "server/api/lowkey/convert_request.h"
#include "server/api/lowkey/convert_response.h"
#include "server/request/limits.h"
#include "tests/server/fake_engine.h"
#include "tests/server/testing.h"
#include "tests/testing/source_path.h"

namespace lowkey {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

// The comment above field `name` in message `message` of generation.proto.
std::string ProtoComment(const std::string& message, const std::string& name) {
  std::ifstream file(SourcePath("proto/lowkey/v1/generation.proto"));
  std::string comment, line;
  while (std::getline(file, line) && line != "message " + message + " {") {
  }
  while (std::getline(file, line) && line != "}") {
    const size_t slashes = line.find("//");
    if (slashes != std::string::npos) {
      comment += line.substr(slashes + 2);
    } else if (line.find(" " + name + " = ") != std::string::npos) {
      return comment;
    } else {
      comment.clear();
    }
  }
  return "no field " + name;
}

v1::GenerateRequest FullRequest() {
  v1::GenerateRequest proto;
  proto.set_model("tales");
  proto.set_request_id("r");
  proto.set_text("Once");
  proto.mutable_sampling()->set_temperature(0.5f);
  proto.mutable_sampling()->set_top_k(0);
  proto.mutable_sampling()->set_top_p(0.9f);
  proto.mutable_sampling()->set_min_p(0.1f);
  proto.mutable_sampling()->set_repetition_penalty(1.1f);
  proto.mutable_sampling()->set_presence_penalty(-1.0f);
  proto.mutable_sampling()->set_frequency_penalty(1.0f);
  proto.mutable_sampling()->set_seed(18446744073709551615u);
  (*proto.mutable_sampling()->mutable_logit_bias())[7] = -100.0f;
  proto.mutable_attention()->set_mechanism("atp");
  proto.mutable_attention()->set_rank("1/4");
  proto.mutable_attention()->set_basis("kv");
  proto.mutable_attention()->set_prefill("compressed");
  proto.mutable_attention()->set_block_tokens(128);
  proto.mutable_attention()->set_sinks(0);
  proto.mutable_attention()->set_window_blocks(2);
  proto.mutable_attention()->set_refine_tokens(64);
  proto.mutable_attention()->set_decomposition("alternating");
  proto.mutable_attention()->set_basis_storage("int8");
  proto.mutable_attention()->set_principal_storage("cache");
  proto.mutable_attention()->set_readout("linear");
  proto.mutable_attention()->set_merge(false);
  proto.mutable_attention()->set_kept_storage("int8");
  proto.mutable_attention()->set_aim("none");
  proto.mutable_attention()->set_cache_storage("int4");
  proto.mutable_attention()->set_key_storage("none");
  proto.mutable_attention()->set_prefix_storage("calibrated:3.3");
  proto.mutable_attention()->set_form("recurrent");
  proto.mutable_attention()->set_variant("plain");
  proto.set_max_new_tokens(0);
  proto.add_stop("a");
  proto.add_stop_token_ids(3);
  proto.set_ignore_eos(true);
  proto.set_logprobs(2);
  proto.set_prompt_logprobs(0);
  proto.set_n(2);
  proto.set_priority(0);
  proto.add_prefix_marks(64);
  proto.set_draft("lookup");
  proto.mutable_response_format()->set_regex("a+");
  return proto;
}

TEST(ConvertTest, EveryRequestFieldSurvivesBothWays) {
  const v1::GenerateRequest proto = FullRequest();
  // A field added to the message and forgotten here would be noticed.
  const google::protobuf::Reflection* reflection = proto.GetReflection();
  std::vector<const google::protobuf::FieldDescriptor*> fields;
  reflection->ListFields(proto, &fields);
  EXPECT_EQ(static_cast<int>(fields.size()), proto.GetDescriptor()->field_count() - 2);
  const auto request = FromProto(proto);
  ASSERT_TRUE(request.ok()) << request.status();
  EXPECT_TRUE(google::protobuf::util::MessageDifferencer::Equals(ToProto(*request), proto))
      << ToProto(*request).DebugString();
}

TEST(ConvertTest, EveryResponseFormatSurvivesBothWays) {
  std::vector<v1::ResponseFormat> formats(5);
  formats[0].mutable_json_object();
  formats[1].set_json_schema("{}");
  formats[2].set_regex("a");
  formats[3].mutable_choice()->add_texts("yes");
  formats[3].mutable_choice()->add_texts("no");
  formats[4].set_grammar("root ::= \"a\"");
  EXPECT_EQ(v1::ResponseFormat::descriptor()->field_count(), static_cast<int>(formats.size()));
  for (const v1::ResponseFormat& format : formats) {
    v1::GenerateRequest proto = FullRequest();
    *proto.mutable_response_format() = format;
    const auto request = FromProto(proto);
    ASSERT_TRUE(request.ok()) << request.status();
    EXPECT_TRUE(google::protobuf::util::MessageDifferencer::Equals(ToProto(*request), proto))
        << format.DebugString();
  }
}

TEST(ConvertTest, AResponseFormatWithoutFormIsRefused) {
  v1::GenerateRequest proto = FullRequest();
  proto.mutable_response_format()->Clear();
  EXPECT_THAT(FromProto(proto).status().message(),
              HasSubstr("response_format: no form, expected json_object, json_schema"));
}

TEST(ConvertTest, EveryAttentionFieldIsAnOptionOfTheTableOrARuleOfAuto) {
  std::set<std::string> names = {"mechanism", "objective", "allowed", "allow_approximate",
                                 "max_perplexity_ratio"};
  for (const AttentionOption& option : AttentionOptionTable()) names.emplace(option.name);
  const google::protobuf::Descriptor& message = *v1::AttentionOptions::descriptor();
  EXPECT_EQ(static_cast<int>(names.size()), message.field_count());
  for (const std::string& name : names) EXPECT_NE(message.FindFieldByName(name), nullptr) << name;
  v1::GenerateRequest proto = FullRequest();
  for (const AttentionOption& option : AttentionOptionTable()) {
    EXPECT_TRUE(proto.attention().GetReflection()->HasField(
        proto.attention(), message.FindFieldByName(std::string(option.name))))
        << option.name << ": not in FullRequest";
  }
}

TEST(ConvertTest, ProtoCommentsStateRangesAndDefaultsOfTheTable) {
  for (const AttentionOption& option : AttentionOptionTable()) {
    const std::string comment = ProtoComment("AttentionOptions", std::string(option.name));
    const std::string value = OptionText(option.get(AttentionOptions()));
    if (option.kind == OptionKind::kInteger) {
      const std::string range = absl::StrCat(option.traits.min, "..", option.traits.max, ". ");
      EXPECT_THAT(comment, HasSubstr(range)) << option.name;
      EXPECT_THAT(comment, HasSubstr("Default " + value + ".")) << option.name;
    }
    for (int32_t i = 0; option.names != nullptr && i <= option.traits.max; ++i) {
      const std::string name(option.names->names[i]);
      if (name.empty()) break;
      EXPECT_THAT(comment, HasSubstr("\"" + name + "\"")) << option.name;
      EXPECT_THAT(comment, HasSubstr("Default \"" + value + "\".")) << option.name;
    }
  }
}

TEST(ConvertTest, ProtoCommentsStateTheLimitsOfARequest) {
  const std::vector<std::tuple<const char*, const char*, std::string>> limits = {
      {"GenerateRequest", "request_id", absl::StrCat("At most ", kMaxRequestIdBytes, " bytes")},
      {"GenerateRequest", "stop",
       absl::StrCat("At most ", kMaxStopTexts, " texts of 1..", kMaxStopTextBytes, " bytes")},
      {"GenerateRequest", "stop_token_ids", absl::StrCat("At most ", kMaxStopTokens, ".")},
      {"GenerateRequest", "logprobs", absl::StrCat("0..", kMaxLogprobs, ":")},
      {"GenerateRequest", "prompt_logprobs", absl::StrCat("0..", kMaxLogprobs, ":")},
      {"GenerateRequest", "prompt_logprobs", absl::StrCat("at most ", kMaxPromptLogprobs, " with")},
      {"GenerateRequest", "n", absl::StrCat("1..", kMaxChoices, ".")},
      {"GenerateRequest", "priority", absl::StrCat("-", kMaxPriority, "..", kMaxPriority, ":")},
      {"GenerateRequest", "prefix_marks", absl::StrCat("at most ", kMaxPrefixMarks, ",")},
      {"SamplingOptions", "logit_bias", absl::StrCat("-", kMaxBias, "..", kMaxBias, ".")},
      {"ScoreRequest", "continuation_texts", absl::StrCat("1..", kMaxContinuations, " cont")},
      {"ScoreRequest", "continuation_token_ids", absl::StrCat("1..", kMaxContinuations, " cont")},
      {"TokenizeRequest", "text", absl::StrCat("at most ", kMaxTokenizeBytes >> 20, " MiB;")},
      {"ChatMessage", "tool_calls", absl::StrCat("At most ", kMaxToolCalls, ";")}};
  for (const auto& [message, field, text] : limits) {
    EXPECT_THAT(ProtoComment(message, field), HasSubstr(text)) << message << "." << field;
  }
}

TEST(ConvertTest, TheOldSpellingOfNormalizedIsReadAndNotWritten) {
  v1::AttentionOptions proto;
  proto.set_mechanism("taylorshift");
  proto.set_variant("normalised");
  Defaults defaults;
  const auto options = ResolveAttention(FromProto(proto), {});
  ASSERT_TRUE(options.ok()) << options.status();
  defaults.attention = *options;
  EXPECT_EQ(ToProto(defaults).variant(), "normalized");
}

TEST(ConvertTest, TokenIdsSurviveBothWays) {
  v1::GenerateRequest proto;
  proto.mutable_token_ids()->add_ids(5);
  const auto request = FromProto(proto);
  ASSERT_TRUE(request.ok());
  EXPECT_THAT(std::get<TokenList>(request->input), ElementsAre(5));
  EXPECT_THAT(ToProto(*request).token_ids().ids(), ElementsAre(5));
}

TEST(ConvertTest, ConversationsSurviveBothWays) {
  v1::GenerateRequest proto;
  v1::Chat& chat = *proto.mutable_chat();
  chat.set_tools_json("[1]");
  chat.set_variables_json("{}");
  chat.set_add_generation_prompt(false);
  v1::ChatMessage& question = *chat.add_messages();
  question.set_role("user");
  question.set_content("");
  question.set_name("Ann");
  v1::ChatMessage& call = *chat.add_messages();
  call.set_role("assistant");
  v1::ToolCall& tool_call = *call.add_tool_calls();
  tool_call.set_id("1");
  tool_call.set_name("f");
  tool_call.set_arguments_json("{}");
  v1::ChatMessage& answer = *chat.add_messages();
  answer.set_role("tool");
  answer.set_content("2");
  answer.set_tool_call_id("1");
  const auto request = FromProto(proto);
  ASSERT_TRUE(request.ok()) << request.status();
  EXPECT_FALSE(std::get<Conversation>(request->input).messages[1].content.has_value());
  v1::GenerateRequest back = ToProto(*request);
  EXPECT_TRUE(google::protobuf::util::MessageDifferencer::Equals(back.chat(), chat))
      << back.DebugString();
}

TEST(ConvertTest, UnsetOptionalsStayUnset) {
  v1::GenerateRequest proto;
  proto.set_text("a");
  const auto request = FromProto(proto);
  ASSERT_TRUE(request.ok());
  EXPECT_FALSE(request->sampling.temperature.has_value());
  EXPECT_FALSE(request->sampling.seed.has_value());
  EXPECT_FALSE(request->attention.mechanism.has_value());
  EXPECT_FALSE(request->max_new_tokens.has_value());
  EXPECT_FALSE(request->logprobs.has_value());
}

TEST(ConvertTest, RequestWithoutInputIsRefused) {
  EXPECT_THAT(std::string(FromProto(v1::GenerateRequest()).status().message()),
              HasSubstr("input: not set"));
  EXPECT_THAT(std::string(FromProto(v1::ScoreRequest()).status().message()),
              HasSubstr("context: not set"));
}

TEST(ConvertTest, ScoreRequestKeepsItsContinuations) {
  v1::ScoreRequest proto;
  proto.set_text("a");
  proto.add_continuation_texts("b");
  proto.add_continuation_token_ids()->add_ids(4);
  const auto request = FromProto(proto);
  ASSERT_TRUE(request.ok());
  ASSERT_EQ(request->continuations.size(), 2u);
  EXPECT_EQ(std::get<std::string>(request->continuations[0]), "b");
  EXPECT_THAT(std::get<TokenList>(request->continuations[1]), ElementsAre(4));
}

TEST(ConvertTest, FinalEventCarriesTheWholeAccount) {
  GenerationResult result;
  result.request_id = "r";
  result.choices = {{FinishReason::kStoppedBySink, "END", 3}, {FinishReason::kLength, {}, 4}};
  result.engine.n_prompt_tokens = 5;
  result.engine.seed = 9;
  result.engine.timings = {.queue_us = 1, .prefill_us = 2, .decode_us = 3, .ttft_us = 4};
  result.engine.attention = {.mechanism = Mechanism::kAtp,
                             .is_approximate = true,
                             .label = "atp rank 64 basis layer",
                             .reason = "requested",
                             .rank = 64,
                             .n_compressed_blocks = 2,
                             .n_state_tokens = 128,
                             .n_coded_tokens = 512,
                             .cache_bytes = 10,
                             .peak_cache_bytes = 20,
                             .standard_cache_bytes = 30};
  const v1::FinalEvent proto = ToProto(result);
  EXPECT_EQ(proto.choices(0).reason(), v1::FINISH_REASON_STOP_TEXT);
  EXPECT_EQ(proto.choices(0).stop_text(), "END");
  EXPECT_FALSE(proto.choices(1).has_stop_text());
  EXPECT_EQ(proto.usage().generated_tokens(), 7);
  EXPECT_EQ(proto.timings().ttft_us(), 4);
  EXPECT_EQ(proto.seed(), 9u);
  EXPECT_EQ(proto.attention().mechanism(), "atp");
  EXPECT_EQ(proto.attention().rank(), 64);
  EXPECT_EQ(proto.attention().state_tokens(), 128);
  EXPECT_EQ(proto.attention().coded_tokens(), 512);
  EXPECT_EQ(proto.attention().options(), "atp rank 64 basis layer");
  EXPECT_EQ(proto.attention().standard_cache_bytes(), 30);
  EXPECT_TRUE(proto.attention().approximate());
}

TEST(ConvertTest, RankIsUnsetForStandard) {
  EXPECT_FALSE(ToProto(GenerationResult()).attention().has_rank());
}

TEST(ConvertTest, LogprobsCarryTextOfTheAlternatives) {
  const int32_t token = BytePieces("A")[0];
  ChoiceDelta delta;
  delta.token = SampledToken{token, -0.5f, {{token, -0.5f}, {1 << 20, -9.0f}}};
  const v1::ChoiceDelta proto = ToProto(delta, TestTokenizer());
  ASSERT_EQ(proto.tokens_size(), 1);
  EXPECT_FLOAT_EQ(proto.tokens(0).logprob(), -0.5f);
  EXPECT_EQ(proto.tokens(0).top_logprobs(0).text(), "A");
  EXPECT_EQ(proto.tokens(0).top_logprobs(1).text(), "");
}

TEST(ConvertTest, ModelShowsDefaultsAndLimits) {
  FakeEngine engine;
  Defaults defaults;
  defaults.max_new_tokens = 11;
  const TextService service(engine, TestTokenizer(), {"tales", defaults});
  const v1::Model model = DescribeModel(service);
  EXPECT_EQ(model.name(), "tales");
  EXPECT_EQ(model.limits().context_tokens(), 2048);
  EXPECT_EQ(model.defaults().max_new_tokens(), 11);
  EXPECT_EQ(model.defaults().attention().rank(), RankString(RankFraction{0.25}));
  EXPECT_TRUE(model.defaults().sampling().has_temperature());
  EXPECT_FALSE(model.defaults().sampling().has_seed());
  ASSERT_EQ(model.mechanisms_size(), 3);
  EXPECT_EQ(model.mechanisms(2).name(), "taylorshift");
  EXPECT_TRUE(model.mechanisms(2).approximate());
  EXPECT_FALSE(model.mechanisms(0).approximate());
  EXPECT_TRUE(model.mechanisms(1).approximate());
  EXPECT_FALSE(model.mechanisms(0).has_perplexity_ratio());
  EXPECT_EQ(model.mechanisms(1).perplexity_ratio(), 1.2);
  ASSERT_EQ(model.mechanisms(0).measured_size(), 1);
  const v1::MeasuredQuality& measured = model.mechanisms(0).measured(0);
  EXPECT_EQ(measured.options(), "standard cache int4");
  EXPECT_EQ(measured.perplexity_ratios(0).ratio(), 1.01);
  EXPECT_EQ(measured.recalled_digits(0).tokens(), 4096);
  EXPECT_EQ(measured.recalled_digits(0).share(), 0.75);
  EXPECT_EQ(measured.copied_tokens(0).share(), 0.5);
  EXPECT_EQ(measured.right_answers(), 0.25);
  ASSERT_EQ(model.mechanisms(1).perplexity_ratios_size(), 2);
  EXPECT_EQ(model.mechanisms(1).perplexity_ratios(0).tokens(), 512);
  EXPECT_EQ(model.mechanisms(1).perplexity_ratios(0).ratio(), 1.1);
}

}  // namespace
}  // namespace lowkey
