// The engine on a device: the same tokens as on the host, and what happens when the device fails.
#include <sys/mman.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/time/clock.h"
#include "engine/base/machine.h"
#include "engine/kernels/cuda/emulated/grid.h"
#include "engine/kernels/device/atp.h"
#include "engine/loader/checkpoint.h"
#include "engine/runtime/engine.h"
#include "engine/runtime/inspect.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/engine/runtime/engine_fixture.h"
#include "tests/engine/sampler/every_seventh.h"
#include "tests/testing/emulated/emulated_device.h"
#include "tests/testing/source_path.h"
#include "tests/testing/tiny_model.h"

namespace lowkey {
namespace {

using ::testing::HasSubstr;

class EngineDeviceTest : public EngineTest {
 protected:
  void StartOnDevice(EngineOptions options = {}) {
    device_ = std::make_shared<EmulatedDevice>();
    options.device = device_;
    Start(options);
  }

  std::shared_ptr<EmulatedDevice> device_;
};

std::vector<int32_t> GreedyTokensOfTales(const EngineOptions& options,
                                         const EngineRequest& request) {
  auto engine =
      CreateEngine(OpenCheckpoint(SourcePath("models/tales")).value(), options, nullptr).value();
  auto to = std::make_shared<Collected>();
  EXPECT_TRUE(engine->Submit(request, std::make_unique<CollectingSink>(to)).ok());
  EXPECT_TRUE(to->Wait().status.ok());
  return to->tokens[0];
}

TEST(EngineOnADevice, GreedyTokensOfTheDemoModelAreTheHosts) {
  EngineOptions host;
  host.dtype = EngineOptions::Dtype::kFloat32;
  host.cache_bytes = 32 << 20;
  EngineOptions device = host;
  device.device = NewTestDevice();  // a GPU where the environment names one
  if (device.device == nullptr) device.device = std::make_shared<EmulatedDevice>();
  for (int variant : {0, 1}) {
    const EngineRequest request = Request(20, 24, variant);
    EXPECT_EQ(GreedyTokensOfTales(device, request), GreedyTokensOfTales(host, request));
  }
}

// A device whose memory is larger than the host's: the system gives what is written.
class LargeDevice : public EmulatedDevice {
 public:
  absl::StatusOr<std::byte*> Allocate(int64_t size_bytes) override {
    if (size_bytes < (int64_t{1} << 30)) return EmulatedDevice::Allocate(size_bytes);
    n_mapped_bytes_ = static_cast<size_t>(size_bytes);
    mapped_ = mmap(nullptr, n_mapped_bytes_, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (mapped_ == MAP_FAILED) return absl::ResourceExhaustedError("mmap");
    return static_cast<std::byte*>(mapped_);
  }
  void Free(std::byte* p) override {
    if (p != mapped_) return EmulatedDevice::Free(p);
    (void)Wait();
    munmap(mapped_, n_mapped_bytes_);
  }

 private:
  void* mapped_ = nullptr;
  size_t n_mapped_bytes_ = 0;
};

// The host's cache beside it is no larger than the host's memory, and requests that the host
// attends for get along with that.
TEST_F(EngineDeviceTest, TheBudgetMayBeLargerThanTheHostsMemory) {
  EngineOptions options;
  options.cache_bytes = 2 * AvailableMemoryBytes() + (int64_t{2} << 30);
  options.device = std::make_shared<LargeDevice>();
  Start(options);
  EXPECT_EQ(engine_->Stats().cache_bytes_total, options.cache_bytes);
  EngineRequest on_host = AtpRequest(70, 4);
  on_host.attention.atp.basis = AtpBasis::kInput;
  const auto together = {Submit(Request(10, 4)), Submit(on_host)};
  for (const auto& one : together) EXPECT_TRUE(one->Wait().status.ok());
}

// Requests that the host attends for fill the host's cache with their prefixes. A prefix in the
// device's cache is older than all of them, and would be lost for nothing.
TEST_F(EngineDeviceTest, AShortageOfTheHostsCacheLeavesPrefixesOfTheDevice) {
  EngineOptions options;
  options.cache_bytes = int64_t{1} << 20;
  StartOnDevice(options);
  const auto n_cached = [this](const EngineRequest& request) {
    const FinalEvent event = Submit(request)->Wait();
    EXPECT_TRUE(event.status.ok()) << event.status;
    return event.n_cached_tokens;
  };
  const auto on_host = [](int variant) {
    EngineRequest request = Request(130, 2, variant);
    request.attention.mechanism = Mechanism::kLasso;
    return request;
  };
  EXPECT_EQ(n_cached(Request(130, 2)), 0);
  EXPECT_EQ(n_cached(on_host(0)), 0);
  EXPECT_EQ(n_cached(on_host(0)), 128);
  for (int variant = 1; variant < 90; ++variant) EXPECT_EQ(n_cached(on_host(variant)), 0);
  EXPECT_EQ(n_cached(on_host(0)), 0) << "the host's cache was never short";
  EXPECT_EQ(n_cached(Request(130, 2)), 128);
}

TEST_F(EngineDeviceTest, ARankThatTheDeviceHasNoSharedMemoryForIsRefused) {
  const int64_t before = emulated::MostSharedBytes();
  emulated::LimitShared(AtpSharedBytes(8, 4));  // heads of 8
  StartOnDevice();
  EXPECT_TRUE(Submit(AtpRequest(70, 2))->Wait().status.ok());
  EngineRequest request = AtpRequest(70, 2);
  request.attention.atp.rank = RankFixed{16};
  const absl::Status refused = Refused(request);
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("attention.rank: blocks of rank"));
  EXPECT_TRUE(engine_->Health().ok());
  emulated::LimitShared(before);
}

// The host computes the logits of 64 rows at once.
TEST_F(EngineDeviceTest, DrawsForMoreRowsAtOnceThanTheHostDoes) {
  EngineOptions options;
  options.max_running_seqs = 70;
  StartOnDevice(options);
  std::vector<std::shared_ptr<Collected>> all;
  for (int i = 0; i < 70; ++i) all.push_back(Submit(Request(3, 3, i % 2)));
  for (const auto& one : all) EXPECT_TRUE(one->Wait().status.ok());
  for (int i = 2; i < 70; ++i) EXPECT_EQ(all[i]->tokens, all[i % 2]->tokens) << i;
}

TEST_F(EngineDeviceTest, DraftsAreRefused) {
  StartOnDevice();
  EngineRequest request = Request(10, 4);
  request.draft = DraftMode::kLookup;
  EXPECT_EQ(Refused(request),
            absl::FailedPreconditionError("draft: lookup on a device, expected off: drafts are "
                                          "verified on the CPU alone"));
}

// Text that a constraint forces is not drafted on a device.
TEST_F(EngineDeviceTest, GreedyTokensUnderAConstraintAreTheHosts) {
  EngineRequest request = Request(10, 20);
  request.constraint = std::make_shared<EverySeventhFactory>(EverySeventh::Rules());
  StartOnDevice();
  const auto there = Submit(request);
  ASSERT_TRUE(there->Wait().status.ok()) << there->Wait().status;
  EXPECT_EQ(there->final_event->n_drafted_tokens, 0);
  EngineOptions host;
  host.cache_bytes = 32 << 20;
  host.device = nullptr;
  auto engine = CreateEngine(OpenCheckpoint(model_.path()).value(), host, nullptr).value();
  auto here = std::make_shared<Collected>();
  ASSERT_TRUE(engine->Submit(request, std::make_unique<CollectingSink>(here)).ok());
  EXPECT_TRUE(here->Wait().status.ok());
  EXPECT_EQ(there->tokens, here->tokens);
}

TEST_F(EngineDeviceTest, StepsOfOneTokenEachAreRepeatedAsTheyWere) {
  StartOnDevice();
  const auto together = {Submit(Request(10, 30)), Submit(Request(12, 30, 1))};
  for (const auto& one : together) EXPECT_TRUE(one->Wait().status.ok());
  EXPECT_GT(device_->n_repeats(), 20);
}

// Steps of 5, 6 and 7 sequences are the same work, and so are those whose page tables differ.
TEST_F(EngineDeviceTest, FewKindsOfStepsAreKept) {
  StartOnDevice();
  std::vector<std::shared_ptr<Collected>> together;
  for (int i = 0; i < 7; ++i) together.push_back(Submit(Request(20 + i, 60 + 10 * i, i)));
  for (const auto& one : together) EXPECT_TRUE(one->Wait().status.ok());
  EXPECT_GT(device_->n_repeats(), 80);
  EXPECT_LE(device_->n_kept(), 8);
}

TEST_F(EngineDeviceTest, SaysWhatComputes) {
  StartOnDevice();
  EXPECT_EQ(engine_->Stats().processor, "emulated");
  EXPECT_TRUE(engine_->Health().ok());
}

TEST(EngineOnADevice, TakesTheBytesOfNarrowWeightsThatAreForetold) {
  const TinyModel model({.config = TinyConfig()});
  EngineOptions options;
  options.cache_bytes = int64_t{8} << 20;
  const auto wide = SummarizeModel(*OpenCheckpoint(model.path()).value(), options).value();
  for (const auto& [dtype, name] : {std::pair{EngineOptions::Dtype::kInt8, "int8"},
                                    std::pair{EngineOptions::Dtype::kFloat8, "float8"}}) {
    options.dtype = dtype;
    const auto summary = SummarizeModel(*OpenCheckpoint(model.path()).value(), options).value();
    EXPECT_EQ(summary.dtype, name);
    EXPECT_LT(summary.weight_bytes, wide.weight_bytes);
    // Keys and values stay in bf16.
    EXPECT_EQ(summary.mechanisms[0].bytes_per_token, wide.mechanisms[0].bytes_per_token);
    options.device = std::make_shared<EmulatedDevice>();
    const auto engine =
        CreateEngine(OpenCheckpoint(model.path()).value(), options, nullptr).value();
    EXPECT_EQ(engine->Stats().dtype, name);
    EXPECT_EQ(engine->Stats().weight_bytes, summary.weight_bytes);
  }
}

TEST_F(EngineDeviceTest, AFaultEndsWhatRunsAndRefusesWhatComes) {
  StartOnDevice();
  std::vector<std::shared_ptr<Collected>> running;
  for (int i = 0; i < 3; ++i) {
    running.push_back(
        Submit(Request(10 + i, 200, i), [&](int32_t, int32_t) { return SinkAnswer::kContinue; }));
  }
  // The engine's thread breaks the device, which only one thread may use.
  running.push_back(Submit(Request(5, 50), [this, n = 0](int32_t, int32_t) mutable {
    if (++n == 5) device_->Break(absl::InternalError("emulated: an illegal address"));
    return SinkAnswer::kContinue;
  }));
  for (const auto& one : running) {
    const FinalEvent event = one->Wait();
    EXPECT_EQ(event.status.code(), absl::StatusCode::kUnavailable) << event.status;
    EXPECT_THAT(std::string(event.status.message()), HasSubstr("an illegal address"));
    EXPECT_EQ(one->n_done_calls, 1);
  }
  EXPECT_EQ(engine_->Health().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(Refused(Request(5, 5)).code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(engine_->Stats().cache_bytes_used, 0);
  EXPECT_TRUE(engine_->Drain(absl::Now()));
}

// More rows with logits in a step than are computed at once, three choices and every penalty.
TEST_F(EngineDeviceTest, DrawsAndScoresAsOnTheHost) {
  EngineOptions options;
  options.dtype = EngineOptions::Dtype::kFloat32;
  EngineRequest r = Request(100, 6);
  r.n = 3;
  r.prompt_logprobs = 2;
  r.sampling.temperature = 0.9f;
  r.sampling.top_k = 40;
  r.sampling.top_p = 0.95f;
  r.sampling.min_p = 0.01f;
  r.sampling.repetition_penalty = 1.2f;
  r.sampling.presence_penalty = r.sampling.frequency_penalty = 0.3f;
  r.sampling.logit_bias = {{7, 2.0f}};
  r.sampling.seed = 11;
  r.sampling.logprobs = 1;
  Start(options);
  const auto host = Submit(r);
  EXPECT_TRUE(host->Wait().status.ok());
  StartOnDevice(options);
  const auto there = Submit(r);
  EXPECT_TRUE(there->Wait().status.ok());
  EXPECT_EQ(there->tokens, host->tokens);
  ASSERT_EQ(there->prompt_logprobs.size(), 99u);
  for (size_t i = 0; i < 99; ++i) {
    EXPECT_EQ(there->prompt_logprobs[i].position, host->prompt_logprobs[i].position);
    EXPECT_NEAR(there->prompt_logprobs[i].token.logprob, host->prompt_logprobs[i].token.logprob,
                1e-4);
    EXPECT_EQ(there->prompt_logprobs[i].top.size(), 2u);
  }
}

TEST_F(EngineDeviceTest, MechanismsAnswerAsOnTheHost) {
  EngineOptions options;
  options.dtype = EngineOptions::Dtype::kFloat32;
  std::vector<std::vector<int32_t>> tokens[2];
  for (int on_device : {0, 1}) {
    if (on_device == 1) {
      StartOnDevice(options);
    } else {
      Start(options);
    }
    std::vector<std::shared_ptr<Collected>> together;
    for (Mechanism id : AllMechanisms()) {
      EngineRequest r = AtpRequest(100, 12, static_cast<int>(id));
      r.attention.mechanism = id;
      together.push_back(Submit(r));
    }
    for (const auto& one : together) {
      EXPECT_TRUE(one->Wait().status.ok());
      tokens[on_device].push_back(one->tokens[0]);
    }
    EXPECT_EQ(engine_->Stats().cache_bytes_used, 0);
  }
  EXPECT_EQ(tokens[0], tokens[1]);
}

}  // namespace
}  // namespace lowkey
