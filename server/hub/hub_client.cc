#include "server/hub/hub_client.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "engine/base/clock.h"
#include "engine/base/prefixed.h"
#include "engine/base/retry_after.h"
#include "engine/base/status_macros.h"

namespace lowkey {
namespace {

constexpr size_t kMaxPageBytes = size_t{8} << 20;
constexpr int kMaxPages = 1000;
constexpr absl::Duration kMaxPause = absl::Seconds(30), kMaxWait = absl::Minutes(2);
constexpr absl::Duration kStopPoll = absl::Milliseconds(50);
// An attempt that adds so much counts as the first one again.
constexpr int64_t kProgressBytes = int64_t{1} << 20;

// The URL in a field such as `Link: <https://host/path?cursor=x>; rel="next"`; empty: none.
std::string NextLink(const std::string& link) {
  const size_t begin = link.find('<'), end = link.find('>');
  if (begin == std::string::npos || end == std::string::npos || end < begin) return "";
  if (link.find("rel=\"next\"", end) == std::string::npos) return "";
  return link.substr(begin + 1, end - begin - 1);
}

// Our words for what another machine sent.
absl::Status AsDataLoss(const absl::Status& status) {
  if (!absl::IsInvalidArgument(status)) return status;
  return absl::DataLossError(status.message());
}

// Writes an answer into a part.
class PartSink : public WebSink {
 public:
  PartSink(PartFile& part, int64_t n_done_before, int64_t n_total, const HubHooks& hooks)
      : part_(part), n_done_before_(n_done_before), n_total_(n_total), hooks_(hooks) {}

  absl::Status Begin(const WebAnswer& answer) override {
    const int64_t n_bytes = part_.file().n_bytes;
    const int64_t first = part_.n_bytes();
    if (answer.status == 206) {
      const std::string range = answer.Field("content-range");
      if (range != absl::StrCat("bytes ", first, "-", n_bytes - 1, "/", n_bytes)) {
        return absl::DataLossError(absl::StrCat("Content-Range: \"", range.substr(0, 100),
                                                "\", expected bytes ", first, "-", n_bytes - 1, "/",
                                                n_bytes));
      }
    } else if (answer.status == 200) {
      // A server without ranges sends the file from its beginning.
      if (first > 0) LK_RETURN_IF_ERROR(part_.Restart());
    } else {
      return absl::DataLossError(absl::StrCat("status ", answer.status, ", expected 200 or 206"));
    }
    const std::optional<int64_t> length = answer.Length();
    if (length.has_value() && *length != n_bytes - part_.n_bytes()) {
      return absl::DataLossError(absl::StrCat("the answer has ", *length, " bytes, expected the ",
                                              n_bytes - part_.n_bytes(), " that the hub lists"));
    }
    return absl::OkStatus();
  }

  absl::Status Take(std::string_view bytes) override {
    LK_RETURN_IF_ERROR(part_.Append(bytes));
    hooks_.show(n_done_before_ + part_.n_bytes(), n_total_);
    return absl::OkStatus();
  }

 private:
  PartFile& part_;
  const int64_t n_done_before_, n_total_;
  const HubHooks& hooks_;
};

}  // namespace

// A JSON answer of bounded length.
struct HubClient::Page : WebSink {
  std::string text, next;

