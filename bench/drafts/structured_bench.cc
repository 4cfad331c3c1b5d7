// Tokens per second and steps of structured output, with and without jumps over forced text, and
// with and without masks that are begun while the step is computed:
//   structured_bench --model DIR_OR_GGUF [--streams 4] [--new_tokens 128] [--runs 3] [--cold]
#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "bench/drafts/streams.h"
#include "engine/base/status_macros.h"
#include "engine/loader/checkpoint.h"
#include "engine/runtime/engine.h"
#include "server/grammar/compile.h"
#include "server/grammar/constraint.h"
#include "server/model_files/load_tokenizer.h"

ABSL_FLAG(std::string, model, "", "model to measure: a directory or a GGUF file");
ABSL_FLAG(int, streams, 4, "sequences decoded together, beside one alone");
ABSL_FLAG(int, new_tokens, 128, "the most tokens of an answer");
ABSL_FLAG(int, threads, 0, "0: one per core");
ABSL_FLAG(int, runs, 3, "runs of each figure, in turns; the fastest is printed");
ABSL_FLAG(float, temperature, 0.7f, "of the draws");
ABSL_FLAG(bool, cold, false, "keep no mask: each is computed anew");

namespace lowkey {
namespace {

struct Form {
  const char* name;
  const char* schema;
  const char* prompt;
};

constexpr Form kForms[] = {
    {"person",
     R"({"type":"object","properties":{"name":{"type":"string"},"age":{"type":"integer"},
         "email":{"type":"string"},"city":{"type":"string"}},
         "required":["name","age","email","city"],"additionalProperties":false})",
     "Describe Ann, who is 34 and lives in Berlin, as JSON with name, age, email and city: "},
    {"list",
     R"({"type":"array","minItems":4,"maxItems":8,"items":{"type":"object","properties":{
         "product":{"type":"string","maxLength":30},"price":{"type":"number"},
         "in_stock":{"type":"boolean"}},"required":["product","price","in_stock"],
         "additionalProperties":false}})",
     "List some fruit as a JSON array of objects with product, price and in_stock: "},
    {"text", R"({"type":"object","properties":{"story":{"type":"string"}},"required":["story"],
                 "additionalProperties":false})",
     "Tell a story as a JSON object with the member story: "}};

// One of the ways to compare.
struct Way {
  bool jumps, begins_masks;
  std::unique_ptr<Engine> engine;
};

struct RunResult {
  double tokens_per_second = 0;
  int64_t n_steps = 0, n_drafted = 0, n_accepted = 0, n_masks = 0, n_ahead = 0;
  double wait_us = 0;                        // for masks, per token
  std::vector<std::vector<int32_t>> tokens;  // by stream
};

absl::StatusOr<RunResult> Run(Engine& engine, const EngineRequest& request, int n_streams) {
  const EngineStats before = engine.Stats();
  const absl::Time start = absl::Now();
  LK_ASSIGN_OR_RETURN(std::vector<StreamOutcome> outcomes, RunStreams(engine, request, n_streams));
  const double seconds = absl::ToDoubleSeconds(absl::Now() - start);
  RunResult result;
  for (StreamOutcome& o : outcomes) result.tokens.push_back(std::move(o.tokens));
  const EngineStats after = engine.Stats();
  const int64_t n_tokens = after.n_generated_tokens - before.n_generated_tokens;
  result.tokens_per_second = static_cast<double>(n_tokens) / seconds;
  result.n_steps = after.n_steps - before.n_steps;
  result.n_drafted = after.n_drafted_tokens - before.n_drafted_tokens;
  result.n_accepted = after.n_accepted_tokens - before.n_accepted_tokens;
  result.n_masks = after.n_masks - before.n_masks;
  result.n_ahead = after.n_masks_ahead - before.n_masks_ahead;
  result.wait_us = absl::ToDoubleMicroseconds(after.waited_for_masks - before.waited_for_masks) /
                   static_cast<double>(std::max<int64_t>(1, n_tokens));
  return result;
}

