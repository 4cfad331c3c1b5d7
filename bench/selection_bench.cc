// How much `auto` loses against the best mechanism, request by request, and whether its crossovers
// are where this machine's times cross:
//   selection_bench --model models/tales [--requests 200] [--html report.html]
// Requests of mixed lengths and numbers (alone, several at once, several choices) run under every
// option that `auto` may take; the best of --runs counts. Printed are the median and the 95th
// percentile of the chosen option's cost over the least of all: time for the objectives latency and
// balanced, bytes of cache for memory.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/synchronization/blocking_counter.h"
#include "absl/time/clock.h"
#include "client/report/page.h"
#include "engine/base/status_macros.h"
#include "engine/config/attention_option_table.h"
#include "engine/loader/checkpoint.h"
#include "engine/runtime/engine.h"
#include "server/config/machine_profile.h"
#include "server/config/terminal/terminal.h"
#include "server/config/user_files.h"

ABSL_FLAG(std::string, model, "models/tales", "Hugging Face directory with a bundle");
ABSL_FLAG(int, requests, 200, "shapes of requests");
ABSL_FLAG(int, runs, 3, "runs of each shape and option; the best counts");
ABSL_FLAG(int, threads, 0, "0: one per core");
ABSL_FLAG(std::string, html, "", "file to write a page with plots to");

