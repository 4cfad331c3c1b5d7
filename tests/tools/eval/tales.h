#ifndef LOWKEY_TESTS_TOOLS_EVAL_TALES_H_
#define LOWKEY_TESTS_TOOLS_EVAL_TALES_H_

#include <memory>
#include <vector>

#include "engine/loader/checkpoint.h"
#include "engine/loader/model_files.h"
#include "engine/runtime/engine.h"
#include "engine/runtime/inspect.h"
#include "server/model_files/load_tokenizer.h"
#include "tests/testing/source_path.h"

namespace lowkey {

// The demo model in float32, with its tokenizer.
struct Tales {
  std::string path = SourcePath("models/tales");
  std::shared_ptr<const Checkpoint> checkpoint = OpenCheckpoint(path).value();
  std::unique_ptr<Tokenizer> tokenizer = LoadTokenizer(OpenModelFiles(path).value()).value();
  std::unique_ptr<Engine> engine = MakeEngine();

  // [tokens, vocabulary]
  std::vector<float> Logits(const std::vector<int32_t>& tokens) const {
    LogitsOptions options;
    options.engine.dtype = EngineOptions::Dtype::kFloat32;
    options.engine.n_threads = 1;
    return ComputeLogits(checkpoint, tokens, options).value();
  }

 private:
  std::unique_ptr<Engine> MakeEngine() const {
    EngineOptions options;
    options.dtype = EngineOptions::Dtype::kFloat32;
    options.n_threads = 1;
    return CreateEngine(checkpoint, options, nullptr).value();
  }
};

}  // namespace lowkey

#endif  // LOWKEY_TESTS_TOOLS_EVAL_TALES_H_
