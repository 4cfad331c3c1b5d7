#ifndef LOWKEY_SERVER_FRONT_CONNECTION_H_
#define LOWKEY_SERVER_FRONT_CONNECTION_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "absl/time/time.h"
#include "server/front/connection_limits.h"
#include "server/http/session.h"
#include "server/net/event_loop.h"
#include "server/net/peer.h"
#include "server/net/refusals.h"
#include "server/net/transport.h"

namespace lowkey {

// Makes the handlers of requests. Thread-safe; outlives its connections.
class Router {
 public:
  virtual ~Router() = default;
  virtual std::unique_ptr<HttpHandler> MakeHandler(HttpExchange& exchange, EventLoop& loop,
                                                   const Peer& peer) const = 0;
};

// Joins a transport with the protocol that is spoken over it. It belongs to its loop.
class Connection final : private HttpSessionHost {
 public:
  // Context holds what the connections of one loop share. Everything outlives them.
  struct Context {
    EventLoop& loop;
    const ConnectionLimits& limits;
    HttpBudgets& budgets;
    OnRefusal on_refusal;
    // Called once, when the connection has closed; it may be destroyed after the call to it that
    // is running.
    std::function<void(Connection&)> on_closed;
    // Asks for a call of Flush soon.
    std::function<void(Connection&)> wants_flush;
    // Returns whether the connection may begin TLS now; if not, Advance is called when it may.
    std::function<bool(Connection&)> may_shake_hands;
    std::function<void()> on_handshake_end;
    std::string read_buffer;  // filled at most once before other connections have their turn
    bool is_crowded = false;  // connections wait for their turn to shake hands
  };

  Connection(Context& context, const Router& router, std::unique_ptr<Transport> transport,
             Peer peer, uint64_t id);
  ~Connection();

  // The methods below go on as far as the transport lets them. They call on_closed at the
  // connection's end, perhaps at once. A lack of memory ends the connection and is not thrown.
  void Begin();
  void Advance();
  void Flush();
  void OnTick(absl::Time now);
  void BeginDrain();
  // Ends the connection without another byte.
  void Abort(NetworkRefusal reason);

  const Peer& peer() const { return peer_; }
  uint64_t id() const { return id_; }
  bool is_closed() const { return state_ == State::kClosed; }
  // Returns whether the connection speaks HTTP/2; nullopt before that is known.
  std::optional<bool> is_http2() const { return is_http2_; }
  // Requests that have begun and are not answered to the end.
  size_t n_streams() const { return session_ == nullptr ? 0 : session_->n_exchanges(); }
  bool is_trusted() const { return session_ != nullptr && session_->is_trusted(); }
  // Returns whether the client knows of the drain, if one was begun (HttpSession::has_told).
  bool has_told() const { return session_ == nullptr || !is_telling_ || session_->has_told(); }
  // Nothing runs, and once it is drained, the client has been told.
  bool is_idle() const {
    return session_ == nullptr || (!is_drained_ && session_->n_exchanges() == 0);
  }

 private:
  enum class State {
    kSilent,  // under TLS: no byte has come
    kQueued,  // waits for its turn to shake hands
    kHandshake,
    kOpen,
    kLingering,
    kClosed,
  };

  std::unique_ptr<HttpHandler> MakeHandler(HttpExchange& exchange) override;
  void WantsFlush() override;
  void CountRefusal(NetworkRefusal reason) override { context_.on_refusal(reason); }

  // Runs the work of an entry point, waits for more and tells the owner of a close.
  template <typename Work>
  void Enter(const Work& work);
  void AskForTurn();
  void ShakeHands();
  void EndHandshake();
  void BeginSession(bool is_http2);
  void ReadAvailable();
  void TakeBytes(std::string_view bytes);
  void TakeFirstBytes(std::string_view bytes);
  void DrainSession();
  void WriteAvailable();
  void WaitForMore();
  void DropAvailable();
  void Close();
  bool is_over() const { return session_ != nullptr && session_->is_over(); }

  Context& context_;
  const Router& router_;
  std::unique_ptr<Transport> transport_;
  const Peer peer_;
  const uint64_t id_;

  State state_;
  absl::Time state_since_, last_active_, last_written_;
  std::unique_ptr<HttpSession> session_;  // null until the protocol is known
  std::optional<bool> is_http2_;
  std::string first_bytes_;  // while they could be HTTP/2's preface
  std::string output_;
  size_t n_written_ = 0;  // of output_
  bool is_reading_over_ = false, is_flush_wanted_ = false, is_drained_ = false;
  bool is_telling_ = false;  // the session was told to drain
  bool is_busy_ = false;     // within an entry point, which flushes at its end
};

}  // namespace lowkey

#endif  // LOWKEY_SERVER_FRONT_CONNECTION_H_
