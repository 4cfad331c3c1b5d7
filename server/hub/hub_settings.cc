#include "server/hub/hub_settings.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "engine/base/files.h"
#include "engine/base/status_macros.h"
#include "server/hub/url.h"

namespace lowkey {
namespace {

constexpr size_t kMaxTokenBytes = 1024;

absl::Status Wrong(const std::string& name, const std::string& problem) {
  return absl::FailedPreconditionError(absl::StrCat(name, ": ", problem));
}

// The value is not quoted: it may be a secret.
absl::Status CheckToken(const std::string& name, const std::string& token) {
  const auto is_visible = [](unsigned char c) { return c > 0x20 && c < 0x7f; };
  if (token.size() <= kMaxTokenBytes && std::all_of(token.begin(), token.end(), is_visible)) {
    return absl::OkStatus();
  }
  return Wrong(name, absl::StrCat("expected a token of visible ASCII characters, at most ",
                                  kMaxTokenBytes, " bytes"));
}

// Returns HF_HOME; nullopt: nothing says where it is.
std::optional<std::string> HubHome(const Environment& environment) {
  if (const auto home = environment("HF_HOME")) return home;
  if (const auto cache = environment("XDG_CACHE_HOME")) return *cache + "/huggingface";
  if (const auto home = environment("HOME")) return *home + "/.cache/huggingface";
  return std::nullopt;
}

absl::Status ReadToken(const Environment& environment, const std::optional<std::string>& home,
                       HubSettings& settings) {
  if (const auto token = environment("HF_TOKEN")) {
    settings.token = std::string(absl::StripAsciiWhitespace(*token));
    return CheckToken("HF_TOKEN", settings.token);
  }
  const auto given = environment("HF_TOKEN_PATH");
  if (!given.has_value() && !home.has_value()) return absl::OkStatus();
  const std::string path = given.has_value() ? *given : *home + "/token";
  // A file that cannot be read holds no token.
  const absl::StatusOr<std::string> text = ReadWholeFile(path, 2 * kMaxTokenBytes);
  if (absl::IsInvalidArgument(text.status())) {
    return absl::FailedPreconditionError(text.status().message());
  }
  settings.token = std::string(absl::StripAsciiWhitespace(text.value_or("")));
  return CheckToken(path, settings.token);
}

}  // namespace

absl::StatusOr<HubSettings> ReadHubSettings(const Environment& environment) {
  HubSettings settings;
  if (const auto endpoint = environment("HF_ENDPOINT")) {
    const absl::StatusOr<Url> url = Url::Parse(*endpoint);
    if (!url.ok()) return Wrong("HF_ENDPOINT", std::string(url.status().message()));
    settings.endpoint = *endpoint;
    while (settings.endpoint.ends_with('/')) settings.endpoint.pop_back();
  }
  const std::optional<std::string> home = HubHome(environment);
  LK_RETURN_IF_ERROR(ReadToken(environment, home, settings));
  if (const auto cache = environment("HF_HUB_CACHE")) {
    settings.cache = *cache;
  } else if (home.has_value()) {
    settings.cache = *home + "/hub";
  } else {
    return Wrong("HF_HOME", "not set, nor is HOME: expected a folder for downloaded models");
  }
  settings.authorities = environment("SSL_CERT_FILE").value_or("");
  const std::string offline = absl::AsciiStrToLower(environment("HF_HUB_OFFLINE").value_or(""));
  settings.is_offline = offline == "1" || offline == "true" || offline == "yes" || offline == "on";
  return settings;
}

}  // namespace lowkey
