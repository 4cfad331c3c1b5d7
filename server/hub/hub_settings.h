#ifndef LOWKEY_SERVER_HUB_HUB_SETTINGS_H_
#define LOWKEY_SERVER_HUB_HUB_SETTINGS_H_

#include <functional>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace lowkey {

// HubSettings says where models come from and go to.
struct HubSettings {
  std::string endpoint = "https://huggingface.co";  // without a slash at its end
  std::string token;                                // sent to the endpoint alone; empty: none
  std::string cache;        // the folder, in the layout that huggingface_hub uses
  std::string authorities;  // a file of certificates to trust; empty: the system's
  bool is_offline = false;

  absl::Duration connect_timeout = absl::Seconds(30);
  absl::Duration stall_timeout = absl::Seconds(60);  // without a byte
  absl::Duration first_pause = absl::Seconds(1);     // before the second attempt; doubles
  int max_attempts = 5;                              // that add less than 1 MiB in a row
};

// Returns the value of an environment variable; nullopt: it is not set, or empty.
using Environment = std::function<std::optional<std::string>(const std::string&)>;

// Reads the environment as huggingface_hub does: HF_ENDPOINT; HF_TOKEN, else the file
// HF_TOKEN_PATH, else HF_HOME/token; HF_HUB_CACHE, else HF_HOME/hub; HF_HUB_OFFLINE. HF_HOME is
// XDG_CACHE_HOME/huggingface, else HOME/.cache/huggingface. SSL_CERT_FILE names the authorities.
// FAILED_PRECONDITION names the variable: an endpoint that is no http or https URL of a host and
// a path, a token that is no visible ASCII of at most 1,024 bytes, no folder for the cache.
absl::StatusOr<HubSettings> ReadHubSettings(const Environment& environment);

}  // namespace lowkey

#endif  // LOWKEY_SERVER_HUB_HUB_SETTINGS_H_
