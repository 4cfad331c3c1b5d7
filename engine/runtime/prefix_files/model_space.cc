#include "engine/runtime/prefix_files/model_space.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/attention/principal_codes.h"
#include "engine/loader/mapped_file.h"
#include "engine/model/rope.h"
#include "engine/runtime/calibration/principal_code_file.h"
#include "engine/runtime/prefix_files/piece_chain.h"

namespace lowkey {
namespace {

// The layout of pieces. Another number parts new files from old ones.
constexpr int kFormat = 2;

void Append(const std::vector<float>& numbers, std::string& text) {
  for (const float number : numbers) absl::StrAppendFormat(&text, " %a", number);
}

}  // namespace

std::string ModelSpace(const Checkpoint& checkpoint, const ModelRunner& runner,
                       const EngineOptions& options) {
  const ModelConfig& c = checkpoint.config;
  std::string text = absl::StrCat("pieces ", kFormat, "\n", options.prefix_files.build, "\n",
                                  runner.processor(), " ", runner.weights_name(), " ",
                                  runner.page_bytes(), "\n", WeightsFingerprint(checkpoint));
  absl::StrAppend(&text, " ", c.architecture, " ", c.n_heads, " ", c.n_kv_heads, " ", c.head_dim,
                  " ", c.key_dim(), " ", c.qk_norm, " ", c.sliding_window.value_or(0));
  absl::StrAppendFormat(&text, " %a\n", c.rms_norm_eps);
  for (const double frequency : RopeInverseFrequencies(c)) {
    absl::StrAppendFormat(&text, " %a", frequency);
  }
  for (const auto& file : checkpoint.files) {
    absl::StrAppend(&text, "\n", file->name(), " ", file->size_bytes(), " ", file->modified_ns());
  }
  if (options.codes != nullptr) {
    for (const PrincipalCode& code : options.codes->prefixes.codes) {
      Append(code.mean, text);
      Append(code.variances, text);
    }
  }
  return HexOf(PieceChain(text).key());
}

}  // namespace lowkey
