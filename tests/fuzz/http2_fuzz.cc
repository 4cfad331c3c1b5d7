// One input is what an HTTP/2 client sends: a byte that chooses what handlers do, a byte with the
// size of the pieces, then the frames after the preface. Requests that are gRPC's are calls of
// health, reflection and a method that echoes its message. Nothing may be left of any of them.

#include <google/protobuf/descriptor.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "absl/status/statusor.h"
#include "engine/base/status_macros.h"
#include "lowkey/v1/generation.pb.h"
#include "server/http/session.h"
#include "server/rpc/call.h"
#include "server/rpc/health.h"
#include "server/rpc/metadata.h"
#include "server/rpc/reflection.h"
#include "server/rpc/single_request.h"

namespace lowkey {
namespace {

constexpr int64_t kBudgetBytes = 1 << 20;

// Answers as the bits of `mode` say.
class Handler final : public HttpHandler {
 public:
  Handler(HttpExchange& exchange, uint8_t mode, int& n_live)
      : exchange_(exchange), mode_(mode), n_live_(n_live) {
    ++n_live_;
  }
  ~Handler() override { --n_live_; }

  void OnHead() override {
    LK_CHECK(!exchange_.head().path.empty());
    if (mode_ & 1) {
      held_ = exchange_.HoldBody(100'000);
      if (held_ == nullptr) return exchange_.StartAndEnd(503, {});
      exchange_.AllowBody(100'000);
    }
    if (mode_ & 2) return exchange_.StartAndEnd(401, {{"a", "b"}});
    if (mode_ & 4) exchange_.Reset(HttpReset::kCancel);
    exchange_.Start(200, {{"a", "b"}});
    if (mode_ & 8) exchange_.Trust();
  }
  void OnBody(std::string_view bytes) override {
    LK_CHECK(!bytes.empty() && !has_body_ended_);
    exchange_.AllowBody(bytes.size());
    exchange_.Write(mode_ & 16 ? std::string(50'000, 'x') : std::string(bytes));
  }
  void OnBodyEnd() override {
    LK_CHECK(!has_body_ended_);
    has_body_ended_ = true;
    exchange_.End(mode_ & 32 ? HttpFields{{"c", "d"}} : HttpFields());
  }
  void OnSent() override {
    if (mode_ & 64) exchange_.End({});
  }

 private:
  HttpExchange& exchange_;
  const uint8_t mode_;
  int& n_live_;
  std::shared_ptr<const HeldBytes> held_;
  bool has_body_ended_ = false;
};

// The calls' services, the same for every input.
struct Services {
  Services() : health(registry), rpc{registry, [](NetworkRefusal) {}} {
    const auto& generation =
        *v1::GenerateRequest::descriptor()->file()->FindServiceByName("Generation");
    registry.Add(*generation.FindMethodByName("Generate"),
                 MakeImmediateHandler([](const std::string& message) { return message; }));
    AddReflection(registry);
  }

  RpcRegistry registry;
  const RpcHealth health;
  const RpcServices rpc;
  const std::unique_ptr<EventLoop> loop = *EventLoop::Start();
};

class Host final : public HttpSessionHost {
 public:
  explicit Host(uint8_t mode) : mode_(mode) {}

  std::unique_ptr<HttpHandler> MakeHandler(HttpExchange& exchange) override {
    static const Services& services = *new Services();
    const HttpHead& head = exchange.head();
    if (!IsRpcContentType(head.One("content-type").value_or(""))) {
      return std::make_unique<Handler>(exchange, mode_, n_live_);
    }
    RpcContext context;
    context.method = head.path;
    return std::make_unique<RpcCall>(services.rpc, exchange, *services.loop, std::move(context));
  }
  void WantsFlush() override {}
  void CountRefusal(NetworkRefusal) override {}

  int n_live() const { return n_live_; }

 private:
  const uint8_t mode_;
  int n_live_ = 0;
};

void Run(uint8_t mode, size_t piece, std::string_view input) {
  Host host(mode);
  HttpLimits limits;
  limits.max_connection_answer_bytes = 200'000;
  HttpBudgets budgets{ByteBudget(kBudgetBytes), ByteBudget(kBudgetBytes)};
  absl::Time now = absl::FromUnixSeconds(1'000'000);
  std::unique_ptr<HttpSession> session = MakeHttp2Session(host, limits, budgets, now);
  const std::string bytes = std::string(kHttp2Preface) + std::string(input);
  for (std::string_view left = bytes; !left.empty() && !session->is_over();) {
    session->Receive(left.substr(0, piece), now);
    left.remove_prefix(std::min(piece, left.size()));
    LK_CHECK(session->n_exchanges() <= limits.max_streams);
    now += absl::Milliseconds(50);
    std::string out;
    if (mode & 128 || !session->wants_input()) session->Produce(1000, out, now);
    LK_CHECK(out.size() <= 1000);
    if (!session->is_over()) session->OnTick(now);
  }
  if (session->is_over()) LK_CHECK(host.n_live() == 0 && !session->wants_input());
  session.reset();
  LK_CHECK(host.n_live() == 0);
  LK_CHECK(budgets.answers.left() == kBudgetBytes && budgets.bodies.left() == kBudgetBytes);
}

}  // namespace
}  // namespace lowkey

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const std::string_view input(reinterpret_cast<const char*>(data) + 2, size - 2);
  lowkey::Run(data[0], size_t{1} + data[1] * size_t{16}, input);
  return 0;
}
