#include "server/hub/web.h"

#include <curl/curl.h>

#include <algorithm>
#include <array>
#include <mutex>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "engine/base/contained.h"
#include "engine/base/retry_after.h"
#include "engine/base/status_macros.h"

namespace lowkey {
namespace {

constexpr int kMaxRedirects = 5;
constexpr size_t kMaxHeadBytes = size_t{64} << 10;
constexpr size_t kMaxRefusalBytes = size_t{256} << 10;  // of the body of a redirect or an error
constexpr size_t kMaxErrorBytes = 300;

bool IsRedirect(long status) {
  return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

// A server's text, fit to be printed: visible ASCII, cut.
std::string Printable(const std::string& text) {
  std::string printable;
  for (const char c : text.substr(0, kMaxErrorBytes)) {
    printable += absl::ascii_isprint(static_cast<unsigned char>(c)) ? c : '?';
  }
  return printable;
}

// Retry-After in seconds; its other form, a date, is passed over.
std::optional<absl::Duration> RetryDelay(const WebAnswer& answer) {
  int64_t seconds = 0;
  if (!absl::SimpleAtoi(answer.Field("retry-after"), &seconds) || seconds < 0 || seconds > 86400) {
    return std::nullopt;
  }
  return absl::Seconds(std::max<int64_t>(seconds, 1));
}

}  // namespace

std::string WebAnswer::Field(const std::string& name) const {
  const auto it = fields.find(name);
  return it == fields.end() ? "" : it->second;
}

std::optional<int64_t> WebAnswer::Length() const {
  int64_t n = 0;
  if (!absl::SimpleAtoi(Field("content-length"), &n) || n < 0) return std::nullopt;
  return n;
}

// One request and its answer, as libcurl's callbacks meet it.
struct Web::Transfer {
  WebSink& sink;
  const std::function<bool()>& is_stopped;
  WebAnswer answer = {};
  size_t n_head_bytes = 0, n_refused_bytes = 0;
  bool is_head_whole = false;
  bool has_begun = false;  // the sink knows the head
  absl::Status failure = {};

  bool IsWanted() const { return answer.status >= 200 && answer.status < 300; }

  absl::Status TakeHeadLine(std::string_view line) {
    n_head_bytes += line.size();
    if (n_head_bytes > kMaxHeadBytes) {
      return absl::FailedPreconditionError(
          absl::StrCat("the answer's head is over ", kMaxHeadBytes, " bytes"));
    }
    if (line.starts_with("HTTP/")) {  // a new head: after 1xx there is another one
      answer = {};
      is_head_whole = false;
      const size_t space = line.find(' ');
      if (space != std::string_view::npos) {
        (void)absl::SimpleAtoi(std::string(line.substr(space + 1, 3)), &answer.status);
      }
      return absl::OkStatus();
    }
    is_head_whole |= line == "\r\n" || line == "\n";
    const size_t colon = line.find(':');
    if (colon != std::string_view::npos) {
      answer.fields[absl::AsciiStrToLower(std::string(line.substr(0, colon)))] =
          std::string(absl::StripAsciiWhitespace(std::string(line.substr(colon + 1))));
    }
    return absl::OkStatus();
  }

  absl::Status Begin() {
    if (std::exchange(has_begun, true) || !IsWanted()) return absl::OkStatus();
    return sink.Begin(answer);
  }

  absl::Status TakeBody(std::string_view bytes) {
    LK_RETURN_IF_ERROR(Begin());
    if (IsWanted()) return sink.Take(bytes);
    n_refused_bytes += bytes.size();
    // What an error or a redirect says in its body is not read; its end keeps the connection.
    if (n_refused_bytes <= kMaxRefusalBytes) return absl::OkStatus();
    return absl::FailedPreconditionError("an endless body");
  }

  // Runs a callback's work; false ends the transfer. No exception may pass through libcurl.
  template <typename Work>
  bool Run(const Work& work) noexcept {
    if (!failure.ok()) return false;
    if (!RunContained([&] { failure = work(); })) failure = OutOfMemory();
    return failure.ok();
  }

