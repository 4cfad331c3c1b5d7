#include "engine/runtime/calibration/find_codes.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "engine/model/rope.h"
#include "engine/runtime/calibration/head_statistics.h"
#include "engine/runtime/calibration/prefix_statistics.h"
#include "engine/runtime/calibration/watched_attention.h"
#include "engine/runtime/model_runner.h"

namespace lowkey {

absl::StatusOr<PrincipalCodes> FindPrincipalCodes(std::shared_ptr<const Checkpoint> checkpoint,
                                                  TokenTexts texts, const EngineOptions& engine,
                                                  const CalibrationProgress& progress) {
  const ModelConfig config = checkpoint->config;
  if (config.key_dim() % 2 != 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("key_dim: ", config.key_dim(), ", expected an even number"));
  }
  LK_ASSIGN_OR_RETURN(const auto runner,
                      MakeTextReader(std::move(checkpoint), texts, engine, progress.loading));
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
  LK_RETURN_IF_ERROR(ReadTexts(*runner, texts, progress.reading));
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
