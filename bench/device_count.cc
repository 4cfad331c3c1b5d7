// Counts what one layer of a step launches on a device and how many bytes that moves, and says what
// the device's limits make of it. It needs no device, and measures no time:
//   device_count [--shape 7b] [--batches 1,64] [--depth 512] [--prompts 2048]
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "bench/counting_device.h"
#include "bench/random_model.h"
#include "engine/base/status_macros.h"
#include "engine/loader/checkpoint.h"
#include "engine/runtime/model_runner.h"

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

constexpr int64_t kMaxRows = 2048;
constexpr int32_t kToken = 5;

// Returns whether launches of this kind happen once a step, and not in every layer.
bool IsOncePerStep(const std::string& kind) { return kind == "embed" || kind == "angles"; }

double LimitMicroseconds(const LaunchCount& count) {
  return std::max(count.bytes / absl::GetFlag(FLAGS_copy_gb_s) * 1e-3,
                  count.flops / absl::GetFlag(FLAGS_tflops) * 1e-6);
}

void PrintRow(const std::string& kind, const LaunchCount& count, double us) {
  std::printf("  %-22s %8ld %10.2f %10.3f %9.2f\n", kind.c_str(), static_cast<long>(count.launches),
              count.bytes * 1e-6, count.flops * 1e-9, us);
}

void Print(const CountingDevice& device, const std::string& title) {
  std::printf("\n%s, one layer of %s\n  %-22s %8s %10s %10s %9s\n", title.c_str(),
              absl::GetFlag(FLAGS_shape).c_str(), "", "launches", "MB", "GFLOP", "limit us");
  LaunchCount sum;
  double us = 0;
  for (const auto& [kind, count] : device.counts()) {
    if (IsOncePerStep(kind)) continue;
    PrintRow(kind, count, LimitMicroseconds(count));
    sum.launches += count.launches;
    sum.bytes += count.bytes;
    sum.flops += count.flops;
    us += LimitMicroseconds(count);
  }
  PrintRow("in all", sum, us);
  const double weights_and_products = sum.flops / absl::GetFlag(FLAGS_tflops) * 1e-6;
  std::printf("  at these limits products take %.0f%% of the time\n",
              100 * weights_and_products / us);
}

class Counter {
 public:
  Counter(CountingDevice& device, ModelRunner& runner) : device_(device), runner_(runner) {}

  absl::Status Decode(int64_t batch) {
    const int64_t depth = absl::GetFlag(FLAGS_depth);
    std::vector<SequenceCache> sequences(batch);
    for (SequenceCache& s : sequences) LK_RETURN_IF_ERROR(Prefill(s, depth));
    std::vector<ModelRunner::Rows> rows;
    for (SequenceCache& s : sequences) rows.push_back({&s, s.n_tokens, {&kToken, 1}});
    device_.Reset();
    LK_RETURN_IF_ERROR(runner_.Step(rows));
    Print(device_, absl::StrCat("decode of ", batch, " at ", depth, " tokens"));
    return absl::OkStatus();
  }

  absl::Status Prompt(int64_t n_tokens) {
    SequenceCache sequence;
    device_.Reset();
    LK_RETURN_IF_ERROR(Prefill(sequence, n_tokens));
    Print(device_, absl::StrCat("prompt of ", n_tokens, " tokens"));
    return absl::OkStatus();
  }

 private:
  absl::Status Prefill(SequenceCache& sequence, int64_t n_tokens) {
    sequence.n_prompt_tokens = n_tokens;
    const std::vector<int32_t> tokens(n_tokens, kToken);
    while (sequence.n_tokens < n_tokens) {
      const int64_t n = std::min(kMaxRows, n_tokens - sequence.n_tokens);
      const ModelRunner::Rows rows{&sequence, sequence.n_tokens,
                                   absl::MakeConstSpan(tokens).first(static_cast<size_t>(n))};
      LK_RETURN_IF_ERROR(runner_.Step({&rows, 1}));
    }
    return absl::OkStatus();
  }

  CountingDevice& device_;
  ModelRunner& runner_;
};

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

absl::Status Count(const std::string& directory) {
  LK_ASSIGN_OR_RETURN(RandomModelOptions shape, RandomShape(absl::GetFlag(FLAGS_shape)));
  shape.config.n_layers = 1;
  shape.config.vocab_size = 256;  // the head is not counted
  LK_RETURN_IF_ERROR(WriteRandomModel(directory, shape));
  const auto device = std::make_shared<CountingDevice>();
  EngineOptions options;
  options.device = device;
  options.dtype = EngineOptions::Dtype::kBFloat16;
  options.max_batch_tokens = kMaxRows;
  LK_ASSIGN_OR_RETURN(auto weights, OpenCheckpoint(directory));
  LK_ASSIGN_OR_RETURN(const auto runner, ModelRunner::Create(std::move(weights), options, nullptr));
  Counter counter(*device, *runner);
  LK_ASSIGN_OR_RETURN(const auto batches, Numbers(absl::GetFlag(FLAGS_batches)));
  LK_ASSIGN_OR_RETURN(const auto prompts, Numbers(absl::GetFlag(FLAGS_prompts)));
  for (const int64_t n : batches) LK_RETURN_IF_ERROR(counter.Decode(n));
  for (const int64_t n : prompts) LK_RETURN_IF_ERROR(counter.Prompt(n));
  return absl::OkStatus();
}

absl::Status Main() {
  std::string directory =
      (std::filesystem::temp_directory_path() / "lowkey_device_count_XXXXXX").string();
  if (mkdtemp(directory.data()) == nullptr) {
    return absl::UnavailableError(absl::StrCat(directory, ": cannot be made"));
  }
  const absl::Status status = Count(directory);
  std::filesystem::remove_all(directory);
  return status;
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