absl::StatusOr<EngineRequest> RequestOf(const Form& form, const Tokenizer& tokenizer,
                                        std::shared_ptr<const grammar::Vocabulary> vocabulary) {
  EngineRequest request;
  LK_ASSIGN_OR_RETURN(request.prompt, tokenizer.Encode(form.prompt));
  request.max_new_tokens = absl::GetFlag(FLAGS_new_tokens);
  request.sampling.temperature = absl::GetFlag(FLAGS_temperature);
  request.sampling.seed = 1;
  request.stop_tokens = tokenizer.eos_ids();
  grammar::Budget budget;
  LK_ASSIGN_OR_RETURN(auto compiled, grammar::CompileJsonSchema(form.schema, budget));
  auto masks = absl::GetFlag(FLAGS_cold) ? std::make_shared<grammar::MaskCache>(1)
                                         : std::make_shared<grammar::MaskCache>();
  request.constraint = std::make_shared<grammar::GrammarConstraintFactory>(grammar::ConstraintParts{
      std::move(compiled), std::move(vocabulary), std::move(masks), &tokenizer});
  return request;
}

absl::Status PrintForm(std::vector<Way>& ways, const Form& form, const EngineRequest& request,
                       int n_streams) {
  std::vector<RunResult> best(ways.size());
  for (int run = -1; run < absl::GetFlag(FLAGS_runs); ++run) {  // the first one warms caches
    for (size_t w = 0; w < ways.size(); ++w) {
      LK_ASSIGN_OR_RETURN(RunResult result, Run(*ways[w].engine, request, n_streams));
      if (run < 0 || result.tokens_per_second > best[w].tokens_per_second) {
        best[w] = std::move(result);
      }
      if (best[w].tokens != best[0].tokens) {
        return absl::InternalError(absl::StrCat(form.name, ": tokens differ between the ways"));
      }
    }
  }
  for (size_t w = 0; w < ways.size(); ++w) {
    const RunResult& r = best[w];
    std::printf("%-7s %7d %6s %6s %9.1f %6.2f %6lld %5lld of %-5lld %5lld of %-5lld %8.1f\n",
                form.name, n_streams, ways[w].jumps ? "on" : "off",
                ways[w].begins_masks ? "worker" : "engine", r.tokens_per_second,
                r.tokens_per_second / best[0].tokens_per_second, static_cast<long long>(r.n_steps),
                static_cast<long long>(r.n_accepted), static_cast<long long>(r.n_drafted),
                static_cast<long long>(r.n_ahead), static_cast<long long>(r.n_masks), r.wait_us);
  }
  return absl::OkStatus();
}

absl::Status Main() {
  const std::string path = absl::GetFlag(FLAGS_model);
  if (path.empty()) {
    return absl::InvalidArgumentError("--model: empty, expected a directory or a GGUF file");
  }
  LK_ASSIGN_OR_RETURN(const ModelFiles files, OpenModelFiles(path));
  LK_ASSIGN_OR_RETURN(const std::unique_ptr<Tokenizer> tokenizer, LoadTokenizer(files));
  std::vector<Way> ways;
  for (const bool jumps : {false, true}) {
    for (const bool begins_masks : {false, true}) {
      EngineOptions options;
      options.n_threads = absl::GetFlag(FLAGS_threads);
      options.cache_bytes = int64_t{64} << 20;
      options.keeps_prefixes = false;
      options.jumps_ahead = jumps;
      options.begins_masks = begins_masks;
      LK_ASSIGN_OR_RETURN(auto weights, OpenCheckpoint(path));
      LK_ASSIGN_OR_RETURN(auto engine, CreateEngine(std::move(weights), options, nullptr));
      ways.push_back({jumps, begins_masks, std::move(engine)});
    }
  }
  const Engine& engine = *ways[0].engine;
  const auto vocabulary = std::make_shared<const grammar::Vocabulary>(
      *tokenizer, engine.config().vocab_size, tokenizer->eos_ids());
  std::printf("%s, %s, %d threads, vocabulary %d\n", engine.Stats().processor.c_str(),
              engine.Stats().dtype.c_str(), engine.Stats().n_threads, vocabulary->vocab_size());
  std::printf("%-7s %7s %6s %6s %9s %6s %6s %14s %14s %8s\n", "form", "streams", "jumps", "masks",
              "tokens/s", "ratio", "steps", "drafts right", "masks ahead", "wait us");
  for (const Form& form : kForms) {
    LK_ASSIGN_OR_RETURN(const EngineRequest request, RequestOf(form, *tokenizer, vocabulary));
    for (const int n_streams : {1, std::max(1, absl::GetFlag(FLAGS_streams))}) {
      LK_RETURN_IF_ERROR(PrintForm(ways, form, request, n_streams));
      std::fflush(stdout);
    }
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace lowkey

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage("structured output with and without jumps and a mask worker");
  absl::ParseCommandLine(argc, argv);
  const absl::Status status = lowkey::Main();
  if (!status.ok()) std::fprintf(stderr, "structured_bench: %s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
