#ifndef LOWKEY_SERVER_HUB_WEB_H_
#define LOWKEY_SERVER_HUB_WEB_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/hub/hub_settings.h"
#include "server/hub/url.h"

namespace lowkey {

// The head of an answer.
struct WebAnswer {
  long status = 0;
  std::map<std::string, std::string> fields;  // by lower-case name; of equal ones the last

  std::string Field(const std::string& name) const;
  // The length that Content-Length states; nullopt: there is none, or it is no number.
  std::optional<int64_t> Length() const;
};

// Takes an answer: first its head, then its bytes in order. An error ends the transfer and is what
// Get returns.
class WebSink {
 public:
  virtual ~WebSink() = default;
  virtual absl::Status Begin(const WebAnswer& answer) = 0;
  virtual absl::Status Take(std::string_view bytes) = 0;
};

// Gets resources over HTTP with libcurl, whose connections it keeps. It follows at most five
// redirects itself: to https or the endpoint's scheme alone, with the token for the endpoint's
// origin alone, and over http for no machine but this one. Proxies come from the environment, as
// libcurl reads it. Not thread-safe.
class Web {
 public:
  // `is_stopped` is asked about once a second and more often while bytes come.
  Web(const HubSettings& settings, std::function<bool()> is_stopped);
  ~Web();

  // Gets what is at `url`, from byte `first_byte` on. The sink gets only answers of status 2xx.
  //   UNAVAILABLE          the connection failed, broke off or stalled, or the status is 408, 429
  //                        or 5xx: worth another try, RetryAfterOf says when
  //   CANCELLED            is_stopped said so
  //   UNAUTHENTICATED, PERMISSION_DENIED, NOT_FOUND, OUT_OF_RANGE  status 401, 403, 404, 416
  //   FAILED_PRECONDITION  any other status, a redirect that is not followed, a head over 64 KiB,
  //                        a certificate that is not trusted
  // and the sink's errors.
  absl::Status Get(const std::string& url, int64_t first_byte, WebSink& sink);

 private:
  struct Transfer;

  void Prepare(Transfer& transfer);
  absl::StatusOr<std::optional<Url>> GetOnce(const Url& url, int64_t first_byte, WebSink& sink);
  bool MaySendToken(const Url& url) const;
  absl::Status StatusOfAnswer(const WebAnswer& answer, const Url& url) const;
  absl::StatusOr<std::optional<Url>> CheckRedirect(const Url& from, const WebAnswer& answer) const;

  const HubSettings settings_;
  const std::function<bool()> is_stopped_;
  void* const curl_;  // a CURL handle, which only web.cc knows
};

}  // namespace lowkey

#endif  // LOWKEY_SERVER_HUB_WEB_H_