  static size_t OnHead(char* bytes, size_t size, size_t n, void* self) noexcept {
    auto& transfer = *static_cast<Transfer*>(self);
    return transfer.Run([&] { return transfer.TakeHeadLine({bytes, size * n}); }) ? size * n : 0;
  }
  static size_t OnBody(char* bytes, size_t size, size_t n, void* self) noexcept {
    auto& transfer = *static_cast<Transfer*>(self);
    return transfer.Run([&] { return transfer.TakeBody({bytes, size * n}); }) ? size * n : 0;
  }
  static int OnProgress(void* self, curl_off_t, curl_off_t, curl_off_t, curl_off_t) noexcept {
    auto& transfer = *static_cast<Transfer*>(self);
    return transfer.Run([&] {
      return transfer.is_stopped() ? absl::CancelledError("stopped") : absl::OkStatus();
    })
               ? 0
               : 1;
  }
};

Web::Web(const HubSettings& settings, std::function<bool()> is_stopped)
    : settings_(settings), is_stopped_(std::move(is_stopped)), curl_([] {
        static std::once_flag once;
        std::call_once(once, [] { curl_global_init(CURL_GLOBAL_DEFAULT); });
        return curl_easy_init();
      }()) {}

Web::~Web() { curl_easy_cleanup(curl_); }

bool Web::MaySendToken(const Url& url) const {
  const absl::StatusOr<Url> endpoint = Url::Parse(settings_.endpoint);
  return !settings_.token.empty() && endpoint.ok() && url.HasOriginOf(*endpoint) &&
         (url.scheme == "https" || url.IsLoopback());
}

absl::Status Web::StatusOfAnswer(const WebAnswer& answer, const Url& url) const {
  const std::string said = Printable(answer.Field("x-error-message"));
  const std::string text = absl::StrCat(url.scheme, "://", url.host, ":", url.port, " answers ",
                                        answer.status, said.empty() ? "" : ": ", said);
  const std::string token = settings_.token.empty() ? "there is no token: set HF_TOKEN"
                            : MaySendToken(url)     ? "the token that was sent may not read it"
                                                    : "no token goes over http to other machines";
  switch (answer.status) {
    case 401:
      return absl::UnauthenticatedError(absl::StrCat(
          text, "; the model is private or gated, or there is none of this name; ", token));
    case 403:
      return absl::PermissionDeniedError(
          absl::StrCat(text, "; the model may be gated: accept its terms on its page; ", token));
    case 404:
      return absl::NotFoundError(absl::StrCat(text, "; there is no such model, revision or file"));
    case 416:
      return absl::OutOfRangeError(text);
    default:
      break;
  }
  if (answer.status != 408 && answer.status != 429 && answer.status < 500) {
    return absl::FailedPreconditionError(text);
  }
  const absl::Status status = absl::UnavailableError(text);
  const std::optional<absl::Duration> delay = RetryDelay(answer);
  return delay.has_value() ? WithRetryAfter(status, *delay) : status;
}

absl::StatusOr<std::optional<Url>> Web::CheckRedirect(const Url& from,
                                                      const WebAnswer& answer) const {
  const absl::StatusOr<Url> to = from.Resolve(answer.Field("location"));
  if (!to.ok()) {
    return absl::FailedPreconditionError(absl::StrCat("a redirect to ", to.status().message()));
  }
  if (to->scheme == "https" || settings_.endpoint.starts_with(to->scheme + ":")) return *to;
  return absl::FailedPreconditionError(
      absl::StrCat("a redirect from https to http://", to->host, ", expected https"));
}

absl::Status Web::Get(const std::string& url, int64_t first_byte, WebSink& sink) {
  if (curl_ == nullptr) return absl::ResourceExhaustedError("libcurl cannot start");
  LK_ASSIGN_OR_RETURN(Url at, Url::Parse(url));
  for (int n_redirects = 0; n_redirects <= kMaxRedirects; ++n_redirects) {
    LK_ASSIGN_OR_RETURN(const std::optional<Url> next, GetOnce(at, first_byte, sink));
    if (!next.has_value()) return absl::OkStatus();
    at = *next;
  }
  return absl::FailedPreconditionError(
      absl::StrCat("more than ", kMaxRedirects, " redirects, the last to ", at.host));
}

// Sets what is the same for every request.
void Web::Prepare(Transfer& transfer) {
  CURL* const curl = curl_;
  curl_easy_reset(curl);
  curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(curl, CURLOPT_FOLLOWLOCATION, 0L);
  curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(curl, CURLOPT_USERAGENT, "lowkey");
  const auto seconds = [](absl::Duration time) {
    return std::max(1L, static_cast<long>(absl::ToInt64Seconds(time)));
  };
  curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT, seconds(settings_.connect_timeout));
  curl_easy_setopt(curl, CURLOPT_LOW_SPEED_LIMIT, 1L);
  curl_easy_setopt(curl, CURLOPT_LOW_SPEED_TIME, seconds(settings_.stall_timeout));
  curl_easy_setopt(curl, CURLOPT_HEADERFUNCTION, &Transfer::OnHead);
  curl_easy_setopt(curl, CURLOPT_HEADERDATA, &transfer);
  curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, &Transfer::OnBody);
  curl_easy_setopt(curl, CURLOPT_WRITEDATA, &transfer);
  curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, &Transfer::OnProgress);
  curl_easy_setopt(curl, CURLOPT_XFERINFODATA, &transfer);
  curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
  if (!settings_.authorities.empty()) {
    curl_easy_setopt(curl, CURLOPT_CAINFO, settings_.authorities.c_str());
  }
}

