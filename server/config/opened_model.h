#ifndef LOWKEY_SERVER_CONFIG_OPENED_MODEL_H_
#define LOWKEY_SERVER_CONFIG_OPENED_MODEL_H_

#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "engine/loader/checkpoint.h"
#include "server/config/flags.h"
#include "tokenizer/chat/template_files.h"
#include "tokenizer/tokenizer.h"

namespace lowkey {

// The model that --model names, or the demo model: its files are opened and parsed once. Files that
// are wrong are never INVALID_ARGUMENT, which says that a flag is; they are FAILED_PRECONDITION.
class OpenedModel {
 public:
  // A model that is named hf:OWNER/NAME is fetched first, as server/hub/fetch_model.h says. Its
  // progress goes to standard error, a stop signal ends it, and the environment has its settings.
  // NOT_FOUND when there is no such path, or no model in it; INVALID_ARGUMENT when --model is empty
  // or no reference; FetchModel's errors.
  static absl::StatusOr<OpenedModel> Open(const FlagValues& flags);
  // Returns what clients call the model that Open opens: the last part of its path, or the
  // repository's NAME. The name is known before anything is fetched. Errors are ModelDirectory's.
  static absl::StatusOr<std::string> Name(const FlagValues& flags);

  const std::string& path() const { return files_.path; }
  const ModelFiles& files() const { return files_; }
  // OpenCheckpoint's errors.
  absl::StatusOr<std::shared_ptr<const Checkpoint>> Weights() const;
  // LoadTokenizer's errors.
  absl::StatusOr<std::unique_ptr<Tokenizer>> MakeTokenizer() const;
  ChatTemplates MakeChatTemplates() const;

 private:
  explicit OpenedModel(ModelFiles files) : files_(std::move(files)) {}

  ModelFiles files_;
};

}  // namespace lowkey

#endif  // LOWKEY_SERVER_CONFIG_OPENED_MODEL_H_
