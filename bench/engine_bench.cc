// Tokens per second of the engine without a server, beside the machine's limits:
//   engine_bench --model DIR | --random_110m  [--dtype bfloat16] [--threads N] [--runs 5]
//   [--attention standard,atp]
//   engine_bench --model DIR --figures machine,depth:512,depth:4096,streams:16   as lines of JSON
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/synchronization/blocking_counter.h"
#include "bench/drafts/draft_bench.h"
#include "bench/machine.h"
#include "bench/random_model.h"
#include "bench/taylorshift_bench.h"
#include "engine/base/status_macros.h"
#include "engine/kernels/kernels.h"
#include "engine/loader/checkpoint.h"
#include "engine/runtime/engine.h"

ABSL_FLAG(std::string, model, "", "Hugging Face directory of the model to measure");
ABSL_FLAG(bool, random_110m, false,
          "measure a random model: hidden 768, 12 layers, 12 heads, ffn 2048, vocabulary 32000");
ABSL_FLAG(bool, taylorshift, false,
          "measure both forms of taylorshift's attention alone instead, over lengths");
ABSL_FLAG(bool, draft, false, "measure decoding with and without drafts by prompt lookup instead");
ABSL_FLAG(std::string, dtype, "bfloat16", "auto, float32, bfloat16 or int8");
ABSL_FLAG(std::vector<std::string>, attention, {"standard"},
          "mechanisms of sequences that run together, in turn: standard,atp,taylorshift");
ABSL_FLAG(int, threads, 0, "0: one per core");
ABSL_FLAG(int, runs, 5, "runs of each figure; the median is printed");
ABSL_FLAG(int, prefill_tokens, 512, "prompt length of the prefill figure");
ABSL_FLAG(int, decode_tokens, 64, "tokens generated in the decode figures");
ABSL_FLAG(int, streams, 16, "sequences decoded together");
ABSL_FLAG(std::vector<std::string>, figures, {},
          "measure these once each instead and print each as a line of JSON: machine, depth:N (a "
          "prompt of N tokens, then `decode_tokens` behind it), streams:N (N sequences together)");
ABSL_FLAG(int, closed_loop, 0,
          "measure so many requests of 128 tokens in and 64 out by `streams` clients instead, to "
          "compare with `lowkey bench`");

namespace lowkey {
namespace {

// Remembers how a request ended and wakes the caller.
class CountingSink : public Sink {
 public:
  CountingSink(FinalEvent* event, absl::BlockingCounter* done) : event_(event), done_(done) {}
  SinkAnswer OnToken(int32_t, const SampledToken&) override { return SinkAnswer::kContinue; }
  void OnDone(const FinalEvent& event) override {
    *event_ = event;
    done_->DecrementCount();
  }