// Gets one resource; the URL of a redirect if the answer is one.
absl::StatusOr<std::optional<Url>> Web::GetOnce(const Url& url, int64_t first_byte, WebSink& sink) {
  Transfer transfer{sink, is_stopped_};
  Prepare(transfer);
  CURL* const curl = curl_;
  std::array<char, CURL_ERROR_SIZE> problem = {};
  curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, problem.data());
  curl_easy_setopt(curl, CURLOPT_URL, url.text.c_str());
  const std::string range = absl::StrCat(first_byte, "-");
  if (first_byte > 0) curl_easy_setopt(curl, CURLOPT_RANGE, range.c_str());
  std::unique_ptr<curl_slist, decltype(&curl_slist_free_all)> fields(nullptr, &curl_slist_free_all);
  if (MaySendToken(url)) {
    const std::string field = absl::StrCat("Authorization: Bearer ", settings_.token);
    fields.reset(curl_slist_append(nullptr, field.c_str()));
    curl_easy_setopt(curl, CURLOPT_HTTPHEADER, fields.get());
  }
  const CURLcode code = curl_easy_perform(curl);
  curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, nullptr);
  if (!transfer.failure.ok()) return transfer.failure;
  if (code != CURLE_OK) {
    const std::string text = absl::StrCat(
        url.host, ": ", Printable(problem[0] != '\0' ? problem.data() : curl_easy_strerror(code)));
    const bool is_final = code == CURLE_PEER_FAILED_VERIFICATION ||
                          code == CURLE_SSL_CACERT_BADFILE || code == CURLE_OUT_OF_MEMORY;
    if (is_final) return absl::FailedPreconditionError(text);
    return absl::UnavailableError(text);
  }
  if (!transfer.is_head_whole) {  // libcurl takes that for an answer without a body
    return absl::UnavailableError(absl::StrCat(url.host, ": the answer ends in its head"));
  }
  if (IsRedirect(transfer.answer.status)) return CheckRedirect(url, transfer.answer);
  if (!transfer.IsWanted()) return StatusOfAnswer(transfer.answer, url);
  LK_RETURN_IF_ERROR(transfer.Begin());  // an answer without a body
  return std::nullopt;
}

}  // namespace lowkey
