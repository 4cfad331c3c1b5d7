#include "server/front/front.h"

#include <algorithm>
#include <atomic>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "absl/time/clock.h"
#include "engine/base/clock.h"
#include "engine/base/contained.h"
#include "engine/base/status_macros.h"
#include "server/front/strangers.h"

namespace lowkey {
namespace {

constexpr absl::Duration kTick = absl::Milliseconds(100);
constexpr absl::Duration kIdlePoll = absl::Milliseconds(5);
constexpr size_t kReadBytes = 16 << 10;  // hundreds of requests, and a record of TLS

}  // namespace

struct Front::Shard {
  struct Entry {
    std::unique_ptr<Connection> connection;
    PeerSeat seat;
  };

  Shard(std::unique_ptr<EventLoop> its_loop, const FrontOptions& options, HttpBudgets& budgets)
      : loop(std::move(its_loop)),
        context{*loop,
                options.limits,
                budgets,
                options.on_refusal,
                [this](Connection& connection) { Forget(connection); },
                [this](Connection& connection) { FlushSoon(connection.id()); },
                [this](Connection& connection) { return MayShakeHands(connection.id()); },
                [this] { OnHandshakeEnd(); },
                std::string(kReadBytes, '\0')},
        on_loop_delay(options.on_loop_delay) {}

  void Open(const Router& router, std::unique_ptr<Transport> transport, const Peer& peer,
            PeerSeat seat) {
    const uint64_t id = next_id++;
    ++n_opened;
    auto connection = std::make_unique<Connection>(context, router, std::move(transport), peer, id);
    Connection& opened = *connection;
    const bool is_added = RunContained([&] {
      strangers.Add(id, peer.network);
      entries.emplace(id, Entry{std::move(connection), std::move(seat)});
    });
    if (!is_added) return strangers.Remove(id, peer.network);
    opened.Begin();
  }

  // The connection may be the caller: the next tick destroys it.
  void Forget(Connection& connection) {
    strangers.Remove(connection.id(), connection.peer().network);
    queued.erase(connection.id());
    entries.at(connection.id()).seat.Leave();
  }

  void FlushSoon(uint64_t id) {
    loop->Post([this, id] {
      if (const auto it = entries.find(id); it != entries.end()) it->second.connection->Flush();
    });
  }

  bool MayShakeHands(uint64_t id) {
    if (n_handshakes >= context.limits.max_handshakes) {
      queued.insert(id);
      return false;
    }
    ++n_handshakes;
    return true;
  }
  void OnHandshakeEnd() {
    --n_handshakes;
    if (queued.empty()) return;
    // Without memory the next tick goes on.
    RunContained([this] { loop->Post([this] { AdvanceQueued(); }); });
  }
  void AdvanceQueued() {
    while (!queued.empty() && n_handshakes < context.limits.max_handshakes) {
      entries.at(queued.extract(queued.begin()).value()).connection->Advance();
    }
  }

  // Makes room for a new connection: the oldest one goes that never showed valid credentials, of
  // the same network where that one's bound is reached.
  bool EvictFor(const Peer& peer, NetworkRefusal bound) {
    const bool is_of_all = bound != NetworkRefusal::kPeerConnections;
    while (const auto id = is_of_all ? strangers.Oldest() : strangers.OldestOf(peer.network)) {
      Connection& connection = *entries.at(*id).connection;
      const bool is_stranger = !connection.is_trusted();
      strangers.Remove(*id, connection.peer().network);
      if (!is_stranger) continue;
      connection.Abort(bound);
      return true;
    }
    return false;
  }

  void OnTick(absl::Time now) {
    if (on_loop_delay != nullptr) on_loop_delay(loop->lateness());
    context.is_crowded = !queued.empty();
    int64_t n_of_http1 = 0, n_of_http2 = 0, n_of_neither = 0, n_requests = 0;
    for (auto it = entries.begin(); it != entries.end();) {
      Connection& connection = *it->second.connection;
      if (connection.is_closed()) {
        it = entries.erase(it);
      } else {
        connection.OnTick(now);
        const std::optional<bool> is_http2 = connection.is_http2();
        ++(!is_http2.has_value() ? n_of_neither : *is_http2 ? n_of_http2 : n_of_http1);
        n_requests += static_cast<int64_t>(connection.n_streams());
        ++it;
      }
    }
    n_http1 = n_of_http1;
    n_http2 = n_of_http2;
    n_undecided = n_of_neither;
    n_streams = n_requests;
    AdvanceQueued();
  }

  void Close() {
    queued.clear();
    entries.clear();
  }

  bool AreAll(bool (Connection::*is_so)() const) const {
    return std::all_of(entries.begin(), entries.end(),
                       [is_so](const auto& entry) { return (*entry.second.connection.*is_so)(); });
  }

