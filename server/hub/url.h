#ifndef LOWKEY_SERVER_HUB_URL_H_
#define LOWKEY_SERVER_HUB_URL_H_

#include <string>

#include "absl/status/statusor.h"

namespace lowkey {

// An absolute http or https URL, in the form that libcurl reads it: what is checked here is what
// is connected to.
struct Url {
  std::string text, scheme, host, port;  // the port is always a number

  // INVALID_ARGUMENT: not such a URL, over 8,192 bytes, without a host, with a user or a password,
  // or with characters that are no visible ASCII.
  static absl::StatusOr<Url> Parse(const std::string& text);
  // Reads a Location, which may be relative to this URL; the same errors.
  absl::StatusOr<Url> Resolve(const std::string& location) const;

  bool HasOriginOf(const Url& other) const {
    return scheme == other.scheme && host == other.host && port == other.port;
  }
  bool IsLoopback() const;
};

// Percent-encodes everything but letters, digits and - _ . ~ and, if told, slashes.
enum class Slashes { kKept, kEncoded };
std::string EscapedForUrl(const std::string& text, Slashes slashes);

}  // namespace lowkey

#endif  // LOWKEY_SERVER_HUB_URL_H_
