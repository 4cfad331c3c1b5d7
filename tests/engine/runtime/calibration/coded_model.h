#ifndef LOWKEY_TESTS_ENGINE_RUNTIME_CALIBRATION_CODED_MODEL_H_
#define LOWKEY_TESTS_ENGINE_RUNTIME_CALIBRATION_CODED_MODEL_H_

#include <memory>
#include <random>
#include <vector>

#include "engine/loader/checkpoint.h"
#include "engine/runtime/calibration/find_codes.h"
#include "tests/testing/tiny_model.h"

namespace lowkey {

// A random model of long context, and its calibration on random texts.
class CodedModel {
 public:
  explicit CodedModel(uint64_t seed = 1, DType dtype = DType::kF32)
      : model_({.config = Config(), .dtype = dtype, .seed = seed}),
        checkpoint_(OpenCheckpoint(model_.path()).value()) {}

  static ModelConfig Config() {
    ModelConfig config = TinyConfig();
    config.context_tokens = 4096;
    return config;
  }

  static std::vector<std::vector<int32_t>> Texts(int n_texts = 3) {
    std::mt19937 rng(5);
    std::vector<std::vector<int32_t>> texts(n_texts);
    for (auto& text : texts) {
      for (int i = 0; i < 700; ++i) text.push_back(static_cast<int32_t>(3 + rng() % 93));
    }
    return texts;
  }

  std::shared_ptr<const PrincipalCodes> Calibrate(int n_threads = 2) const {
    EngineOptions options;
    options.n_threads = n_threads;
    return std::make_shared<const PrincipalCodes>(
        FindPrincipalCodes(checkpoint_, Texts(), options, {}).value());
  }

  const TinyModel& model() const { return model_; }
  const std::shared_ptr<const Checkpoint>& checkpoint() const { return checkpoint_; }

 private:
  const TinyModel model_;
  const std::shared_ptr<const Checkpoint> checkpoint_;
};

}  // namespace lowkey

#endif  // LOWKEY_TESTS_ENGINE_RUNTIME_CALIBRATION_CODED_MODEL_H_
