#ifndef LOWKEY_TESTS_SERVER_HUB_FAKE_HUB_H_
#define LOWKEY_TESTS_SERVER_HUB_FAKE_HUB_H_

#include <atomic>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "server/hub/hub_settings.h"

namespace lowkey {

// A request that a hub got.
struct HubRequest {
  std::string path;                           // with the query
  std::map<std::string, std::string> fields;  // by lower-case name

  std::string Field(const std::string& name) const;
  // The first byte of a Range; 0: there is none.
  size_t FirstByte() const;
};

// Bytes to send as they are, in answer to a request; then the connection is closed.
struct HubAnswer {
  std::string bytes = {};
  // Sends these after `bytes`, again and again, until the client goes.
  std::string endless = {};
  bool resets = false;      // ends the connection with a reset
  bool stays_open = false;  // sends nothing more, and waits for the client to go
};

// A model hub on a port of the loopback, in a thread of its own, that answers right unless a test
// says otherwise. It serves one repository, acme/model, at one commit.
class FakeHub {
 public:
  static constexpr char kCommit[] = "0123456789abcdef0123456789abcdef01234567";

  FakeHub();
  ~FakeHub();

  std::string endpoint() const;
  // Settings for this hub and a cache folder, with pauses and limits fit for tests.
  HubSettings Settings(const std::string& cache) const;

  // Adds a file; those that end in .json are listed with git's digest, others with SHA-256.
  void Add(const std::string& path, const std::string& bytes);
  // Replaces what a file's download sends, but not what is listed.
  void Corrupt(const std::string& path, const std::string& bytes);

  // Decides about each request before the hub does; nullopt: the hub answers right.
  using Script = std::function<std::optional<HubAnswer>(const HubRequest&, int n_before)>;
  // `n_before` counts earlier requests of this path.
  void SetScript(Script script);

  std::vector<HubRequest> requests() const;
  size_t n_requests(const std::string& part_of_path) const;
  // Bytes of files that were sent, heads not counted.
  size_t n_file_bytes() const { return n_file_bytes_; }

  // The right answer to a request, for scripts that change it.
  HubAnswer Right(const HubRequest& request) const;
  std::string Listing() const;

 private:
  struct File {
    std::string listed, sent;
  };
  void Run();
  void Serve(int socket);

  int listener_ = -1, port_ = 0;
  std::atomic<bool> is_stopping_{false};
  std::atomic<size_t> n_file_bytes_{0};
  mutable absl::Mutex mutex_;
  std::map<std::string, File> files_ ABSL_GUARDED_BY(mutex_);
  Script script_ ABSL_GUARDED_BY(mutex_);
  std::vector<HubRequest> requests_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::thread> connections_;
  std::thread thread_;
};

// A whole answer: status line, length, further field lines ("Name: value\r\n"), body.
std::string Answer(int status, const std::string& body, const std::string& fields = "");

// Bytes that no part of repeats.
std::string NoiseBytes(size_t n_bytes, uint32_t seed = 1);

std::string Sha256(const std::string& bytes);
std::string GitSha1(const std::string& bytes);

}  // namespace lowkey

#endif  // LOWKEY_TESTS_SERVER_HUB_FAKE_HUB_H_
