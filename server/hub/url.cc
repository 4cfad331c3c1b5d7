#include "server/hub/url.h"

#include <curl/curl.h>

#include <algorithm>
#include <memory>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace lowkey {
namespace {

constexpr size_t kMaxUrlBytes = 8192;

using Handle = std::unique_ptr<CURLU, decltype(&curl_url_cleanup)>;

// Returns a part of the URL; empty: the part is absent.
std::string Part(CURLU* handle, CURLUPart part, unsigned flags = 0) {
  char* text = nullptr;
  if (curl_url_get(handle, part, &text, flags) != CURLUE_OK) return "";
  const std::string copy(text);
  curl_free(text);
  return copy;
}

// 127.0.0.0/8, as four numbers: names may begin alike.
bool IsLoopbackNumber(const std::string& host) {
  return host.starts_with("127.") && host.find_first_not_of("0123456789.") == std::string::npos;
}

absl::Status Wrong(const std::string& text) {
  return absl::InvalidArgumentError(
      absl::StrCat("\"", absl::CHexEscape(text.substr(0, 200)),
                   "\", expected an http or https URL without a user, at most ", kMaxUrlBytes,
                   " bytes of visible ASCII"));
}

absl::StatusOr<Url> Read(const std::string& base, const std::string& text) {
  const auto is_visible = [](unsigned char c) { return c > 0x20 && c < 0x7f; };
  if (text.empty() || text.size() > kMaxUrlBytes ||
      !std::all_of(text.begin(), text.end(), is_visible)) {
    return Wrong(text);
  }
  const Handle handle(curl_url(), &curl_url_cleanup);
  if (handle == nullptr) return absl::ResourceExhaustedError("out of memory");
  for (const std::string* part : {&base, &text}) {
    if (part->empty()) continue;
    if (curl_url_set(handle.get(), CURLUPART_URL, part->c_str(), 0) != CURLUE_OK) {
      return Wrong(text);
    }
  }
  Url url{Part(handle.get(), CURLUPART_URL), Part(handle.get(), CURLUPART_SCHEME),
          absl::AsciiStrToLower(Part(handle.get(), CURLUPART_HOST)),
          Part(handle.get(), CURLUPART_PORT, CURLU_DEFAULT_PORT)};
  if ((url.scheme != "http" && url.scheme != "https") || url.host.empty() || url.port.empty() ||
      !Part(handle.get(), CURLUPART_USER).empty() ||
      !Part(handle.get(), CURLUPART_PASSWORD).empty()) {
    return Wrong(text);
  }
  return url;
}

}  // namespace

absl::StatusOr<Url> Url::Parse(const std::string& text) { return Read("", text); }

absl::StatusOr<Url> Url::Resolve(const std::string& location) const { return Read(text, location); }

bool Url::IsLoopback() const {
  return host == "localhost" || host == "[::1]" || IsLoopbackNumber(host);
}

std::string EscapedForUrl(const std::string& text, Slashes slashes) {
  std::string escaped;
  for (const char c : text) {
    const bool is_plain = absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '-' ||
                          c == '_' || c == '.' || c == '~' ||
                          (c == '/' && slashes == Slashes::kKept);
    if (is_plain) {
      escaped += c;
    } else {
      absl::StrAppendFormat(&escaped, "%%%02X", static_cast<unsigned char>(c));
    }
  }
  return escaped;
}

}  // namespace lowkey