  absl::Status Begin(const WebAnswer& answer) override {
    text.clear();
    next = NextLink(answer.Field("link"));
    return absl::OkStatus();
  }
  absl::Status Take(std::string_view bytes) override {
    if (bytes.size() > kMaxPageBytes - text.size()) {
      return absl::DataLossError(
          absl::StrCat("the answer is over ", kMaxPageBytes, " bytes, expected at most that"));
    }
    text.append(bytes);
    return absl::OkStatus();
  }
};

HubClient::HubClient(const HubSettings& settings, const ModelReference& reference,
                     const HubHooks& hooks)
    : settings_(settings), reference_(reference), hooks_(hooks), web_(settings, hooks.is_stopped) {}

// Waits until another attempt is worth it; returns `failure` when none is.
absl::Status HubClient::Pause(const absl::Status& failure, int n_failed, int max_attempts) {
  if (!absl::IsUnavailable(failure) || n_failed >= max_attempts) return failure;
  const absl::Duration growing = settings_.first_pause * (int64_t{1} << std::min(n_failed - 1, 10));
  const absl::Duration pause = RetryAfterOf(failure).value_or(std::min(growing, kMaxPause));
  if (pause > kMaxWait) {
    return absl::UnavailableError(absl::StrCat(failure.message(), "; it asks to try again after ",
                                               absl::FormatDuration(pause)));
  }
  hooks_.say(absl::StrCat(reference_.Text(), ": ", failure.message(), "; trying again in ",
                          absl::FormatDuration(pause)));
  for (const absl::Time end = SteadyNow() + pause; SteadyNow() < end;) {
    if (hooks_.is_stopped()) return absl::CancelledError("stopped");
    absl::SleepFor(std::min(kStopPoll, end - SteadyNow()));
  }
  return absl::OkStatus();
}

absl::Status HubClient::GetPage(const std::string& url, int max_attempts, Page& page) {
  for (int n_failed = 1;; ++n_failed) {
    const absl::Status status = web_.Get(url, 0, page);
    if (status.ok()) return status;
    LK_RETURN_IF_ERROR(Pause(status, n_failed, max_attempts));
  }
}

absl::StatusOr<std::string> HubClient::FindCommit(int max_attempts) {
  if (IsCommit(reference_.revision)) return reference_.revision;
  Page page;
  const std::string url =
      absl::StrCat(settings_.endpoint, "/api/models/", reference_.Repository(), "/revision/",
                   EscapedForUrl(reference_.revision, Slashes::kEncoded));
  LK_RETURN_IF_ERROR(GetPage(url, max_attempts, page));
  absl::StatusOr<std::string> commit = ParseCommitAnswer(page.text, "the hub's answer");
  if (!commit.ok()) return AsDataLoss(commit.status());
  return commit;
}

absl::StatusOr<std::vector<HubFile>> HubClient::ListFiles(const std::string& commit) {
  constexpr char kName[] = "the hub's list of files";
  LK_ASSIGN_OR_RETURN(const Url endpoint, Url::Parse(settings_.endpoint));
  Url url = endpoint;
  url.text = absl::StrCat(settings_.endpoint, "/api/models/", reference_.Repository(), "/tree/",
                          commit, "?recursive=true");
  std::vector<HubFile> files;
  for (int n_pages = 0; n_pages < kMaxPages; ++n_pages) {
    Page page;
    LK_RETURN_IF_ERROR(GetPage(url.text, settings_.max_attempts, page));
    absl::StatusOr<std::vector<HubFile>> some = ParseListing(page.text, kName);
    if (!some.ok()) return AsDataLoss(some.status());
    files.insert(files.end(), std::make_move_iterator(some->begin()),
                 std::make_move_iterator(some->end()));
    LK_RETURN_IF_ERROR(AsDataLoss(CheckListing(files, kName)));
    if (page.next.empty()) return files;
    const absl::StatusOr<Url> next = url.Resolve(page.next);
    if (!next.ok() || !next->HasOriginOf(endpoint)) {
      return absl::DataLossError(
          absl::StrCat(kName, ": its next page is not at ", settings_.endpoint));
    }
    url = *next;
  }
  return absl::DataLossError(absl::StrCat(kName, ": more than ", kMaxPages, " pages"));
}

absl::Status HubClient::Download(const std::string& commit, PartFile& part, int64_t n_done_before,
                                 int64_t n_total) {
  const std::string url =
      absl::StrCat(settings_.endpoint, "/", reference_.Repository(), "/resolve/", commit, "/",
                   EscapedForUrl(part.file().path, Slashes::kKept));
  PartSink sink(part, n_done_before, n_total, hooks_);
  for (int n_failed = 1; !part.IsWhole(); ++n_failed) {
    const int64_t n_before = part.n_bytes();
    absl::Status status = web_.Get(url, n_before, sink);
    if (status.ok() && !part.IsWhole()) {
      status = absl::UnavailableError(
          absl::StrCat("the answer ends after byte ", part.n_bytes(), " of ", part.file().n_bytes));
    }
    if (status.ok()) break;
    if (part.n_bytes() >= n_before + kProgressBytes) n_failed = 1;
    LK_RETURN_IF_ERROR(Prefixed(part.file().path, Pause(status, n_failed, settings_.max_attempts)));
  }
  return absl::OkStatus();
}

}  // namespace lowkey