  const std::unique_ptr<EventLoop> loop;
  Connection::Context context;
  uint64_t next_id = 1;
  std::map<uint64_t, Entry> entries;  // by number, in the order of their acceptance
  Strangers strangers;
  std::set<uint64_t> queued;  // connections that wait for their turn to shake hands
  int n_handshakes = 0;
  const std::function<void(absl::Duration)> on_loop_delay;
  // For other threads: as of the last tick, and the connections since the start.
  std::atomic<int64_t> n_http1{0}, n_http2{0}, n_undecided{0}, n_streams{0}, n_opened{0};
};

Front::Front(const Router& router, HttpBudgets& budgets, const FrontOptions& options)
    : router_(router),
      options_(options),
      peers_(ConnectionsWithinLimits(options.max_connections),
             options.max_connections_per_peer > 0
                 ? options.max_connections_per_peer
                 : std::max(1, ConnectionsWithinLimits(options.max_connections) / 2)),
      budgets_(budgets),
      tls_(options.tls) {}

absl::StatusOr<std::unique_ptr<Front>> Front::Start(const Router& router, HttpBudgets& budgets,
                                                    const FrontOptions& options) {
  std::unique_ptr<Front> front(new Front(router, budgets, options));
  if (front->tls_.is_encrypted()) LK_RETURN_IF_ERROR(front->tls_.Get().status());
  LK_RETURN_IF_ERROR(front->StartLoops());
  LK_ASSIGN_OR_RETURN(front->listener_, Listener::Start(
                                            front->first_loop(), options.host, options.port,
                                            [front = front.get()](OwnedSocket socket, Peer peer) {
                                              front->Accept(std::move(socket), peer);
                                            },
                                            options.on_refusal));
  front->port_ = front->listener_->port();
  return front;
}

EventLoop& Front::first_loop() { return *shards_.front()->loop; }

absl::Status Front::StartLoops() {
  for (int i = 0; i < options_.n_loops; ++i) {
    LK_ASSIGN_OR_RETURN(std::unique_ptr<EventLoop> loop, EventLoop::Start());
    shards_.push_back(std::make_unique<Shard>(std::move(loop), options_, budgets_));
    Shard& shard = *shards_.back();
    shard.loop->Post(
        [&shard] { shard.loop->Every(kTick, [&shard](absl::Time now) { shard.OnTick(now); }); });
  }
  return absl::OkStatus();
}

Front::~Front() {
  Close();
  for (const std::unique_ptr<Shard>& shard : shards_) shard->loop->Stop();
}

void Front::Close() {
  if (listener_ != nullptr) StopAccepting();
  for (const std::unique_ptr<Shard>& shard : shards_) {
    // Handlers and transports end on their loop's thread.
    shard->loop->PostAndWait([&shard] { shard->Close(); });
  }
  listener_.reset();  // no handler asks it any more
}

void Front::PassLoops() {
  for (const std::unique_ptr<Shard>& shard : shards_) shard->loop->PostAndWait([] {});
}

void Front::Accept(OwnedSocket socket, const Peer& peer) {
  Shard& shard = *shards_[next_shard_++ % shards_.size()];
  const auto tls = tls_.Get();
  const std::shared_ptr<const TlsContext> context = tls.ok() ? *tls : nullptr;
  if (shard.loop->IsThisThread()) return Open(shard, std::move(socket), context, peer);
  shard.loop->Post([this, &shard, socket = std::make_shared<OwnedSocket>(std::move(socket)),
                    context, peer] { Open(shard, std::move(*socket), context, peer); });
}

void Front::Open(Shard& shard, OwnedSocket socket, const std::shared_ptr<const TlsContext>& tls,
                 const Peer& peer) {
  std::unique_ptr<Transport> transport = MakeTransport(*shard.loop, std::move(socket), tls);
  PeerSeat seat;
  std::optional<NetworkRefusal> bound = seat.Take(peers_, peer.network);
  if (bound.has_value() && shard.EvictFor(peer, *bound)) bound = seat.Take(peers_, peer.network);
  if (!bound.has_value()) {
    return shard.Open(router_, std::move(transport), peer, std::move(seat));
  }
  options_.on_refusal(*bound);
  transport->Abort();
}

NetworkStats Front::Stats() const {
  NetworkStats stats;
  for (const std::unique_ptr<Shard>& shard : shards_) {
    stats.n_http1 += shard->n_http1;
    stats.n_http2 += shard->n_http2;
    stats.n_undecided += shard->n_undecided;
    stats.n_streams += shard->n_streams;
    stats.n_opened += shard->n_opened;
  }
  stats.body_bytes = budgets_.bodies.held();
  stats.answer_bytes = budgets_.answers.held();
  if (options_.tls != nullptr) stats.certificate_end = options_.tls->Get()->certificate_end;
  return stats;
}

void Front::StopAccepting() { listener_->Close(); }

void Front::BeginDrain() {
  for (const std::unique_ptr<Shard>& shard : shards_) {
    shard->loop->Post([&shard = *shard] {
      for (const auto& [id, entry] : shard.entries) entry.connection->BeginDrain();
    });
  }
}

bool Front::AwaitAll(bool (Connection::*is_so)() const, absl::Time deadline) {
  while (true) {
    bool are_all = true;
    for (const std::unique_ptr<Shard>& shard : shards_) {
      shard->loop->PostAndWait([&] { are_all = are_all && shard->AreAll(is_so); });
    }
    if (are_all || SteadyNow() >= deadline) return are_all;
    absl::SleepFor(kIdlePoll);
  }
}

bool Front::AwaitTold(absl::Time deadline) { return AwaitAll(&Connection::has_told, deadline); }

bool Front::AwaitIdle(absl::Time deadline) { return AwaitAll(&Connection::is_idle, deadline); }

}  // namespace lowkey
