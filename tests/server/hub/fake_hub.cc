#include "tests/server/hub/fake_hub.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <random>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "server/hub/digest.h"
#include "server/hub/listing.h"

namespace lowkey {
namespace {

bool SendAll(int socket, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(n));
  }
  return true;
}

std::string DigestOf(const std::string& bytes, bool is_sha256) {
  HubFile file;
  file.n_bytes = static_cast<int64_t>(bytes.size());
  file.is_sha256 = is_sha256;
  Digest digest(file);
  digest.Add(bytes);
  return digest.Take();
}

HubRequest ParseRequest(const std::string& head) {
  const std::vector<std::string> lines = absl::StrSplit(head, "\r\n");
  const std::vector<std::string> words = absl::StrSplit(lines[0], ' ');
  HubRequest request;
  if (words.size() > 1) request.path = words[1];
  for (size_t i = 1; i < lines.size(); ++i) {
    const std::pair<std::string, std::string> field =
        absl::StrSplit(lines[i], absl::MaxSplits(": ", 1));
    request.fields[absl::AsciiStrToLower(field.first)] = field.second;
  }
  return request;
}

}  // namespace

std::string HubRequest::Field(const std::string& name) const {
  const auto it = fields.find(name);
  return it == fields.end() ? "" : it->second;
}

size_t HubRequest::FirstByte() const {
  const std::string range = Field("range");  // "bytes=12-"
  size_t first = 0;
  if (range.size() > 7) (void)absl::SimpleAtoi(range.substr(6, range.size() - 7), &first);
  return first;
}

std::string Answer(int status, const std::string& body, const std::string& fields) {
  return absl::StrCat("HTTP/1.1 ", status, " Words\r\nContent-Length: ", body.size(), "\r\n",
                      fields, "\r\n", body);
}

std::string NoiseBytes(size_t n_bytes, uint32_t seed) {
  std::mt19937 random(seed);
  std::string bytes;
  while (bytes.size() < n_bytes) bytes += static_cast<char>(random());
  return bytes;
}

std::string Sha256(const std::string& bytes) { return DigestOf(bytes, true); }
std::string GitSha1(const std::string& bytes) { return DigestOf(bytes, false); }

FakeHub::FakeHub() {
  listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  if (bind(listener_, reinterpret_cast<sockaddr*>(&address), size) != 0 ||
      listen(listener_, 64) != 0 ||
      getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    std::perror("FakeHub");
    std::abort();
  }
  port_ = ntohs(address.sin_port);
  setenv("NO_PROXY", "127.0.0.1", 1);
  thread_ = std::thread([this] { Run(); });
}

FakeHub::~FakeHub() {
  is_stopping_ = true;
  thread_.join();
  for (std::thread& connection : connections_) connection.join();
  close(listener_);
}

std::string FakeHub::endpoint() const { return absl::StrCat("http://127.0.0.1:", port_); }

HubSettings FakeHub::Settings(const std::string& cache) const {
  HubSettings settings;
  settings.endpoint = endpoint();
  settings.cache = cache;
  settings.first_pause = absl::Milliseconds(1);
  settings.stall_timeout = absl::Seconds(2);
  return settings;
}

void FakeHub::Add(const std::string& path, const std::string& bytes) {
  absl::MutexLock lock(&mutex_);
  files_[path] = {bytes, bytes};
}

void FakeHub::Corrupt(const std::string& path, const std::string& bytes) {
  absl::MutexLock lock(&mutex_);
  files_[path].sent = bytes;
}

void FakeHub::SetScript(Script script) {
  absl::MutexLock lock(&mutex_);
  script_ = std::move(script);
}

std::vector<HubRequest> FakeHub::requests() const {
  absl::MutexLock lock(&mutex_);
  return requests_;
}

size_t FakeHub::n_requests(const std::string& part_of_path) const {
  size_t n = 0;
  for (const HubRequest& request : requests()) n += absl::StrContains(request.path, part_of_path);
  return n;
}

std::string FakeHub::Listing() const {
  std::vector<HubFile> files;
  absl::MutexLock lock(&mutex_);
  for (const auto& [path, file] : files_) {
    const bool is_sha256 = !absl::EndsWith(path, ".json");
    files.push_back({path, static_cast<int64_t>(file.listed.size()),
                     DigestOf(file.listed, is_sha256), is_sha256});
  }
  return ListingText(files);
}

HubAnswer FakeHub::Right(const HubRequest& request) const {
  if (absl::StrContains(request.path, "/revision/")) {
    return {Answer(200, absl::StrCat("{\"sha\": \"", kCommit, "\", \"private\": false}"))};
  }
  if (absl::StrContains(request.path, "/tree/")) return {Answer(200, Listing())};
  const std::string begin = absl::StrCat("/acme/model/resolve/", kCommit, "/");
  absl::MutexLock lock(&mutex_);
  const auto it = absl::StartsWith(request.path, begin)
                      ? files_.find(request.path.substr(begin.size()))
                      : files_.end();
  if (it == files_.end()) return {Answer(404, "no such file")};
  const std::string& bytes = it->second.sent;
  const size_t first = request.FirstByte();
  if (first == 0) return {Answer(200, bytes)};
  if (first >= bytes.size()) return {Answer(416, "")};
  return {Answer(206, bytes.substr(first),
                 absl::StrCat("Content-Range: bytes ", first, "-", bytes.size() - 1, "/",
                              bytes.size(), "\r\n"))};
}

void FakeHub::Run() {
  while (!is_stopping_) {
    pollfd poll_listener = {listener_, POLLIN, 0};
    if (poll(&poll_listener, 1, 20) <= 0) continue;
    const int socket = accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (socket >= 0) connections_.emplace_back([this, socket] { Serve(socket); });
  }
}

void FakeHub::Serve(int socket) {
  std::string head;
  char buffer[4096];
  while (!absl::StrContains(head, "\r\n\r\n")) {
    const ssize_t n = recv(socket, buffer, sizeof(buffer), 0);
    if (n <= 0) break;
    head.append(buffer, static_cast<size_t>(n));
  }
  const HubRequest request = ParseRequest(head);
  std::optional<HubAnswer> answer;
  {
    int n_before = 0;
    Script script;
    {
      absl::MutexLock lock(&mutex_);
      for (const HubRequest& earlier : requests_) n_before += earlier.path == request.path;
      requests_.push_back(request);
      script = script_;
    }
    if (script) answer = script(request, n_before);
  }
  if (!answer.has_value()) answer = Right(request);
  const size_t body = answer->bytes.find("\r\n\r\n");
  const bool is_file = absl::StrContains(request.path, "/resolve/") && body != std::string::npos;
  const size_t n_bytes = is_file ? answer->bytes.size() - body - 4 : 0;
  n_file_bytes_ += n_bytes;  // before the client can know that it has them
  if (!SendAll(socket, answer->bytes)) n_file_bytes_ -= n_bytes;
  while (!answer->endless.empty() && !is_stopping_ && SendAll(socket, answer->endless)) {
  }
  while (answer->stays_open && !is_stopping_) {
    pollfd poll_client = {socket, POLLIN, 0};
    if (poll(&poll_client, 1, 20) > 0) break;
  }
  const linger reset = {1, 0};
  if (answer->resets) setsockopt(socket, SOL_SOCKET, SO_LINGER, &reset, sizeof(reset));
  shutdown(socket, SHUT_WR);
  close(socket);
}

}  // namespace lowkey
