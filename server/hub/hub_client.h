#ifndef LOWKEY_SERVER_HUB_HUB_CLIENT_H_
#define LOWKEY_SERVER_HUB_HUB_CLIENT_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/hub/hub_settings.h"
#include "server/hub/listing.h"
#include "server/hub/model_reference.h"
#include "server/hub/part_file.h"
#include "server/hub/web.h"

namespace lowkey {

// HubHooks holds what a caller of the hub sees of it, and how the caller stops it. All are called
// from the caller's thread.
struct HubHooks {
  std::function<bool()> is_stopped = [] { return false; };  // asked at least once a second
  std::function<void(int64_t done, int64_t total)> show = [](int64_t, int64_t) {};  // bytes
  std::function<void(const std::string&)> say = [](const std::string&) {};          // a line
};

// Asks a hub about one repository. Attempts that fail for a passing reason are repeated after
// growing pauses, or the time that the hub asks for. Not thread-safe.
// Errors are Web::Get's, and those of ParseListing as DATA_LOSS.
class HubClient {
 public:
  HubClient(const HubSettings& settings, const ModelReference& reference, const HubHooks& hooks);

  // The commit that the revision is now. `max_attempts` bounds the attempts.
  absl::StatusOr<std::string> FindCommit(int max_attempts);
  // All files of a commit, from as many pages as the hub makes.
  absl::StatusOr<std::vector<HubFile>> ListFiles(const std::string& commit);
  // Adds to `part` what it lacks of its file. `n_done_before` bytes of other files are part of what
  // hooks.show is told. DATA_LOSS: the hub sends another length than it lists.
  absl::Status Download(const std::string& commit, PartFile& part, int64_t n_done_before,
                        int64_t n_total);

 private:
  struct Page;

  absl::Status GetPage(const std::string& url, int max_attempts, Page& page);
  absl::Status Pause(const absl::Status& failure, int n_failed, int max_attempts);

  const HubSettings settings_;
  const ModelReference reference_;
  const HubHooks& hooks_;
  Web web_;
};

}  // namespace lowkey

#endif  // LOWKEY_SERVER_HUB_HUB_CLIENT_H_