namespace lowkey {
namespace {

constexpr std::array<Objective, 3> kObjectives = {Objective::kLatency, Objective::kMemory,
                                                  Objective::kBalanced};

// Some requests that run together, all alike.
struct Shape {
  int n_requests = 1, n_choices = 1, n_prompt = 1, n_new = 1;
};

struct Cost {
  double seconds = 0, bytes = 0;
};

// Draws prompts of 16 to 3,000 tokens and generations of 4 to 128, evenly over the logarithm.
std::vector<Shape> Shapes(int n, int context_tokens) {
  constexpr std::pair<int, int> kTogether[] = {{1, 1}, {1, 2}, {1, 4}, {1, 8},
                                               {2, 1}, {4, 1}, {8, 1}};
  std::mt19937 rng(1);
  const auto draw = [&](double low, double high) {
    std::uniform_real_distribution<double> log(std::log(low), std::log(high));
    return static_cast<int>(std::exp(log(rng)));
  };
  std::vector<Shape> shapes(n);
  for (Shape& s : shapes) {
    const auto [n_requests, n_choices] = kTogether[rng() % std::size(kTogether)];
    s = {n_requests, n_choices, draw(16, std::min(3000, context_tokens - 128)), draw(4, 128)};
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

// Runs requests of that shape that ask for attention as `like` does. `report` takes the first
// one's.
absl::StatusOr<Cost> Run(Engine& engine, const Shape& shape, const EngineRequest& like,
                         AttentionReport* report) {
  std::vector<FinalEvent> events(shape.n_requests);
  absl::BlockingCounter done(shape.n_requests);
  const absl::Time start = absl::Now();
  for (int i = 0; i < shape.n_requests; ++i) {
    EngineRequest request = like;
    request.max_new_tokens = shape.n_new;
    request.n = shape.n_choices;
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
  }
  if (report != nullptr) *report = events[0].attention;
  return cost;
}

// What `auto` took, and what it could have taken.
struct Choice {
  std::string taken;                // by AttentionLabel
  std::vector<std::string> labels;  // of all that the rules allowed
  std::vector<Crossover> crossovers;
};

// Reads the labels from the report's reason: "auto, latency, profile p: LABEL 1.2 s, 3 MiB, ..
// (taken); LABEL .."
Choice ReadChoice(const AttentionReport& report) {
  Choice choice;
  choice.crossovers = report.crossovers;
  const std::string bids = report.reason.substr(report.reason.find(": ") + 2);
  for (const absl::string_view bid : absl::StrSplit(bids, "; ")) {
    const absl::string_view before = bid.substr(0, bid.find(" s, "));
    choice.labels.emplace_back(before.substr(0, before.rfind(' ')));
    if (absl::EndsWith(bid, "(taken)")) choice.taken = choice.labels.back();
  }
  return choice;
}

// One shape under every objective.
struct Outcome {
  Shape shape;
  std::string taken;
  double over_best = 1;
};

class Bench {
 public:
  Bench(Engine& engine, const Checkpoint& checkpoint) : engine_(engine) {
    std::vector<AttentionOptions> options(1);
    for (const BundledMechanism& m : checkpoint.mechanisms) {
      for (const AttentionOptions& o : EqualOptions(m.mechanism)) options.push_back(o);
    }
    for (const AttentionOptions& o : options) options_[AttentionLabel(o)] = o;
  }

  // Returns the outcomes in the order of kObjectives.
  absl::StatusOr<std::vector<Outcome>> Measure(const Shape& shape) {
    std::vector<Choice> choices;
    for (const Objective objective : kObjectives) {
      LK_ASSIGN_OR_RETURN(choices.emplace_back(), Ask(shape, objective));
    }
    LK_ASSIGN_OR_RETURN(const auto costs, MeasureAll(shape, choices[0].labels));
    std::vector<Outcome> outcomes;
    for (size_t i = 0; i < choices.size(); ++i) {
      const auto of = [&](const Cost& c) {
        return kObjectives[i] == Objective::kMemory ? c.bytes : c.seconds;
      };
      double least = of(costs.at(choices[i].taken));
      for (const auto& [label, cost] : costs) least = std::min(least, of(cost));
      outcomes.push_back({shape, choices[i].taken, of(costs.at(choices[i].taken)) / least});
    }
    return outcomes;
  }

  // Returns a row for each crossover of the objective latency: prompt lengths around it, and the
  // times of both mechanisms there.
  absl::StatusOr<ReportTable> MeasureCrossovers() {
    ReportTable table{"crossovers, one request, 32 new tokens",
                      {"from", "to", "prompt", "to/from before", "at", "after"}};
    const Shape shape{1, 1, 1024, 32};
    LK_ASSIGN_OR_RETURN(const Choice choice, Ask(shape, Objective::kLatency));
    for (const Crossover& c : choice.crossovers) {
      std::vector<std::string> row = {std::string(MechanismName(c.from)),
                                      std::string(MechanismName(c.to)), absl::StrCat(c.tokens)};
      for (const double share : {0.9, 1.0, 1.1}) {
        Shape near = shape;
        near.n_prompt = static_cast<int>(share * static_cast<double>(c.tokens));
        LK_ASSIGN_OR_RETURN(const double from, Best(near, c.from));
        LK_ASSIGN_OR_RETURN(const double to, Best(near, c.to));
        row.push_back(absl::StrFormat("%.3f", to / from));
      }
      table.rows.push_back(row);
    }
    return table;
  }

 private:
  absl::StatusOr<Choice> Ask(const Shape& shape, Objective objective) {
    EngineRequest request;
    request.selection.emplace().objective = objective;
    AttentionReport report;
    Shape one = shape;
    one.n_requests = 1;
    LK_RETURN_IF_ERROR(Run(engine_, one, request, &report).status());
    return ReadChoice(report);
  }

  absl::StatusOr<std::map<std::string, Cost>> MeasureAll(const Shape& shape,
                                                         const std::vector<std::string>& labels) {
    std::map<std::string, Cost> costs;
    // In turns, so that a machine that slows down slows all of them.
    for (int run = 0; run < absl::GetFlag(FLAGS_runs); ++run) {
      for (const std::string& label : labels) {
        EngineRequest request;
        request.attention = options_.at(label);
        LK_ASSIGN_OR_RETURN(const Cost cost, Run(engine_, shape, request, nullptr));
        const auto [it, is_new] = costs.emplace(label, cost);
        if (!is_new) it->second.seconds = std::min(it->second.seconds, cost.seconds);
      }
    }
    return costs;
  }

  // Returns the least time under the mechanism's fastest options.
  absl::StatusOr<double> Best(const Shape& shape, Mechanism mechanism) {
    std::vector<std::string> labels;
    for (const auto& [label, options] : options_) {
      if (options.mechanism == mechanism) labels.push_back(label);
    }
    double least = 1e30;
    for (int turn = 0; turn < 3; ++turn) {
      LK_ASSIGN_OR_RETURN(const auto costs, MeasureAll(shape, labels));
      for (const auto& [label, cost] : costs) least = std::min(least, cost.seconds);
    }
    return least;
  }

  Engine& engine_;
  std::map<std::string, AttentionOptions> options_;  // by AttentionLabel
};

double Quantile(const std::vector<Outcome>& outcomes, double q) {
  std::vector<double> ratios;
  for (const Outcome& o : outcomes) ratios.push_back(o.over_best);
  std::sort(ratios.begin(), ratios.end());
  return ratios[static_cast<size_t>(std::ceil(q * static_cast<double>(ratios.size() - 1)))];
}

// Draws one dot per shape, in the color of what was taken.
nlohmann::ordered_json ChartOf(const std::vector<Outcome>& outcomes, Objective objective) {
  const std::string of = objective == Objective::kMemory ? "bytes" : "time";
  nlohmann::ordered_json chart = {
      {"title",
       absl::StrCat("Objective ", std::string(NameOf(objective)), ": ", of, " over least")},
      {"note", "A dot is a request or some that run together; 1 is the best choice"},
      {"x", {{"label", "prompt"}, {"unit", "tokens"}, {"scale", "log"}, {"base", 2}}},
      {"y", {{"label", of + " over least"}}},
      {"series", nlohmann::ordered_json::array()}};
  std::map<std::string, nlohmann::ordered_json> dots;
  for (const Outcome& o : outcomes) dots[o.taken].push_back({o.shape.n_prompt, o.over_best});
  for (const auto& [label, taken] : dots) {
    chart["series"].push_back(
        {{"name", label}, {"points", nlohmann::ordered_json::array()}, {"dots", taken}});
  }
  return chart;
}

std::string TakenText(const nlohmann::ordered_json& chart) {
  std::string text;
  for (const auto& series : chart["series"]) {
    absl::StrAppend(&text, text.empty() ? "" : ", ", series["name"].get<std::string>(), " ",
                    series["dots"].size());
  }
  return text;
}

absl::Status Main() {
  LK_ASSIGN_OR_RETURN(const auto checkpoint, OpenCheckpoint(absl::GetFlag(FLAGS_model)));
  EngineOptions options;
  options.n_threads = absl::GetFlag(FLAGS_threads);
  options.keeps_prefixes = false;
  MachineProfile(checkpoint, options, [&](SelectionProfile p) { options.profile = std::move(p); });
  LK_ASSIGN_OR_RETURN(const auto engine, CreateEngine(checkpoint, options, nullptr));
  Bench bench(*engine, *checkpoint);
  const std::vector<Shape> shapes =
      Shapes(absl::GetFlag(FLAGS_requests), engine->limits().context_tokens);
  std::vector<Outcome> outcomes[kObjectives.size()];
  ProgressBar bar(stderr, "requests");
  for (size_t i = 0; i < shapes.size(); ++i) {
    LK_ASSIGN_OR_RETURN(const std::vector<Outcome> measured, bench.Measure(shapes[i]));
    for (size_t o = 0; o < measured.size(); ++o) outcomes[o].push_back(measured[o]);
    bar.Show(static_cast<int64_t>(i + 1), static_cast<int64_t>(shapes.size()));
  }
  nlohmann::ordered_json report = BeginReport("selection_bench: what auto loses");
  ReportTable table{"chosen over best", {"objective", "median", "95 %", "most", "taken"}};
  for (size_t o = 0; o < kObjectives.size(); ++o) {
    const nlohmann::ordered_json chart = ChartOf(outcomes[o], kObjectives[o]);
    std::vector<std::string> row = {std::string(NameOf(kObjectives[o]))};
    for (const double q : {0.5, 0.95, 1.0}) {
      row.push_back(absl::StrFormat("%.3f", Quantile(outcomes[o], q)));
    }
    row.push_back(TakenText(chart));
    table.rows.push_back(row);
    report["charts"].push_back(chart);
  }
  LK_ASSIGN_OR_RETURN(const ReportTable crossovers, bench.MeasureCrossovers());
  std::printf("%s\n%s", TableText(table, "").c_str(), TableText(crossovers, "").c_str());
  report["tables"] = {table, crossovers};
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
