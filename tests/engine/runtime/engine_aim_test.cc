// Presets of atp: what a request without options, or with an aim, runs with.
#include <string>

#include "engine/config/attention_option_table.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/engine/runtime/calibration/coded_model.h"
#include "tests/engine/runtime/collecting_sink.h"
#include "tests/testing/emulated/emulated_device.h"

namespace lowkey {
namespace {

using ::testing::HasSubstr;

constexpr char kNearExact[] =
    "atp basis calibrated block 128 window 1 refine 128 kept int4 prefill exact";

class EngineAimTest : public ::testing::Test {
 protected:
  EngineAimTest() : codes_(coded_.Calibrate()) {}

  void Start(std::shared_ptr<const Checkpoint> checkpoint, EngineOptions options) {
    options.n_threads = 2;
    options.cache_bytes = 64 << 20;
    engine_ = CreateEngine(std::move(checkpoint), options, nullptr).value();
  }

  void StartCalibrated() {
    EngineOptions options;
    options.codes = codes_;
    Start(coded_.checkpoint(), options);
  }

  static EngineRequest Request(AtpAim aim = AtpAim::kAuto) {
    EngineRequest r;
    for (int i = 0; i < 600; ++i) r.prompt.push_back(3 + (i * i * 31 + i * 7) % 93);
    r.max_new_tokens = 12;
    r.attention.mechanism = Mechanism::kAtp;
    r.attention.atp.aim = aim;
    r.sampling.logprobs = 0;
    return r;
  }

  std::shared_ptr<Collected> Run(const EngineRequest& request) {
    auto got = std::make_shared<Collected>();
    const auto id = engine_->Submit(request, std::make_unique<CollectingSink>(got));
    EXPECT_TRUE(id.ok()) << id.status();
    EXPECT_TRUE(got->Wait().status.ok()) << got->final_event->status;
    return got;
  }
  std::string Ran(const EngineRequest& request) {
    return Run(request)->final_event->attention.label;
  }

  const CodedModel coded_;
  const std::shared_ptr<const PrincipalCodes> codes_;
  std::unique_ptr<Engine> engine_;
};

TEST_F(EngineAimTest, AtpWithoutOptionsTakesTheCodesOfACalibratedModel) {
  StartCalibrated();
  const auto got = Run(Request());
  EXPECT_EQ(got->final_event->attention.label, kNearExact);
  EXPECT_TRUE(got->final_event->attention.is_approximate);
  EngineRequest spelled = Request(AtpAim::kNone);
  spelled.attention.atp = ResolveAim({}, true);
  const auto same = Run(spelled);
  EXPECT_EQ(got->tokens, same->tokens);
  EXPECT_EQ(got->logprobs, same->logprobs);
  EXPECT_THAT(Ran(Request(AtpAim::kFast)), HasSubstr("refine 64"));
  EXPECT_THAT(Ran(Request(AtpAim::kNone)), HasSubstr("rank 0.25 basis layer block 512"));
}

TEST_F(EngineAimTest, OtherModelsTakeBlocks) {
  Start(coded_.checkpoint(), {});
  EXPECT_THAT(Ran(Request()), HasSubstr("rank 0.25 basis layer block 512"));
  EXPECT_THAT(Ran(Request(AtpAim::kNearExact)), HasSubstr("rank 32 basis layer block 512"));
}

TEST_F(EngineAimTest, ADeviceTakesBlocks) {
  EngineOptions options;
  options.codes = codes_;
  options.device = std::make_shared<EmulatedDevice>();
  Start(coded_.checkpoint(), options);
  EXPECT_THAT(Ran(Request()), HasSubstr("rank 0.25 basis layer block 512"));
  EXPECT_THAT(Ran(Request(AtpAim::kFast)), HasSubstr("rank 8 basis kv block 128"));
}

TEST_F(EngineAimTest, AutoWeighsWhatAtpWouldRunWithOnce) {
  auto measured = std::make_shared<Checkpoint>(*coded_.checkpoint());
  MeasuredQuality& quality = measured->measured.emplace_back();
  quality.options.mechanism = Mechanism::kAtp;
  quality.options.atp = ResolveAim({}, true);
  quality.ratios = PerplexityRatios({{512, 1.01}});
  EngineOptions options;
  options.codes = codes_;
  Start(measured, options);
  EngineRequest request = Request();
  request.selection.emplace();
  request.selection->allowed = {Mechanism::kAtp};
  request.selection->allow_approximate = true;
  const auto got = Run(request);
  EXPECT_EQ(got->final_event->attention.label, kNearExact);
  const std::string& reason = got->final_event->attention.reason;
  EXPECT_THAT(reason, HasSubstr("calibrated"));
  EXPECT_EQ(reason.find("calibrated"), reason.rfind("calibrated")) << reason;
}

TEST_F(EngineAimTest, ATokenReadsTheIndexAndAsManyCopiesAsAreChosen) {
  StartCalibrated();
  const auto bytes = [&](int refine_tokens, int64_t n_tokens) {
    AttentionOptions options;
    options.mechanism = Mechanism::kAtp;
    options.atp = ResolveAim({}, true);
    options.atp.refine_tokens = refine_tokens;
    return engine_->BytesByLength(options, {&n_tokens, 1}).value()[0];
  };
  const int64_t copies_of_64 = bytes(128, 4096).read - bytes(64, 4096).read;
  EXPECT_GT(copies_of_64, 0);
  EXPECT_EQ(bytes(128, 8192).read - bytes(64, 8192).read, copies_of_64);
  EXPECT_EQ(bytes(128, 4096).held, bytes(64, 4096).held);
  const auto unread = [&](int64_t n) { return bytes(128, n).held - bytes(128, n).read; };
  // The copies of 4,096 tokens, and what those of a block share.
  EXPECT_GE(unread(8192) - unread(4096), 64 * copies_of_64);
  EXPECT_LT(unread(8192) - unread(4096), 80 * copies_of_64);
  const int64_t n_tokens = 4096;
  const CacheBytes standard = engine_->BytesByLength({}, {&n_tokens, 1}).value()[0];
  EXPECT_EQ(standard.read, standard.held);
}

}  // namespace
}  // namespace lowkey
