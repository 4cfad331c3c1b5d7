// How much `auto` loses against the best mechanism, request by request:
//   selection_bench --model models/tales [--requests 200] [--html report.html]
// Each request, alone or with others like it, runs with `auto` and with every mechanism that the
// rules allow; the best of --runs counts. Printed are the median and the 95th percentile of the
// chosen time (objectives latency and balanced) or bytes (memory) over the least of all.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/blocking_counter.h"
#include "absl/time/clock.h"
#include "client/report/page.h"
#include "engine/base/status_macros.h"
#include "engine/config/attention_option_table.h"
#include "engine/loader/checkpoint.h"
#include "engine/runtime/engine.h"
#include "server/config/machine_profile.h"
#include "server/config/token_text.h"

ABSL_FLAG(std::string, model, "models/tales", "Hugging Face directory with a bundle");
ABSL_FLAG(int, requests, 200, "requests for each objective");
ABSL_FLAG(int, runs, 3, "runs of each request and mechanism; the best counts");
ABSL_FLAG(int, threads, 0, "0: one per core");
ABSL_FLAG(std::string, html, "", "file to write a page with a plot to");

namespace lowkey {
namespace {

struct Shape {
  int n_seqs = 1, n_prompt = 1, n_new = 1;
};

struct Cost {
  double seconds = 0, bytes = 0;
  std::string label;  // of the mechanism that ran
};

// Prompts are 16 to 3,000 tokens long, generations 4 to 128, evenly over the logarithm.
std::vector<Shape> Shapes(int n, int context_tokens) {
  std::mt19937 rng(1);
  const auto draw = [&](double low, double high) {
    std::uniform_real_distribution<double> log(std::log(low), std::log(high));
    return static_cast<int>(std::exp(log(rng)));
  };
  std::vector<Shape> shapes(n);
  for (Shape& s : shapes) {
    s = {1 << (rng() % 4), draw(16, std::min(3000, context_tokens - 128)), draw(4, 128)};
  }
  return shapes;
}

class DoneSink : public Sink {
 public:
  DoneSink(FinalEvent* event, absl::BlockingCounter* done) : event_(event), done_(done) {}
  SinkAnswer OnToken(int32_t, const SampledToken&) override { return SinkAnswer::kContinue; }
  void OnDone(const FinalEvent& event) override {
    *event_ = event;
    done_->DecrementCount();
  }

 private:
  FinalEvent* const event_;
  absl::BlockingCounter* const done_;
};

absl::StatusOr<Cost> RunOnce(Engine& engine, const Shape& shape, const EngineRequest& like) {
  std::vector<FinalEvent> events(shape.n_seqs);
  absl::BlockingCounter done(shape.n_seqs);
  const absl::Time start = absl::Now();
  for (int i = 0; i < shape.n_seqs; ++i) {
    EngineRequest request = like;
    request.max_new_tokens = shape.n_new;
    for (int t = 0; t < shape.n_prompt; ++t) {
      request.prompt.push_back((t * 7919 + i * 104729 + 3) % engine.config().vocab_size);
    }
    LK_RETURN_IF_ERROR(
        engine.Submit(std::move(request), std::make_unique<DoneSink>(&events[i], &done)).status());
  }
  done.Wait();
  Cost cost;
  cost.seconds = absl::ToDoubleSeconds(absl::Now() - start);
  for (const FinalEvent& e : events) {
    LK_RETURN_IF_ERROR(e.status);
    cost.bytes += static_cast<double>(e.attention.cache_bytes);
    cost.label = std::string(MechanismName(e.attention.mechanism));
  }
  return cost;
}

// Options that the model may be asked for, with their quality.
struct Choice {
  AttentionOptions options;
  MechanismInfo info;
};

std::vector<Choice> ChoicesOf(const Checkpoint& checkpoint, const Engine& engine) {
  std::vector<Choice> choices;
  for (const MechanismInfo& info : engine.mechanisms()) {
    const bool is_bundled =
        std::any_of(checkpoint.mechanisms.begin(), checkpoint.mechanisms.end(),
                    [&](const BundledMechanism& m) { return m.mechanism == info.id; });
    if (info.id == Mechanism::kAtp || (!is_bundled && info.id != Mechanism::kStandard)) continue;
    for (const AttentionOptions& options : EqualOptions(info.id))
      choices.push_back({options, info});
  }
  return choices;
}

bool MayRun(const Choice& c, const Shape& shape, double floor) {
  const int64_t n = shape.n_prompt + shape.n_new;
  if (n > c.info.max_tokens.value_or(n)) return false;
  return c.info.id == Mechanism::kStandard || c.info.perplexity_ratios.At(n).value_or(1e9) <= floor;
}

struct Outcome {
  Shape shape;
  Cost chosen, best;
  double ratio = 1;
};

class Bench {
 public:
  Bench(Engine& engine, std::vector<Choice> choices, double floor)
      : engine_(engine), choices_(std::move(choices)), floor_(floor) {}

