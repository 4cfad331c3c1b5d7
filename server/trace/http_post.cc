#include "server/trace/http_post.h"

#include <curl/curl.h>

#include <exception>
#include <utility>

#include "absl/status/status.h"

namespace lowkey {
namespace {

// libcurl starts itself once, and not while other threads may do so too.
bool StartLibrary() {
  static const bool is_started = curl_global_init(CURL_GLOBAL_DEFAULT) == CURLE_OK;
  return is_started;
}

size_t TakeBody(const char* bytes, size_t, size_t n, void* to) {
  auto& body = *static_cast<std::string*>(to);
  if (body.size() + n > kMaxPostAnswerBytes) return 0;  // ends the transfer
  try {
    body.append(bytes, n);
  } catch (const std::exception&) {
    return 0;
  }
  return n;
}

int MayGoOn(void* is_cancelled, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
  return (*static_cast<const std::function<bool()>*>(is_cancelled))() ? 1 : 0;
}

}  // namespace

struct HttpPoster::Handle {
  CURL* curl = nullptr;
  curl_slist* fields = nullptr;

  ~Handle() {
    curl_easy_cleanup(curl);
    curl_slist_free_all(fields);
  }
};

HttpPoster::HttpPoster(std::string url, absl::Duration timeout, std::function<bool()> is_cancelled)
    : is_cancelled_(std::move(is_cancelled)), handle_(std::make_unique<Handle>()) {
  if (!StartLibrary()) return;
  CURL* const curl = handle_->curl = curl_easy_init();
  if (curl == nullptr) return;
  for (const char* field : {"Content-Type: application/json", "Expect:"}) {
    handle_->fields = curl_slist_append(handle_->fields, field);
  }
  curl_easy_setopt(curl, CURLOPT_URL, url.c_str());
  curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(curl, CURLOPT_PROXY, "");
  curl_easy_setopt(curl, CURLOPT_HTTPHEADER, handle_->fields);
  curl_easy_setopt(curl, CURLOPT_USERAGENT, "lowkey");
  curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(curl, CURLOPT_TIMEOUT_MS, static_cast<long>(absl::ToInt64Milliseconds(timeout)));
  curl_easy_setopt(curl, CURLOPT_QUICK_EXIT, 1L);  // a name that does not resolve holds nobody up
  curl_easy_setopt(curl, CURLOPT_WRITEFUNCTION, &TakeBody);
  curl_easy_setopt(curl, CURLOPT_NOPROGRESS, 0L);
  curl_easy_setopt(curl, CURLOPT_XFERINFOFUNCTION, &MayGoOn);
  curl_easy_setopt(curl, CURLOPT_XFERINFODATA, &is_cancelled_);
}

HttpPoster::~HttpPoster() = default;

absl::StatusOr<HttpPostAnswer> HttpPoster::Post(const std::string& json) {
  CURL* const curl = handle_->curl;
  if (curl == nullptr) return absl::UnavailableError("libcurl cannot be started");
  HttpPostAnswer answer;
  curl_easy_setopt(curl, CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(json.size()));
  curl_easy_setopt(curl, CURLOPT_POSTFIELDS, json.data());
  curl_easy_setopt(curl, CURLOPT_WRITEDATA, &answer.body);
  const CURLcode code = curl_easy_perform(curl);
  if (code != CURLE_OK) return absl::UnavailableError(curl_easy_strerror(code));
  long status = 0;
  curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
  answer.code = static_cast<int>(status);
  curl_off_t retry_after_s = 0;
  curl_easy_getinfo(curl, CURLINFO_RETRY_AFTER, &retry_after_s);
  if (retry_after_s > 0) answer.retry_after = absl::Seconds(retry_after_s);
  return answer;
}

}  // namespace lowkey
