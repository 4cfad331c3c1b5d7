#include "server/front/front.h"

#include <unistd.h>

#include <algorithm>
#include <map>
#include <utility>

#include "absl/time/clock.h"
#include "engine/base/status_macros.h"

namespace lowkey {
namespace {

constexpr absl::Duration kTick = absl::Milliseconds(100);
constexpr absl::Duration kIdlePoll = absl::Milliseconds(5);
constexpr size_t kReadBytes = 64 << 10;
constexpr int kMaxHandshakes = 64;  // at once and per loop; signatures are dear

}  // namespace

struct Front::Shard {
  explicit Shard(std::unique_ptr<EventLoop> its_loop, const FrontOptions& options,
                 ByteBudget& answer_budget)
      : loop(std::move(its_loop)),
        context{*loop,
                options.limits,
                answer_budget,
                options.on_refusal,
                [this](Connection& connection) { Forget(connection); },
                [this](Connection& connection) { FlushSoon(connection); },
                std::string(kReadBytes, '\0')} {}

  // The connection may be the caller, so that it is destroyed a little later.
  void Forget(Connection& connection) {
    const auto found = ids.find(&connection);
    if (found == ids.end()) return;
    const uint64_t id = found->second;
    ids.erase(found);
    peers->Remove(connection.peer().network);
    loop->Post([this, id] { connections.erase(id); });
  }

  void FlushSoon(Connection& connection) {
    const auto found = ids.find(&connection);
    if (found == ids.end()) return;
    loop->Post([this, id = found->second] {
      if (const auto it = connections.find(id); it != connections.end()) it->second->Flush();
    });
  }

  const std::unique_ptr<EventLoop> loop;
  Connection::Context context;
  PeerTable* peers = nullptr;
  // By number, in the order of their acceptance; `ids` has those that are not closed.
  std::map<uint64_t, std::unique_ptr<Connection>> connections;
  std::map<const Connection*, uint64_t> ids;
  uint64_t next_id = 1;
};

Front::Front(const Router& router, const FrontOptions& options)
    : router_(router),
      options_(options),
      peers_(ConnectionsWithinLimits(options.max_connections),
             options.max_connections_per_peer > 0
                 ? options.max_connections_per_peer
                 : std::max(1, ConnectionsWithinLimits(options.max_connections) / 2)),
      answer_budget_(options.answer_bytes),
      tls_(options.tls) {}

absl::StatusOr<std::unique_ptr<Front>> Front::Start(const Router& router,
                                                    const FrontOptions& options) {
  std::unique_ptr<Front> front(new Front(router, options));
  if (front->tls_.is_encrypted()) LK_RETURN_IF_ERROR(front->tls_.Get().status());
  LK_RETURN_IF_ERROR(front->StartLoops());
  LK_ASSIGN_OR_RETURN(front->listener_, Listener::Start(
                                            front->first_loop(), options.host, options.port,
                                            [front = front.get()](int socket, Peer peer) {
                                              front->Accept(socket, std::move(peer));
                                            },
                                            options.on_refusal));
  front->port_ = front->listener_->port();
  return front;
}

EventLoop& Front::first_loop() { return *shards_.front()->loop; }

absl::Status Front::StartLoops() {
  for (int i = 0; i < options_.n_loops; ++i) {
    LK_ASSIGN_OR_RETURN(std::unique_ptr<EventLoop> loop, EventLoop::Start());
    shards_.push_back(std::make_unique<Shard>(std::move(loop), options_, answer_budget_));
    Shard& shard = *shards_.back();
    shard.peers = &peers_;
    shard.loop->Post([this, &shard] {
      shard.loop->Every(kTick, [this, &shard](absl::Time now) { OnTick(shard, now); });
    });
  }
  return absl::OkStatus();
}

Front::~Front() {
  Close();
  for (const std::unique_ptr<Shard>& shard : shards_) shard->loop->Stop();
}

void Front::Close() {
  listener_.reset();
  for (const std::unique_ptr<Shard>& shard : shards_) {
    // Handlers and transports end on their loop's thread.
    shard->loop->PostAndWait([&shard] {
      shard->ids.clear();
      shard->connections.clear();
    });
  }
}

void Front::Accept(int socket, Peer peer) {
  Shard& shard = *shards_[next_shard_++ % shards_.size()];
  const auto tls = tls_.Get();
  const std::shared_ptr<const TlsContext> context = tls.ok() ? *tls : nullptr;
  if (shard.loop->IsThisThread()) {
    return Open(shard, MakeTransport(*shard.loop, socket, context), peer);
  }
  shard.loop->Post([this, &shard, socket, context, peer = std::move(peer)] {
    Open(shard, MakeTransport(*shard.loop, socket, context), peer);
  });
}

void Front::Open(Shard& shard, std::unique_ptr<Transport> transport, const Peer& peer) {
  const auto handshakes = std::count_if(shard.ids.begin(), shard.ids.end(), [](const auto& entry) {
    return entry.first->is_handshaking();
  });
  std::optional<NetworkRefusal> bound = peers_.Add(peer.network);
  if (bound.has_value() && EvictFor(shard, peer, *bound)) bound = peers_.Add(peer.network);
  const bool is_full = tls_.is_encrypted() && handshakes >= kMaxHandshakes;
  if (!bound.has_value() && is_full) {
    peers_.Remove(peer.network);
    bound = NetworkRefusal::kConnections;
  }
  if (bound.has_value()) {
    options_.on_refusal(*bound);
    return transport->Abort();
  }
  const uint64_t id = shard.next_id++;
  auto connection =
      std::make_unique<Connection>(shard.context, router_, std::move(transport), peer, absl::Now());
  Connection& opened = *connection;
  shard.connections.emplace(id, std::move(connection));
  shard.ids.emplace(&opened, id);
  opened.Advance();
}

// Makes room for a new connection: the oldest one that never showed valid credentials goes, of the
// same network where that one's bound is reached. A connection with an exchange stays.
bool Front::EvictFor(Shard& shard, const Peer& peer, NetworkRefusal bound) {
  for (const auto& [id, connection] : shard.connections) {
    if (!shard.ids.contains(connection.get())) continue;
    const bool is_stranger = !connection->is_trusted() && connection->is_idle();
    const bool is_of_peer = connection->peer().network == peer.network;
    if (!is_stranger || (bound == NetworkRefusal::kPeerConnections && !is_of_peer)) continue;
    connection->Abort(bound);
    return true;
  }
  return false;
}

void Front::OnTick(Shard& shard, absl::Time now) {
  std::vector<Connection*> open;
  open.reserve(shard.ids.size());
  for (const auto& [connection, id] : shard.ids) open.push_back(shard.connections.at(id).get());
  for (Connection* connection : open) connection->OnTick(now);
}

void Front::BeginDrain() {
  for (const std::unique_ptr<Shard>& shard : shards_) {
    shard->loop->Post([&shard = *shard] {
      std::vector<Connection*> open;
      for (const auto& [connection, id] : shard.ids) open.push_back(shard.connections.at(id).get());
      for (Connection* connection : open) connection->BeginDrain();
    });
  }
}

bool Front::AwaitIdle(absl::Time deadline) {
  while (true) {
    bool is_idle = true;
    for (const std::unique_ptr<Shard>& shard : shards_) {
      shard->loop->PostAndWait([&] {
        for (const auto& [connection, id] : shard->ids) is_idle &= connection->is_idle();
      });
    }
    if (is_idle || absl::Now() >= deadline) return is_idle;
    absl::SleepFor(kIdlePoll);
  }
}

}  // namespace lowkey
