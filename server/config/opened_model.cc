#include "server/config/opened_model.h"

#include "absl/strings/str_cat.h"
#include "engine/base/prefixed.h"
#include "engine/base/status_macros.h"
#include "server/config/common_flags.h"
#include "server/model_files/load_chat_templates.h"
#include "server/model_files/load_tokenizer.h"

namespace lowkey {
namespace {

// Returns the result of reading files, without blaming a flag for the files.
template <typename T>
absl::StatusOr<T> OfFiles(absl::StatusOr<T> read) {
  if (!absl::IsInvalidArgument(read.status())) return read;
  return absl::FailedPreconditionError(read.status().message());
}

}  // namespace

absl::StatusOr<OpenedModel> OpenedModel::Open(const FlagValues& flags) {
  LK_ASSIGN_OR_RETURN(const std::string path, ModelDirectory(flags));
  if (path.empty()) return flags.Error("model", "a model directory or a .gguf file");
  LK_ASSIGN_OR_RETURN(ModelFiles files, Prefixed("--model", OfFiles(OpenModelFiles(path))));
  return OpenedModel(std::move(files));
}

absl::StatusOr<std::shared_ptr<const Checkpoint>> OpenedModel::Weights() const {
  return OfFiles(OpenCheckpoint(files_));
}

absl::StatusOr<std::unique_ptr<Tokenizer>> OpenedModel::MakeTokenizer() const {
  return OfFiles(LoadTokenizer(files_));
}

ChatTemplates OpenedModel::MakeChatTemplates() const { return LoadChatTemplates(files_); }

}  // namespace lowkey
