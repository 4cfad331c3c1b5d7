#ifndef LOWKEY_TESTS_SERVER_RPC_FAKE_STREAM_H_
#define LOWKEY_TESTS_SERVER_RPC_FAKE_STREAM_H_

#include <cstddef>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/status_macros.h"
#include "server/rpc/stream.h"

namespace lowkey {

// A call without a connection: keeps what a handler writes.
class FakeRpcStream final : public RpcStream {
 public:
  // Handlers that ask for a loop need one.
  explicit FakeRpcStream(EventLoop* loop = nullptr) : loop_(loop) {}

  const RpcContext& context() const override { return context_; }
  EventLoop& loop() const override {
    LK_CHECK(loop_ != nullptr);
    return *loop_;
  }
  std::optional<std::string_view> Metadata(std::string_view name) const override {
    const auto it = metadata.find(name);
    return it == metadata.end() ? std::nullopt : std::optional<std::string_view>(it->second);
  }
  void Write(std::string_view message) override { written.emplace_back(message); }
  void Finish(const absl::Status& status) override {
    LK_CHECK(!finished.has_value());
    finished = status;
  }
  size_t unsent_bytes() const override { return unsent; }

  std::vector<std::string> written;
  std::optional<absl::Status> finished;
  size_t unsent = 0;
  std::map<std::string, std::string, std::less<>> metadata;

 private:
  EventLoop* const loop_;
  const RpcContext context_;
};

}  // namespace lowkey

#endif  // LOWKEY_TESTS_SERVER_RPC_FAKE_STREAM_H_