  absl::StatusOr<Outcome> Measure(const Shape& shape, Objective objective) {
    EngineRequest chosen;
    chosen.selection.emplace().objective = objective;
    std::vector<EngineRequest> requests = {chosen};
    for (const Choice& c : choices_) {
      if (!MayRun(c, shape, floor_)) continue;
      requests.emplace_back().attention = c.options;
    }
    std::vector<Cost> costs(requests.size());
    // In turn, so that a machine that slows down slows all of them.
    for (int run = 0; run < absl::GetFlag(FLAGS_runs); ++run) {
      for (size_t i = 0; i < requests.size(); ++i) {
        LK_ASSIGN_OR_RETURN(const Cost cost, RunOnce(engine_, shape, requests[i]));
        if (run == 0 || cost.seconds < costs[i].seconds) costs[i] = cost;
      }
    }
    const auto of = [&](const Cost& c) {
      return objective == Objective::kMemory ? c.bytes : c.seconds;
    };
    const Cost& best = *std::min_element(
        costs.begin(), costs.end(), [&](const Cost& a, const Cost& b) { return of(a) < of(b); });
    return Outcome{shape, costs[0], best, of(costs[0]) / of(best)};
  }

 private:
  Engine& engine_;
  const std::vector<Choice> choices_;
  const double floor_;
};

double Quantile(const std::vector<Outcome>& outcomes, double q) {
  std::vector<double> ratios;
  for (const Outcome& o : outcomes) ratios.push_back(o.ratio);
  std::sort(ratios.begin(), ratios.end());
  return ratios[static_cast<size_t>(q * static_cast<double>(ratios.size() - 1))];
}

// One dot per request, by what was taken.
nlohmann::ordered_json ChartOf(const std::vector<Outcome>& outcomes, const std::string& objective) {
  nlohmann::ordered_json chart = {
      {"title", absl::StrCat("Chosen over best, objective ", objective)},
      {"note", "A dot is a request; 1 is the best choice"},
      {"x", {{"label", "prompt"}, {"unit", "tokens"}, {"scale", "log"}, {"base", 2}}},
      {"y", {{"label", objective == "memory" ? "bytes over least" : "time over least"}}},
      {"series", nlohmann::ordered_json::array()}};
  std::vector<std::string> labels;
  for (const Outcome& o : outcomes) {
    if (std::find(labels.begin(), labels.end(), o.chosen.label) == labels.end()) {
      labels.push_back(o.chosen.label);
    }
  }
  for (const std::string& label : labels) {
    nlohmann::ordered_json dots = nlohmann::ordered_json::array();
    for (const Outcome& o : outcomes) {
      if (o.chosen.label == label) dots.push_back({o.shape.n_prompt, o.ratio});
    }
    chart["series"].push_back(
        {{"name", label}, {"points", nlohmann::ordered_json::array()}, {"dots", dots}});
  }
  return chart;
}

absl::Status Main() {
  LK_ASSIGN_OR_RETURN(const auto checkpoint, OpenCheckpoint(absl::GetFlag(FLAGS_model)));
  EngineOptions options;
  options.n_threads = absl::GetFlag(FLAGS_threads);
  options.keeps_prefixes = false;
  MachineProfile(checkpoint, options, [&](SelectionProfile p) { options.profile = std::move(p); });
  LK_ASSIGN_OR_RETURN(const auto engine, CreateEngine(checkpoint, options, nullptr));
  Bench bench(*engine, ChoicesOf(*checkpoint, *engine),
              checkpoint->max_perplexity_ratio.value_or(kDefaultMaxPerplexityRatio));
  nlohmann::ordered_json report = BeginReport("selection_bench: what auto loses");
  ReportTable table{"chosen over best", {"objective", "median", "95 %", "most", "taken"}};
  for (const Objective objective :
       {Objective::kLatency, Objective::kMemory, Objective::kBalanced}) {
    const std::string name(NameOf(objective));
    std::vector<Outcome> outcomes;
    for (const Shape& shape :
         Shapes(absl::GetFlag(FLAGS_requests), engine->limits().context_tokens)) {
      LK_ASSIGN_OR_RETURN(outcomes.emplace_back(), bench.Measure(shape, objective));
      std::fprintf(stderr, "\r%s %zu ", name.c_str(), outcomes.size());
    }
    const nlohmann::ordered_json chart = ChartOf(outcomes, name);
    std::string taken;
    for (const auto& series : chart["series"]) {
      absl::StrAppend(&taken, taken.empty() ? "" : ", ", series["name"].get<std::string>(), " ",
                      series["dots"].size());
    }
    table.rows.push_back({name, NumberText(Quantile(outcomes, 0.5)),
                          NumberText(Quantile(outcomes, 0.95)), NumberText(Quantile(outcomes, 1)),
                          taken});
    report["charts"].push_back(chart);
  }
  std::printf("\n%s", TableText(table, "").c_str());
  report["tables"].push_back(table);
  if (absl::GetFlag(FLAGS_html).empty()) return absl::OkStatus();
  return WriteTextFile(absl::GetFlag(FLAGS_html), ReportPage(report));
}

}  // namespace
}  // namespace lowkey

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage(
      "selection_bench: what auto loses against the best mechanism of each request\n"
      "  selection_bench --model models/tales --html report.html");
  absl::ParseCommandLine(argc, argv);
  const absl::Status status = lowkey::Main();
  if (status.ok()) return 0;
  std::fprintf(stderr, "selection_bench: %s\n", status.ToString().c_str());
  return 1;
}
