#include "engine/runtime/calibration/find_codes.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "engine/model/rope.h"
#include "engine/model/weight_set.h"
#include "engine/runtime/calibration/head_statistics.h"
#include "engine/runtime/calibration/prefix_statistics.h"
#include "engine/runtime/calibration/watched_attention.h"
#include "engine/runtime/model_runner.h"
#include "engine/runtime/request_check.h"

namespace lowkey {
namespace {

constexpr int32_t kTextChunkTokens = 512;

absl::Status CheckTexts(absl::Span<const std::vector<int32_t>> texts, const ModelConfig& config) {
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
                         absl::Span<const std::vector<int32_t>> texts) {
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

absl::StatusOr<PrincipalCodes> FindPrincipalCodes(std::shared_ptr<const Checkpoint> checkpoint,
                                                  absl::Span<const std::vector<int32_t>> texts,
                                                  const EngineOptions& engine,
                                                  const CodeProgress& progress) {
  if (engine.device != nullptr) {
    return absl::InvalidArgumentError("device: expected cpu, which reads the keys and values");
  }
  const ModelConfig config = checkpoint->config;
  LK_RETURN_IF_ERROR(CheckTexts(texts, config));
  if (config.key_dim() % 2 != 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("key_dim: ", config.key_dim(), ", expected an even number"));
  }
  const EngineOptions options = OptionsFor(engine, *checkpoint, texts);
  ProgressFn loading;  // empty for an empty function, which an AnyInvocable would call
  if (progress.loading) loading = progress.loading;
  LK_ASSIGN_OR_RETURN(const auto runner,
                      ModelRunner::Create(std::move(checkpoint), options, std::move(loading)));
  const std::vector<double> frequencies = RopeInverseFrequencies(config);
  PrefixStatistics prefixes(runner->geometry(), frequencies);
  HeadStatistics heads(runner->geometry(), frequencies, config.context_tokens);
  const auto watch = [&](const LayerRows& rows, absl::Span<const Segment> segments) {
    prefixes.Add(rows, segments, runner->pool());
    heads.Add(rows, segments, runner->pool());
  };
  runner->Wrap(Mechanism::kStandard, [&](std::unique_ptr<AttentionMechanism> real) {
    return std::make_unique<WatchedAttention>(std::move(real), watch);
  });
  int64_t n_done = 0, n_tokens = 0;
  for (const std::vector<int32_t>& text : texts) n_tokens += static_cast<int64_t>(text.size());
  for (const std::vector<int32_t>& text : texts) {
    SequenceCache sequence;
    sequence.n_prompt_tokens = static_cast<int64_t>(text.size());
    for (size_t at = 0; at < text.size(); at += kTextChunkTokens) {
      const auto chunk = absl::MakeConstSpan(text).subspan(at, kTextChunkTokens);
      const ModelRunner::Rows rows{&sequence, static_cast<int64_t>(at), chunk};
      LK_RETURN_IF_ERROR(runner->Step({&rows, 1}));
      n_done += static_cast<int64_t>(chunk.size());
      if (progress.reading) progress.reading(n_done, n_tokens);
    }
  }
  PrincipalCodes codes;
  const int64_t n_codes = prefixes.n_codes() + heads.n_codes();
  const auto solving = [&](int64_t n_before) {
    return [&progress, n_before, n_codes](int64_t done) {
      if (progress.solving) progress.solving(n_before + done, n_codes);
    };
  };
  LK_ASSIGN_OR_RETURN(codes.prefixes, prefixes.FindCodes(runner->pool(), solving(0)));
  LK_ASSIGN_OR_RETURN(codes.heads, heads.FindCodes(runner->pool(), solving(prefixes.n_codes())));
  return codes;
}

}  // namespace lowkey
