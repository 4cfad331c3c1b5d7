#include "server/config/opened_model.h"

#include <cstdio>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "engine/base/prefixed.h"
#include "engine/base/status_macros.h"
#include "server/config/common_flags.h"
#include "server/config/terminal/signals.h"
#include "server/config/terminal/terminal.h"
#include "server/hub/fetch_model.h"
#include "server/model_files/load_chat_templates.h"
#include "server/model_files/load_tokenizer.h"

namespace lowkey {
namespace {

constexpr char kReferenceForm[] =
    "hf:OWNER/NAME[@REVISION][:QUANT], such as hf:someone/some-model-GGUF:Q4_K_M";

// Returns the result of reading files, without blaming a flag for the files.
template <typename T>
absl::StatusOr<T> OfFiles(absl::StatusOr<T> read) {
  if (!absl::IsInvalidArgument(read.status())) return read;
  return absl::FailedPreconditionError(read.status().message());
}

// Returns NOT_FOUND for a directory without any file of a model.
absl::Status CheckHoldsModel(const ModelFiles& files) {
  if (files.gguf != nullptr) return absl::OkStatus();
  const std::filesystem::path directory = files.directory;
  std::error_code error;
  // A tokenizer alone is enough for `lowkey tokenize`.
  for (const char* name : {"config.json", "tokenizer.json", "tokenizer.model"}) {
    if (std::filesystem::exists(directory / name, error)) return absl::OkStatus();
  }
  return absl::NotFoundError(absl::StrCat(
      files.path,
      ": no config.json and no .gguf file in it, expected a directory with config.json "
      "and *.safetensors, or a .gguf file"));
}

std::string NameOf(const std::string& directory) {
  const std::filesystem::path path = std::filesystem::absolute(directory).lexically_normal();
  const std::string name = path.filename().string();
  return name.empty() ? path.parent_path().filename().string() : name;
}

// Returns the path of a hub's model, which is fetched unless the cache has it. A stop signal ends
// the fetching with CANCELLED, and what came stays.
absl::StatusOr<std::string> Fetched(const ModelReference& reference, const FlagValues& flags) {
  LK_ASSIGN_OR_RETURN(HubSettings settings, ReadHubSettings(FlagSources::Process().environment));
  settings.is_offline |= flags.Switch("offline");
  const StopSignalsBlocked blocked;
  ProgressBar bar(stderr, absl::StrCat("fetching ", reference.name));
  HubHooks hooks;
  hooks.is_stopped = [] { return WaitForStopSignal(absl::ZeroDuration()); };
  hooks.show = [&bar](int64_t done, int64_t total) { bar.Show(done, total); };
  if (!flags.Switch("json")) {
    hooks.say = [&bar](const std::string& line) {
      bar.Clear();
      std::fprintf(stderr, "%s\n", TerminalSafe(line).c_str());
    };
  }
  return FetchModel(reference, settings, hooks);
}

}  // namespace

absl::StatusOr<OpenedModel> OpenedModel::Open(const FlagValues& flags) {
  LK_ASSIGN_OR_RETURN(std::string path, ModelDirectory(flags));
  if (path.empty()) return flags.Error("model", "a model directory or a .gguf file");
  if (IsModelReference(path)) {
    const absl::StatusOr<ModelReference> reference = ParseModelReference(path);
    if (!reference.ok()) return flags.Error("model", kReferenceForm);
    LK_ASSIGN_OR_RETURN(path, Fetched(*reference, flags));
  }
  LK_ASSIGN_OR_RETURN(ModelFiles files, Prefixed("--model", OfFiles(OpenModelFiles(path))));
  LK_RETURN_IF_ERROR(Prefixed("--model", CheckHoldsModel(files)));
  return OpenedModel(std::move(files));
}

absl::StatusOr<std::string> OpenedModel::Name(const FlagValues& flags) {
  LK_ASSIGN_OR_RETURN(const std::string path, ModelDirectory(flags));
  const absl::StatusOr<ModelReference> reference = ParseModelReference(path);
  return reference.ok() ? reference->name : NameOf(path);
}

absl::StatusOr<std::shared_ptr<const Checkpoint>> OpenedModel::Weights() const {
  return OfFiles(OpenCheckpoint(files_));
}

absl::StatusOr<std::unique_ptr<Tokenizer>> OpenedModel::MakeTokenizer() const {
  return OfFiles(LoadTokenizer(files_));
}

ChatTemplates OpenedModel::MakeChatTemplates() const { return LoadChatTemplates(files_); }

}  // namespace lowkey
