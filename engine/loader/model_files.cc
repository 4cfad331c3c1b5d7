#include "engine/loader/model_files.h"

#include <dirent.h>

#include <cerrno>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"

namespace lowkey {
namespace {

absl::Status CheckDirectory(const std::string& path) {
  DIR* dir = opendir(path.c_str());
  if (dir != nullptr) {
    closedir(dir);
    return absl::OkStatus();
  }
  const std::string message = absl::StrCat(path, ": ", std::strerror(errno),
                                           ", expected a model directory or a .gguf file");
  return errno == EACCES ? absl::PermissionDeniedError(message) : absl::NotFoundError(message);
}

std::string ParentOf(const std::string& path) {
  const size_t slash = path.rfind('/');
  return slash == std::string::npos ? "." : path.substr(0, slash + 1);
}

}  // namespace

absl::StatusOr<ModelFiles> OpenModelFiles(const std::string& path) {
  LK_ASSIGN_OR_RETURN(const std::optional<std::string> gguf, FindGguf(path));
  if (!gguf.has_value()) {
    LK_RETURN_IF_ERROR(CheckDirectory(path));
    return ModelFiles{path, path, path, nullptr};
  }
  LK_ASSIGN_OR_RETURN(Gguf opened, OpenGguf(*gguf));
  return ModelFiles{path, *gguf, *gguf == path ? ParentOf(path) : path,
                    std::make_shared<const Gguf>(std::move(opened))};
}

}  // namespace lowkey
