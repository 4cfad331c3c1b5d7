// A device's limits, and what share of them a random Llama-shaped model's steps reach:
//   device_bench --device cuda:0 [--shape 1.1b | --model_dir DIR] [--dtype bfloat16] [--runs 5]
// One line of JSON for each figure. LOWKEY_CUDA_PRODUCTS=tiles, cublas or fastest measures another
// way to compute products (engine/kernels/cuda/native/products/products.h).
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/flags/usage.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "bench/layer_count.h"
#include "bench/random_model.h"
#include "engine/base/dtype.h"
#include "engine/base/status_macros.h"
#include "engine/kernels/device/device.h"
#include "engine/kernels/device/weight.h"
#include "engine/kernels/narrow_weight.h"
#include "engine/loader/checkpoint.h"
#include "engine/runtime/model_runner.h"
#include "engine/runtime/model_setup.h"
#include "engine/sampler/sampler.h"

ABSL_FLAG(std::string, device, "cuda:0", "the device to measure");
ABSL_FLAG(std::string, shape, "1.1b", "of the random model: 110m, 1.1b or 7b");
ABSL_FLAG(std::string, model_dir, "", "a model to measure instead");
ABSL_FLAG(std::string, dtype, "bfloat16", "of its weights: bfloat16, int8 or float8");
ABSL_FLAG(std::vector<std::string>, batches, (std::vector<std::string>{"1", "64"}),
          "sequences decoded together");
ABSL_FLAG(std::vector<std::string>, prompts,
          (std::vector<std::string>{"2048", "4096", "8192", "16384"}), "prompt lengths in tokens");
ABSL_FLAG(int, depth, 512, "tokens that each decoded sequence holds");
ABSL_FLAG(int, runs, 5, "of each figure; the median is printed");
ABSL_FLAG(int, limit_bytes, 1 << 30, "copied to find the memory's bandwidth");
ABSL_FLAG(int64_t, cache_bytes, 0, "of the cache; 0: as `lowkey serve` chooses");