 private:
  FinalEvent* const event_;
  absl::BlockingCounter* const done_;
};

// Runs n equal requests at once; the wall time from the first submission to the last end, in
// seconds, and their events.
struct RunResult {
  double seconds = 0;
  std::vector<FinalEvent> events;
};

absl::StatusOr<RunResult> Run(Engine& engine, int n_requests, int n_prompt, int n_new) {
  RunResult result;
  result.events.resize(n_requests);
  absl::BlockingCounter done(n_requests);
  const absl::Time start = absl::Now();
  for (int i = 0; i < n_requests; ++i) {
    EngineRequest request;
    request.prompt.resize(n_prompt);
    for (int t = 0; t < n_prompt; ++t) {
      request.prompt[t] = (t * 7919 + i * 104729 + 3) % engine.config().vocab_size;
    }
    request.max_new_tokens = n_new;
    const std::vector<std::string> mechanisms = absl::GetFlag(FLAGS_attention);
    LK_ASSIGN_OR_RETURN(request.attention.mechanism,
                        ParseMechanism(mechanisms[i % mechanisms.size()]));
    auto sink = std::make_unique<CountingSink>(&result.events[i], &done);
    LK_RETURN_IF_ERROR(engine.Submit(std::move(request), std::move(sink)).status());
  }
  done.Wait();
  result.seconds = absl::ToDoubleSeconds(absl::Now() - start);
  for (const FinalEvent& e : result.events) LK_RETURN_IF_ERROR(e.status);
  return result;
}

// Output tokens per second of clients that submit one request after another.
absl::Status PrintClosedLoop(Engine& engine) {
  constexpr int kInput = 128, kOutput = 64;
  const int n_clients = absl::GetFlag(FLAGS_streams);
  const int n_each = std::max(1, absl::GetFlag(FLAGS_closed_loop) / n_clients);
  std::vector<absl::Status> statuses(n_clients);
  std::vector<std::thread> clients;
  const absl::Time start = absl::Now();
  for (int i = 0; i < n_clients; ++i) {
    clients.emplace_back([&, i] {
      for (int k = 0; k < n_each && statuses[i].ok(); ++k) {
        statuses[i] = Run(engine, 1, kInput, kOutput).status();
      }
    });
  }
  for (std::thread& client : clients) client.join();
  for (const absl::Status& status : statuses) LK_RETURN_IF_ERROR(status);
  std::printf("%d clients, %d requests of %d in and %d out: %.1f output tokens/s\n", n_clients,
              n_clients * n_each, kInput, kOutput,
              n_clients * n_each * kOutput / absl::ToDoubleSeconds(absl::Now() - start));
  return absl::OkStatus();
}

double Median(std::vector<double> x) {
  std::sort(x.begin(), x.end());
  return x[x.size() / 2];
}

// Parameters of the layers and the head: multiplied once a token.
double ProductParameters(const ModelConfig& c) {
  const double attention =
      static_cast<double>(c.hidden_dim) * c.head_dim * (2.0 * c.n_heads + 2.0 * c.n_kv_heads);
  const double ffn = 3.0 * c.hidden_dim * c.ffn_dim;
  return c.n_layers * (attention + ffn);
}

struct Figure {
  std::string name;
  double tokens_per_second = 0;
  double flops_per_token = 0;
  double bytes_per_token = 0;  // weights read, spread over the tokens of a step
};

void Print(const Figure& f, const MachineLimits& m) {
  std::printf("%-24s %10.1f %14.1f%% %18.1f%%\n", f.name.c_str(), f.tokens_per_second,
              100 * f.tokens_per_second * f.flops_per_token / m.peak_flops,
              100 * f.tokens_per_second * f.bytes_per_token / m.read_bytes_per_second);
}

absl::StatusOr<double> MedianRate(const std::function<absl::StatusOr<double>()>& once) {
  std::vector<double> rates;
  LK_RETURN_IF_ERROR(once().status());  // warm caches and clocks
  for (int i = 0; i < std::max(1, absl::GetFlag(FLAGS_runs)); ++i) {
    LK_ASSIGN_OR_RETURN(const double rate, once());
    rates.push_back(rate);
  }
  return Median(rates);
}

double LongestDecodeSeconds(const RunResult& result) {
  double longest = 0;
  for (const FinalEvent& e : result.events) {
    longest = std::max(longest, static_cast<double>(e.timings.decode_us) * 1e-6);
  }
  return longest;
}

absl::Status PrintFigures(Engine& engine, const MachineLimits& limits) {
  const ModelConfig& c = engine.config();
  const double layers = ProductParameters(c);
  const double head = static_cast<double>(c.hidden_dim) * c.vocab_size;
  const std::string dtype = engine.Stats().dtype;
  const double weight_bytes = (layers + head) * (dtype == "float32"    ? 4
                                                 : dtype == "bfloat16" ? 2
                                                                       : 66.0 / 64);
  const int n_prefill = absl::GetFlag(FLAGS_prefill_tokens);
  const int n_decode = absl::GetFlag(FLAGS_decode_tokens);
  const int n_streams = absl::GetFlag(FLAGS_streams);

  const auto decode = [&](int n) -> absl::StatusOr<double> {
    LK_ASSIGN_OR_RETURN(const RunResult r, Run(engine, n, 16, n_decode));
    return n * (n_decode - 1) / LongestDecodeSeconds(r);
  };
  LK_ASSIGN_OR_RETURN(const double prefill, MedianRate([&]() -> absl::StatusOr<double> {
                        LK_ASSIGN_OR_RETURN(const RunResult r, Run(engine, 1, n_prefill, 1));
                        return n_prefill /
                               (static_cast<double>(r.events[0].timings.prefill_us) * 1e-6);
                      }));
  LK_ASSIGN_OR_RETURN(const double one, MedianRate([&] { return decode(1); }));
  LK_ASSIGN_OR_RETURN(const double many, MedianRate([&] { return decode(n_streams); }));

  std::printf("%-24s %10s %15s %19s\n", "", "tokens/s", "share of peak", "share of bandwidth");
  Print({absl::StrCat("prefill ", n_prefill), prefill, 2 * layers, 0}, limits);
  Print({"decode", one, 2 * (layers + head), weight_bytes}, limits);
  Print({absl::StrCat("decode, ", n_streams, " together"), many, 2 * (layers + head),
         weight_bytes / n_streams},
        limits);
  std::printf("%d together are %.2f times one\n", n_streams, many / one);
  return absl::OkStatus();
}

// Prints one of --figures as a line of JSON.
absl::Status PrintFigure(Engine& engine, const std::string& name) {
  const int n_decode = absl::GetFlag(FLAGS_decode_tokens);
  if (name == "machine") {
    LK_ASSIGN_OR_RETURN(const MachineLimits m, MeasureMachine(engine.Stats().n_threads));
    std::printf(
        "{\"figure\":\"machine\",\"isa\":\"%s\",\"fma_gflops\":%.1f,\"read_gb_per_s\":%.1f}\n",
        engine.Stats().processor.c_str(), m.peak_flops * 1e-9, m.read_bytes_per_second * 1e-9);
    return absl::OkStatus();
  }
  const std::pair<std::string, std::string> parts = absl::StrSplit(name, absl::MaxSplits(':', 1));
  int n = 0;
  const bool is_depth = parts.first == "depth";
  if (!(is_depth || parts.first == "streams") || !absl::SimpleAtoi(parts.second, &n) || n < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("--figures: ", name, ", expected machine, depth:N or streams:N"));
  }
  LK_ASSIGN_OR_RETURN(const RunResult r,
                      is_depth ? Run(engine, 1, n, n_decode) : Run(engine, n, 16, n_decode));
  std::printf("{\"figure\":\"%s\"", name.c_str());
  if (is_depth) {
    std::printf(",\"prefill_tokens_per_s\":%.3f",
                n / (static_cast<double>(r.events[0].timings.prefill_us) * 1e-6));
  }
  std::printf(",\"decode_tokens_per_s\":%.3f}\n",
              (is_depth ? 1 : n) * (n_decode - 1) / LongestDecodeSeconds(r));
  return absl::OkStatus();
}

absl::Status PrintEachFigure(Engine& engine, const std::vector<std::string>& names) {
  LK_RETURN_IF_ERROR(Run(engine, 1, 16, 4).status());  // pages of weights, threads
  const EngineStats stats = engine.Stats();
  std::printf("{\"figure\":\"engine\",\"dtype\":\"%s\",\"weight_mb\":%.1f}\n", stats.dtype.c_str(),
              static_cast<double>(stats.weight_bytes) * 1e-6);
  for (const std::string& name : names) {
    LK_RETURN_IF_ERROR(PrintFigure(engine, name));
    std::fflush(stdout);
  }
  return absl::OkStatus();
}

absl::StatusOr<EngineOptions::Dtype> ParseDtype(const std::string& name) {
  if (name == "auto") return EngineOptions::Dtype::kAuto;
  if (name == "float32") return EngineOptions::Dtype::kFloat32;
  if (name == "bfloat16") return EngineOptions::Dtype::kBFloat16;
  if (name == "int8") return EngineOptions::Dtype::kInt8;
  return absl::InvalidArgumentError(
      absl::StrCat("--dtype: ", name, ", expected auto, float32, bfloat16 or int8"));
}

absl::Status BenchForms() {
  LK_ASSIGN_OR_RETURN(const auto dtype, ParseDtype(absl::GetFlag(FLAGS_dtype)));
  const bool is_wide = dtype == EngineOptions::Dtype::kFloat32;
  const int n_cores = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  const int n_threads = absl::GetFlag(FLAGS_threads) > 0 ? absl::GetFlag(FLAGS_threads) : n_cores;
  LK_ASSIGN_OR_RETURN(const MachineLimits limits, MeasureMachine(n_threads));
  std::printf("%s, cache %s, %d threads: peak %.1f GFLOP/s (fp32), read %.1f GB/s\n",
              std::string(Kernels().name).c_str(), is_wide ? "float32" : "bfloat16", n_threads,
              limits.peak_flops * 1e-9, limits.read_bytes_per_second * 1e-9);
  TaylorBenchOptions options{limits};
  options.cache_type = is_wide ? StorageType::kFloat32 : StorageType::kBFloat16;
  options.n_runs = std::max(1, absl::GetFlag(FLAGS_runs));
  return BenchTaylorShift(options);
}

absl::Status Main() {
  if (absl::GetFlag(FLAGS_taylorshift)) return BenchForms();
  std::string directory = absl::GetFlag(FLAGS_model);
  std::filesystem::path temporary;
  if (absl::GetFlag(FLAGS_random_110m)) {
    std::string pattern = (std::filesystem::temp_directory_path() / "lowkey-bench-XXXXXX").string();
    if (mkdtemp(pattern.data()) == nullptr) {
      return absl::UnavailableError("cannot make a temporary directory for the random model");
    }
    temporary = directory = pattern;
    LK_RETURN_IF_ERROR(WriteRandomModel(directory, Random110m()));
  }
  if (absl::GetFlag(FLAGS_attention).empty()) {
    return absl::InvalidArgumentError("--attention: empty, expected names of mechanisms");
  }
  if (directory.empty()) {
    return absl::InvalidArgumentError("--model: empty, expected a directory (or --random_110m)");
  }
  EngineOptions options;
  LK_ASSIGN_OR_RETURN(options.dtype, ParseDtype(absl::GetFlag(FLAGS_dtype)));
  options.n_threads = absl::GetFlag(FLAGS_threads);
  options.keeps_prefixes = false;  // the same prompts, again and again
  LK_ASSIGN_OR_RETURN(auto weights, OpenCheckpoint(directory));
  auto engine = CreateEngine(std::move(weights), options, nullptr);
  if (!temporary.empty()) std::filesystem::remove_all(temporary);  // the maps keep the files' pages
  LK_RETURN_IF_ERROR(engine.status());
  const std::vector<std::string> figures = absl::GetFlag(FLAGS_figures);
  if (!figures.empty()) return PrintEachFigure(**engine, figures);
  const EngineStats stats = (*engine)->Stats();
  LK_ASSIGN_OR_RETURN(const MachineLimits limits, MeasureMachine(stats.n_threads));
  std::printf("%s, %s, %d threads: peak %.1f GFLOP/s (fp32), read %.1f GB/s; weights %.1f MB\n",
              stats.processor.c_str(), stats.dtype.c_str(), stats.n_threads,
              limits.peak_flops * 1e-9, limits.read_bytes_per_second * 1e-9,
              static_cast<double>(stats.weight_bytes) * 1e-6);
  if (absl::GetFlag(FLAGS_draft)) {
    DraftBenchOptions drafts;
    drafts.n_runs = std::max(1, absl::GetFlag(FLAGS_runs));
    drafts.n_streams = absl::GetFlag(FLAGS_streams);
    return BenchDrafts(**engine, drafts);
  }
  return absl::GetFlag(FLAGS_closed_loop) > 0 ? PrintClosedLoop(**engine)
                                              : PrintFigures(**engine, limits);
}

}  // namespace
}  // namespace lowkey

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage(
      "tokens per second of the engine without a server, beside the machine's limits\n"
      "  engine_bench --random_110m\n"
      "  engine_bench --model model.gguf --dtype auto --figures machine,depth:512,streams:16\n"
      "  engine_bench --taylorshift --threads 1\n"
      "  engine_bench --random_110m --draft\n"
      "  engine_bench --model models/tales --dtype float32");
  absl::ParseCommandLine(argc, argv);
  const absl::Status status = lowkey::Main();
  if (!status.ok()) std::fprintf(stderr, "engine_bench: %s\n", status.ToString().c_str());
  return status.ok() ? 0 : 1;
}
