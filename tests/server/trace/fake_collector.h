#ifndef LOWKEY_TESTS_SERVER_TRACE_FAKE_COLLECTOR_H_
#define LOWKEY_TESTS_SERVER_TRACE_FAKE_COLLECTOR_H_

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstdlib>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace lowkey {

// An HTTP server on 127.0.0.1 that takes one request a connection and answers as the test says.
class FakeCollector {
 public:
  struct Post {
    std::string head, body;
  };
  // Returns the bytes of the answer to the n-th request, from 0 on; empty: the connection is
  // closed.
  using Answer = std::function<std::string(size_t n)>;

  static std::string Answered(int code, const std::string& body = "{}",
                              const std::string& fields = "") {
    return absl::StrCat("HTTP/1.1 ", code, " Text\r\nContent-Length: ", body.size(),
                        "\r\nConnection: close\r\n", fields, "\r\n", body);
  }

  explicit FakeCollector(Answer answer) : answer_(std::move(answer)) {
    listener_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    EXPECT_EQ(listen(listener_, 16), 0);
    socklen_t size = sizeof(address);
    getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] { Serve(); });
  }
  ~FakeCollector() {
    shutdown(listener_, SHUT_RDWR);
    thread_.join();
    close(listener_);
  }

  std::string url() const { return absl::StrCat("http://127.0.0.1:", port_, "/v1/traces"); }

  size_t n_posts() const {
    absl::MutexLock lock(&mutex_);
    return posts_.size();
  }
  Post post(size_t i) const {
    absl::MutexLock lock(&mutex_);
    return posts_.at(i);
  }
  // Waits for that many requests, at most 20 seconds.
  bool AwaitPosts(size_t n) const {
    const auto has_n = [this, n]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return posts_.size() >= n; };
    absl::MutexLock lock(&mutex_);
    return mutex_.AwaitWithTimeout(absl::Condition(&has_n), absl::Seconds(20));
  }

 private:
  void Serve() {
    for (size_t n = 0;; ++n) {
      const int client = accept(listener_, nullptr, nullptr);
      if (client < 0) return;
      Post post = Read(client);
      const std::string answer = answer_(n);
      {
        absl::MutexLock lock(&mutex_);
        posts_.push_back(std::move(post));
      }
      if (!answer.empty()) send(client, answer.data(), answer.size(), MSG_NOSIGNAL);
      close(client);
    }
  }

  static Post Read(int client) {
    Post post;
    std::string all;
    char buffer[65536];
    size_t end = std::string::npos, n_body = 0;
    while (end == std::string::npos || all.size() < end + 4 + n_body) {
      const ssize_t n = recv(client, buffer, sizeof(buffer), 0);
      if (n <= 0) break;
      all.append(buffer, static_cast<size_t>(n));
      end = all.find("\r\n\r\n");
      const size_t length = all.find("Content-Length: ");
      if (end != std::string::npos && length < end) {
        n_body = std::strtoul(all.c_str() + length + 16, nullptr, 10);
      }
    }
    post.head = all.substr(0, end);
    if (end != std::string::npos) post.body = all.substr(end + 4);
    return post;
  }

  const Answer answer_;
  int listener_ = -1, port_ = 0;
  mutable absl::Mutex mutex_;
  std::vector<Post> posts_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace lowkey

#endif  // LOWKEY_TESTS_SERVER_TRACE_FAKE_COLLECTOR_H_
