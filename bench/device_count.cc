// Counts what one layer of a step launches on a device and how many bytes that moves, and says what
// the device's limits make of it. It needs no device, and measures no time:
//   device_count [--shape 7b] [--batches 1,64] [--depth 512] [--prompts 2048]
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "bench/layer_count.h"
#include "bench/random_model.h"
#include "engine/base/status_macros.h"

ABSL_FLAG(std::string, shape, "7b", "of the layer: 110m, 1.1b or 7b");
ABSL_FLAG(std::vector<std::string>, batches, (std::vector<std::string>{"1", "64"}),
          "sequences decoded together");
ABSL_FLAG(std::vector<std::string>, prompts, (std::vector<std::string>{"2048"}),
          "prompt lengths in tokens");
ABSL_FLAG(int, depth, 512, "tokens that each decoded sequence holds");
ABSL_FLAG(double, copy_gb_s, 4300, "the device's memory bandwidth (H200)");
ABSL_FLAG(double, tflops, 790, "the device's rate of bf16 products");

namespace lowkey {
namespace {

double ByteMicroseconds(double bytes) { return bytes / absl::GetFlag(FLAGS_copy_gb_s) * 1e-3; }
double FlopMicroseconds(double flops) { return flops / absl::GetFlag(FLAGS_tflops) * 1e-6; }
double LimitMicroseconds(const LaunchCount& count) {
  return std::max(ByteMicroseconds(count.bytes), FlopMicroseconds(count.flops));
}

void PrintRow(const std::string& kind, const LaunchCount& count, double us) {
  std::printf("  %-24s %8ld %9.2f %9.3f %9.2f\n", kind.c_str(), static_cast<long>(count.launches),
              count.bytes * 1e-6, count.flops * 1e-9, us);
}

void Print(const std::string& title, const LayerCounter::Counts& counts) {
  std::printf("\n%s, one layer of %s\n  %-24s %8s %9s %9s %9s\n", title.c_str(),
              absl::GetFlag(FLAGS_shape).c_str(), "", "launches", "MB", "GFLOP", "limit us");
  double us = 0;
  for (const auto& [kind, count] : counts) {
    PrintRow(kind, count, LimitMicroseconds(count));
    us += LimitMicroseconds(count);
  }
  const LaunchCount sum = LayerCounter::Sum(counts);
  PrintRow("in all", sum, us);
  std::printf("  at most %.0f%% of the bandwidth and %.0f%% of the rate of products\n",
              100 * ByteMicroseconds(sum.bytes) / us, 100 * FlopMicroseconds(sum.flops) / us);
}

absl::StatusOr<std::vector<int64_t>> Numbers(const std::vector<std::string>& texts) {
  std::vector<int64_t> numbers;
  for (const std::string& text : texts) {
    int64_t& n = numbers.emplace_back();
    if (!absl::SimpleAtoi(text, &n) || n < 1) {
      return absl::InvalidArgumentError(absl::StrCat(text, ": expected a positive number"));
    }
  }
  return numbers;
}

absl::Status Main() {
  LK_ASSIGN_OR_RETURN(const RandomModelOptions shape, RandomShape(absl::GetFlag(FLAGS_shape)));
  LK_ASSIGN_OR_RETURN(const auto batches, Numbers(absl::GetFlag(FLAGS_batches)));
  LK_ASSIGN_OR_RETURN(const auto prompts, Numbers(absl::GetFlag(FLAGS_prompts)));
  LK_ASSIGN_OR_RETURN(const auto counter,
                      LayerCounter::Create(shape.config, EngineOptions::Dtype::kBFloat16));
  const int64_t depth = absl::GetFlag(FLAGS_depth);
  for (const int64_t n : batches) {
    LK_ASSIGN_OR_RETURN(const auto counts, counter->Decode(n, depth));
    Print(absl::StrCat("decode of ", n, " at ", depth, " tokens"), counts);
  }
  for (const int64_t n : prompts) {
    LK_ASSIGN_OR_RETURN(const auto counts, counter->Prompt(n));
    Print(absl::StrCat("prompt of ", n, " tokens"), counts);
  }
  return absl::OkStatus();
}

}  // namespace
}  // namespace lowkey

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage("counts launches and bytes of a layer on a device");
  absl::ParseCommandLine(argc, argv);
  const absl::Status status = lowkey::Main();
  if (status.ok()) return 0;
  std::fprintf(stderr, "device_count: %s\n", std::string(status.message()).c_str());
  return 1;
}
