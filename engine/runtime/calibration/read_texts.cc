#include "engine/runtime/calibration/read_texts.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "engine/model/weight_set.h"
#include "engine/runtime/model_setup.h"
#include "engine/runtime/request_check.h"

namespace lowkey {
namespace {

constexpr int32_t kTextChunkTokens = 512;

absl::Status CheckTexts(TokenTexts texts, const ModelConfig& config) {
  if (texts.empty()) return absl::InvalidArgumentError("texts: 0, expected at least 1");
  for (size_t i = 0; i < texts.size(); ++i) {
    if (static_cast<int64_t>(texts[i].size()) > config.context_tokens) {
      return absl::OutOfRangeError(absl::StrCat("texts[", i, "]: ", texts[i].size(),
                                                " tokens, expected at most the context of ",
                                                config.context_tokens));
    }
    LK_RETURN_IF_ERROR(CheckTokens(absl::StrCat("texts[", i, "]"), texts[i], config.vocab_size));
  }
  return absl::OkStatus();
}

// Makes the options of a runner that computes one text at a time.
EngineOptions OptionsFor(const EngineOptions& engine, const Checkpoint& checkpoint,
                         TokenTexts texts) {
  size_t longest = 0;
  for (const std::vector<int32_t>& text : texts) longest = std::max(longest, text.size());
  const StorageType type = RowTypeOf(ResolveStorage(engine, checkpoint).type);
  EngineOptions options = engine;
  options.max_batch_tokens = kTextChunkTokens;
  options.cache_bytes = std::max<int64_t>(1, PagesFor(static_cast<int64_t>(longest))) *
                        PageBytes(GeometryOf(checkpoint.config, type));
  return options;
}

}  // namespace

absl::StatusOr<std::unique_ptr<ModelRunner>> MakeTextReader(
    std::shared_ptr<const Checkpoint> checkpoint, TokenTexts texts, const EngineOptions& engine,
    const std::function<void(int64_t, int64_t)>& loading) {
  if (engine.device != nullptr) {
    return absl::InvalidArgumentError("device: expected cpu, which reads the rows");
  }
  LK_RETURN_IF_ERROR(CheckTexts(texts, checkpoint->config));
  const EngineOptions options = OptionsFor(engine, *checkpoint, texts);
  ProgressFn progress;  // empty for an empty function, which an AnyInvocable would call
  if (loading) progress = loading;
  return ModelRunner::Create(std::move(checkpoint), options, std::move(progress));
}

absl::Status ReadTexts(ModelRunner& reader, TokenTexts texts,
                       const std::function<void(int64_t, int64_t)>& reading) {
  int64_t n_done = 0, n_tokens = 0;
  for (const std::vector<int32_t>& text : texts) n_tokens += static_cast<int64_t>(text.size());
  for (const std::vector<int32_t>& text : texts) {
    SequenceCache sequence;
    sequence.n_prompt_tokens = static_cast<int64_t>(text.size());
    for (size_t at = 0; at < text.size(); at += kTextChunkTokens) {
      const auto chunk = absl::MakeConstSpan(text).subspan(at, kTextChunkTokens);
      const ModelRunner::Rows rows{&sequence, static_cast<int64_t>(at), chunk};
      LK_RETURN_IF_ERROR(reader.Step({&rows, 1}));
      n_done += static_cast<int64_t>(chunk.size());
      if (reading) reading(n_done, n_tokens);
    }
  }
  return absl::OkStatus();
}

}  // namespace lowkey