namespace lowkey {
namespace {

double Median(std::vector<double> x) {
  std::sort(x.begin(), x.end());
  return x[x.size() / 2];
}

// Seconds of what `queue` queues `times` times, waited for once, by the run.
absl::StatusOr<double> Seconds(Device& device, int times, const std::function<void()>& queue) {
  std::vector<double> seconds;
  for (int run = 0; run <= absl::GetFlag(FLAGS_runs); ++run) {
    LK_RETURN_IF_ERROR(device.Wait());
    const absl::Time start = absl::Now();
    for (int i = 0; i < times; ++i) queue();
    LK_RETURN_IF_ERROR(device.Wait());
    if (run > 0) seconds.push_back(absl::ToDoubleSeconds(absl::Now() - start) / times);
  }
  return Median(seconds);
}

struct Limits {
  double bytes_per_second = 0;  // copied: read and written
  double flops = 0;             // rate of a large bf16 product
};

// Opens the device once more, with products by the fastest way that cuBLASLt knows for their number
// of rows.
absl::StatusOr<std::shared_ptr<Device>> OpenFastest() {
  constexpr const char* kVariable = "LOWKEY_CUDA_PRODUCTS";
  const char* was = std::getenv(kVariable);
  const std::string before = was == nullptr ? "" : was;
  setenv(kVariable, "fastest", 1);
  auto device = OpenDevice(absl::GetFlag(FLAGS_device));
  setenv(kVariable, before.c_str(), 1);
  LK_RETURN_IF_ERROR(device.status());
  return std::shared_ptr<Device>(*std::move(device));
}

// Random numbers in bf16: products of equal numbers take less power, and so less time.
std::vector<uint16_t> RandomNumbers(int64_t n) {
  std::minstd_rand engine(1);
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::vector<uint16_t> numbers(n);
  for (uint16_t& x : numbers) x = ToBFloat16(uniform(engine)).bits;
  return numbers;
}

absl::StatusOr<Limits> MeasureLimits() {
  Limits limits;
  const int64_t n_bytes = absl::GetFlag(FLAGS_limit_bytes);
  LK_ASSIGN_OR_RETURN(const std::shared_ptr<Device> device, OpenFastest());
  LK_ASSIGN_OR_RETURN(Buffer from, Buffer::Allocate(static_cast<size_t>(n_bytes), device.get()));
  LK_ASSIGN_OR_RETURN(Buffer to, Buffer::Allocate(static_cast<size_t>(n_bytes), device.get()));
  LK_ASSIGN_OR_RETURN(const double copy,
                      Seconds(*device, 10, [&] { device->Copy(from.data(), to.data(), n_bytes); }));
  limits.bytes_per_second = 2 * static_cast<double>(n_bytes) / copy;
  // A square product whose operands take the copied bytes at most.
  int64_t n = 8192;
  while (4 * n * n > n_bytes) n /= 2;
  const std::vector<uint16_t> numbers = RandomNumbers(n * n);
  const TensorView view{DType::kBF16, {n, n}, reinterpret_cast<const std::byte*>(numbers.data())};
  ThreadPool pool(1);
  LK_ASSIGN_OR_RETURN(const auto weight,
                      MakeDeviceWeight({&view, 1}, StorageType::kBFloat16, pool, *device));
  device->Upload(numbers.data(), from.data(), 2 * n * n);
  LK_ASSIGN_OR_RETURN(const double product, Seconds(*device, 10, [&] {
                        device->Multiply({weight.get(), from.data(), n, n, to.as<float>(), n});
                      }));
  limits.flops = 2.0 * static_cast<double>(n) * static_cast<double>(n * n) / product;
  std::printf(
      "{\"figure\": \"limits\", \"device\": \"%s\", \"copy_gb_s\": %.1f, "
      "\"bf16_tflops\": %.2f}\n",
      device->name().c_str(), limits.bytes_per_second * 1e-9, limits.flops * 1e-12);
  return limits;
}

void PrintProducts(const Device& device) {
  for (const ProductChoice& choice : device.product_choices()) {
    std::string timings;
    for (const auto& [n_rows, us] : choice.timings) {
      absl::StrAppendFormat(&timings, "%s\"%d\": %.1f", timings.empty() ? "" : ", ", n_rows, us);
    }
    std::printf(
        "{\"figure\": \"product\", \"n_out\": %ld, \"n_in\": %ld, \"result\": \"%s\", "
        "\"way\": \"%s\", \"us_by_rows\": {%s}, \"refused\": \"%s\"}\n",
        static_cast<long>(choice.n_out), static_cast<long>(choice.n_in),
        choice.rounded ? "bfloat16" : "float32", choice.way.c_str(), timings.c_str(),
        choice.refused.c_str());
  }
}

absl::StatusOr<EngineOptions::Dtype> Dtype(const std::string& name) {
  if (name == "bfloat16") return EngineOptions::Dtype::kBFloat16;
  if (name == "int8") return EngineOptions::Dtype::kInt8;
  if (name == "float8") return EngineOptions::Dtype::kFloat8;
  return absl::InvalidArgumentError(
      absl::StrCat("--dtype: ", name, ", expected bfloat16, int8 or float8"));
}

struct Parameters {
  double layers = 0, head = 0;  // multiplied with for each token
};

Parameters ParametersOf(const ModelConfig& c) {
  const double attention =
      static_cast<double>(c.hidden_dim) * c.head_dim * (2.0 * c.n_heads + 2.0 * c.n_kv_heads);
  return {c.n_layers * (attention + 3.0 * c.hidden_dim * c.ffn_dim),
          static_cast<double>(c.hidden_dim) * c.vocab_size};
}

// Bytes of weights that a step reads: all but the embedding.
double ReadBytes(const ModelConfig& c, StorageType type) {
  const int64_t q = int64_t{c.n_heads} * c.head_dim, kv = int64_t{c.n_kv_heads} * c.head_dim;
  const int64_t layer =
      WeightBytes(type, q + 2 * kv, c.hidden_dim) + WeightBytes(type, c.hidden_dim, q) +
      WeightBytes(type, 2 * c.ffn_dim, c.hidden_dim) + WeightBytes(type, c.hidden_dim, c.ffn_dim);
  return static_cast<double>(c.n_layers * layer + WeightBytes(type, c.vocab_size, c.hidden_dim));
}

class ModelBench {
 public:
  ModelBench(ModelRunner& runner, LayerCounter& counter, const Limits& limits)
      : runner_(runner), counter_(counter), limits_(limits) {}

