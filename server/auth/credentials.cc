#include "server/auth/credentials.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/files.h"
#include "engine/base/status_macros.h"

namespace lowkey {
namespace {

std::function<void(const absl::Status&)> Reporter(std::string what, ReloadLog log) {
  return [what = std::move(what), log = std::move(log)](const absl::Status& status) {
    log(status.ok() ? absl::StrCat(what, ": read again")
                    : absl::StrCat(std::string(status.message()), "; what it was stays in force"));
  };
}

}  // namespace

absl::StatusOr<std::shared_ptr<TokenSource>> OpenTokens(const std::string& path, ReloadLog log) {
  const auto load = [path]() -> absl::StatusOr<TokenTable> {
    LK_ASSIGN_OR_RETURN(const std::string text, ReadWholeFile(path, kMaxTokenTableBytes));
    return TokenTable::Parse(text, path);
  };
  return TokenSource::Start({path}, load, Reporter(path, std::move(log)));
}

absl::StatusOr<std::shared_ptr<TlsSource>> OpenTls(const TlsPaths& paths, ReloadLog log) {
  std::vector<std::string> files = {paths.certificate, paths.key};
  if (paths.authority.has_value()) files.push_back(*paths.authority);
  return TlsSource::Start(
      std::move(files), [paths] { return ReadTlsFiles(paths); },
      Reporter(paths.certificate, std::move(log)));
}

}  // namespace lowkey