  // Steps in which `batch` sequences of `depth` tokens get one more each, all queued before the
  // first is waited for: the device draws a step's tokens, which the next step begins with.
  absl::Status Decode(int64_t batch) {
    const int64_t depth = absl::GetFlag(FLAGS_depth);
    std::vector<SequenceCache> sequences(batch);
    for (SequenceCache& s : sequences) LK_RETURN_IF_ERROR(Prefill(s, depth));
    std::vector<Sampler> samplers;
    for (int64_t i = 0; i < batch; ++i) {
      samplers.emplace_back(SamplingOptions{}, 0, runner_.config().vocab_size,
                            absl::Span<const int32_t>());
    }
    std::vector<double> seconds;
    for (int run = 0; run <= absl::GetFlag(FLAGS_runs); ++run) {
      LK_ASSIGN_OR_RETURN(const double step, QueueSteps(sequences, samplers));
      if (run > 0) seconds.push_back(step);
    }
    const ModelConfig& c = runner_.config();
    const double kv_bytes =
        2.0 * 2.0 * c.n_layers * c.n_kv_heads * c.head_dim * static_cast<double>(batch * depth);
    const double bytes = ReadBytes(c, runner_.weight_type()) + kv_bytes, step = Median(seconds);
    LK_ASSIGN_OR_RETURN(const auto counts, counter_.Decode(batch, depth));
    std::printf(
        "{\"figure\": \"decode\", \"dtype\": \"%s\", \"batch\": %ld, \"depth\": %ld, "
        "\"step_ms\": %.3f, \"tokens_s\": %.1f, \"share_of_copy_bandwidth\": %.3f%s}\n",
        StorageName(runner_.weight_type()).c_str(), static_cast<long>(batch),
        static_cast<long>(depth), step * 1e3, static_cast<double>(batch) / step,
        bytes / step / limits_.bytes_per_second, LayerText(counts).c_str());
    return absl::OkStatus();
  }

  absl::Status Prompt(int64_t n_tokens) {
    std::vector<double> seconds;
    for (int run = 0; run <= absl::GetFlag(FLAGS_runs); ++run) {
      SequenceCache sequence;
      const absl::Time start = absl::Now();
      LK_RETURN_IF_ERROR(Prefill(sequence, n_tokens));
      if (run > 0) seconds.push_back(absl::ToDoubleSeconds(absl::Now() - start));
    }
    const ModelConfig& c = runner_.config();
    const auto n = static_cast<double>(n_tokens);
    const double pairs = n * n / 2 * c.n_layers * c.n_heads * c.head_dim * 2;
    const double flops = 2 * (ParametersOf(c).layers * n + pairs), time = Median(seconds);
    LK_ASSIGN_OR_RETURN(const auto counts, counter_.Prompt(n_tokens));
    std::printf(
        "{\"figure\": \"prefill\", \"dtype\": \"%s\", \"tokens\": %ld, \"ms\": %.2f, "
        "\"tokens_s\": %.0f, \"share_of_bf16_product\": %.3f%s}\n",
        StorageName(runner_.weight_type()).c_str(), static_cast<long>(n_tokens), time * 1e3,
        n / time, flops / time / limits_.flops, LayerText(counts).c_str());
    return absl::OkStatus();
  }

 private:
  // Computes rows up to n_tokens, and one row's logits, which waits for them.
  absl::Status Prefill(SequenceCache& sequence, int64_t n_tokens) {
    sequence.n_prompt_tokens = n_tokens;
    const std::vector<int32_t> tokens(n_tokens, kToken);
    while (sequence.n_tokens < n_tokens) {
      const int64_t n = std::min(runner_.max_rows(), n_tokens - sequence.n_tokens);
      const ModelRunner::Rows rows{&sequence, sequence.n_tokens,
                                   absl::MakeConstSpan(tokens).first(static_cast<size_t>(n))};
      LK_RETURN_IF_ERROR(runner_.Step({&rows, 1}));
    }
    const int64_t row = 0;
    return runner_.Logits({&row, 1}, [](size_t, absl::Span<const float>) {});
  }

  static std::string LayerText(const LayerCounter::Counts& counts) {
    const LaunchCount layer = LayerCounter::Sum(counts);
    return absl::StrFormat(", \"layer_launches\": %d, \"layer_mb\": %.1f", layer.launches,
                           layer.bytes * 1e-6);
  }

  // Queues some steps, then waits for their tokens. Returns the seconds of a step.
  absl::StatusOr<double> QueueSteps(std::vector<SequenceCache>& sequences,
                                    std::vector<Sampler>& samplers) {
    std::vector<int64_t> numbers;
    for (size_t i = 0; i < sequences.size(); ++i) numbers.push_back(static_cast<int64_t>(i));
    std::vector<Drawing> drawings;
    const absl::Time start = absl::Now();
    for (int i = 0; i < kQueuedSteps; ++i) {
      std::vector<ModelRunner::Rows> rows;
      for (size_t j = 0; j < sequences.size(); ++j) {
        rows.push_back({&sequences[j], sequences[j].n_tokens, {&kToken, 1}});
        if (i > 0) rows.back().drawn = numbers[j];
      }
      LK_RETURN_IF_ERROR(runner_.Step(rows));
      LK_ASSIGN_OR_RETURN(Drawing drawing, runner_.QueueDraw(numbers, [&](size_t j) {
        RowRequest request;
        request.draws.push_back({&samplers[j]});
        return request;
      }));
      drawings.push_back(std::move(drawing));
    }
    for (Drawing& drawing : drawings) {
      LK_RETURN_IF_ERROR(runner_.Collect(std::move(drawing), [&](size_t j, RowTokens& tokens) {
        (void)tokens.Sample(samplers[j]);
      }));
    }
    return absl::ToDoubleSeconds(absl::Now() - start) / kQueuedSteps;
  }

  static constexpr int32_t kToken = 5;
  static constexpr int kQueuedSteps = 16;
  ModelRunner& runner_;
  LayerCounter& counter_;
  const Limits limits_;
};

absl::Status Bench(const std::shared_ptr<Device>& device, const std::string& directory) {
  LK_ASSIGN_OR_RETURN(const Limits limits, MeasureLimits());
  EngineOptions options;
  options.device = device;
  LK_ASSIGN_OR_RETURN(options.dtype, Dtype(absl::GetFlag(FLAGS_dtype)));
  options.max_batch_tokens = LayerCounter::kMaxRows;
  options.cache_bytes = absl::GetFlag(FLAGS_cache_bytes);
  LK_ASSIGN_OR_RETURN(auto weights, OpenCheckpoint(directory));
  LK_ASSIGN_OR_RETURN(const auto counter, LayerCounter::Create(weights->config, options.dtype));
  LK_ASSIGN_OR_RETURN(const auto runner, ModelRunner::Create(std::move(weights), options, nullptr));
  PrintProducts(*device);
  ModelBench bench(*runner, *counter, limits);
  const auto each = [](const std::vector<std::string>& numbers,
                       const std::function<absl::Status(int64_t)>& run) -> absl::Status {
    for (const std::string& text : numbers) {
      int64_t n = 0;
      if (!absl::SimpleAtoi(text, &n) || n < 1) {
        return absl::InvalidArgumentError(absl::StrCat(text, ": expected a positive number"));
      }
      LK_RETURN_IF_ERROR(run(n));
    }
    return absl::OkStatus();
  };
  LK_RETURN_IF_ERROR(
      each(absl::GetFlag(FLAGS_batches), [&](int64_t n) { return bench.Decode(n); }));
  return each(absl::GetFlag(FLAGS_prompts), [&](int64_t n) { return bench.Prompt(n); });
}

absl::Status Main() {
  LK_ASSIGN_OR_RETURN(std::shared_ptr<Device> device, OpenDevice(absl::GetFlag(FLAGS_device)));
  const std::string given = absl::GetFlag(FLAGS_model_dir);
  if (!given.empty()) return Bench(device, given);
  LK_ASSIGN_OR_RETURN(const RandomModelOptions shape, RandomShape(absl::GetFlag(FLAGS_shape)));
  std::string directory =
      (std::filesystem::temp_directory_path() / "lowkey_device_bench_XXXXXX").string();
  if (mkdtemp(directory.data()) == nullptr) {
    return absl::UnavailableError(absl::StrCat(directory, ": cannot be made"));
  }
  absl::Status status = WriteRandomModel(directory, shape);
  if (status.ok()) status = Bench(device, directory);
  std::filesystem::remove_all(directory);
  return status;
}

}  // namespace
}  // namespace lowkey

int main(int argc, char** argv) {
  absl::SetProgramUsageMessage("a device's limits, and the share of them that steps reach");
  absl::ParseCommandLine(argc, argv);
  const absl::Status status = lowkey::Main();
  if (status.ok()) return 0;
  std::fprintf(stderr, "device_bench: %s\n", std::string(status.message()).c_str());
  return 1;
}
