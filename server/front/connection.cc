#include "server/front/connection.h"

#include <algorithm>
#include <new>
#include <utility>

#include "engine/base/clock.h"
#include "engine/base/contained.h"

namespace lowkey {
namespace {

constexpr size_t kWriteBytes = 64 << 10;
// A turn reads so many bytes from a client without credentials. They are about a dozen requests, so
// that hundreds of such clients have their turns within 0.1 s.
constexpr size_t kStrangerReadBytes = 1 << 10;

}  // namespace

Connection::Connection(Context& context, const Router& router, std::unique_ptr<Transport> transport,
                       Peer peer, uint64_t id)
    : context_(context),
      router_(router),
      transport_(std::move(transport)),
      peer_(std::move(peer)),
      id_(id),
      state_(transport_->is_encrypted() ? State::kSilent : State::kHandshake),
      state_since_(SteadyNow()),
      last_active_(state_since_),
      last_written_(state_since_) {}

Connection::~Connection() = default;

std::unique_ptr<HttpHandler> Connection::MakeHandler(HttpExchange& exchange) {
  return router_.MakeHandler(exchange, context_.loop, peer_);
}

void Connection::WantsFlush() {
  if (is_busy_ || is_flush_wanted_) return;
  // Without memory the next tick flushes.
  RunContained([this] {
    context_.wants_flush(*this);
    is_flush_wanted_ = true;
  });
}

template <typename Work>
void Connection::Enter(const Work& work) {
  if (state_ == State::kClosed) return;
  is_busy_ = true;
  try {
    work();
    WaitForMore();
  } catch (const std::bad_alloc&) {
    if (transport_ != nullptr) transport_->Abort();
    Close();
  }
  is_busy_ = false;
  if (state_ == State::kClosed) context_.on_closed(*this);
}

void Connection::Begin() {
  if (state_ == State::kHandshake) return Advance();
  Enter([] {});
}

void Connection::Advance() {
  Enter([this] {
    if (state_ == State::kSilent || state_ == State::kQueued) AskForTurn();
    if (state_ == State::kHandshake) ShakeHands();
    if (state_ == State::kOpen) ReadAvailable();
    if (state_ == State::kOpen) WriteAvailable();
    if (state_ == State::kLingering) DropAvailable();
  });
}

void Connection::Flush() {
  is_flush_wanted_ = false;
  if (state_ != State::kOpen) return;
  Enter([this] { WriteAvailable(); });
}

void Connection::AskForTurn() {
  state_ = context_.may_shake_hands(*this) ? State::kHandshake : State::kQueued;
  state_since_ = SteadyNow();
}

void Connection::ShakeHands() {
  switch (transport_->Handshake()) {
    case IoState::kDone:
      break;
    case IoState::kWait:
      return;
    default:
      context_.on_refusal(NetworkRefusal::kHandshakeFailure);
      return Close();
  }
  EndHandshake();
  state_ = State::kOpen;
  state_since_ = SteadyNow();
  if (transport_->is_encrypted()) BeginSession(transport_->protocol() == "h2");
}

void Connection::EndHandshake() {
  if (state_ == State::kHandshake && transport_->is_encrypted()) context_.on_handshake_end();
}

void Connection::BeginSession(bool is_http2) {
  is_http2_ = is_http2;
  const auto make = is_http2 ? MakeHttp2Session : MakeHttp1Session;
  session_ = make(*this, context_.limits.http, context_.budgets, SteadyNow());
}

void Connection::ReadAvailable() {
  if (is_reading_over_) return;
  if (session_ != nullptr && (session_->is_over() || !session_->wants_input())) return;
  std::string& buffer = context_.read_buffer;
  const size_t n_bytes = is_trusted() ? buffer.size() : kStrangerReadBytes;
  const IoResult result = transport_->Read(buffer.data(), n_bytes);
  if (result.state == IoState::kWait) return;
  if (result.state == IoState::kFailure) return Close();
  last_active_ = SteadyNow();
  if (result.state == IoState::kEnd) {
    is_reading_over_ = true;
    if (session_ == nullptr) return Close();
    session_->ReceiveEnd(last_active_);
    return;
  }
  TakeBytes(std::string_view(buffer.data(), result.n_bytes));
}

void Connection::TakeBytes(std::string_view bytes) {
  if (session_ == nullptr) {
    TakeFirstBytes(bytes);
  } else {
    session_->Receive(bytes, last_active_);
  }
  // The first bytes may come after the drain began, and still have an answer.
  if (session_ != nullptr && is_drained_) DrainSession();
}

void Connection::DrainSession() {
  is_telling_ = true;
  session_->BeginDrain();
}

void Connection::TakeFirstBytes(std::string_view bytes) {
  first_bytes_.append(bytes);
  const size_t n = std::min(first_bytes_.size(), kHttp2Preface.size());
  const bool may_be_http2 =
      kHttp2Preface.substr(0, n) == std::string_view(first_bytes_).substr(0, n);
  if (may_be_http2 && n < kHttp2Preface.size()) return;
  BeginSession(may_be_http2);
  const std::string first = std::exchange(first_bytes_, std::string());
  session_->Receive(first, last_active_);
}

void Connection::WriteAvailable() {
  if (session_ == nullptr || state_ != State::kOpen) return;
  while (true) {
    if (n_written_ == output_.size()) {
      output_ = std::string();
      n_written_ = 0;
      if (session_->has_output()) session_->Produce(kWriteBytes, output_, SteadyNow());
      if (output_.empty()) break;
    }
    const IoResult result = transport_->Write(std::string_view(output_).substr(n_written_));
    if (result.state == IoState::kWait) return;
    if (result.state != IoState::kDone) return Close();
    n_written_ += result.n_bytes;
    last_written_ = SteadyNow();
  }
  last_written_ = SteadyNow();
  if (!session_->is_over()) return;
  transport_->CloseWriting();
  state_ = State::kLingering;
  state_since_ = SteadyNow();
  session_.reset();
}

void Connection::DropAvailable() {
  std::string& buffer = context_.read_buffer;
  const IoState state = transport_->Read(buffer.data(), buffer.size()).state;
  if (state != IoState::kDone && state != IoState::kWait) Close();
}

void Connection::WaitForMore() {
  if (state_ == State::kClosed || state_ == State::kQueued) return;
  const bool is_blocked = n_written_ < output_.size();
  bool reads = !is_reading_over_;
  if (state_ == State::kOpen && session_ != nullptr) {
    reads = reads && session_->wants_input() && !session_->is_over();
  }
  // A handshake says itself what it needs.
  const bool writes = is_blocked || state_ == State::kHandshake;
  transport_->Wait(reads || state_ != State::kOpen, writes, [this] { Advance(); });
}

void Connection::OnTick(absl::Time now) {
  const absl::Duration in_state = now - state_since_;
  const ConnectionLimits& limits = context_.limits;
  const bool may_hold_others_up = state_ == State::kHandshake && context_.is_crowded;
  if ((state_ == State::kSilent || state_ == State::kHandshake) &&
      in_state >
          (may_hold_others_up ? limits.crowded_handshake_timeout : limits.handshake_timeout)) {
    return Abort(NetworkRefusal::kHandshakeTimeout);
  }
  if (state_ == State::kOpen && last_active_ < state_since_ &&
      in_state > limits.first_byte_timeout) {
    return Abort(NetworkRefusal::kFirstByteTimeout);
  }
  if (state_ == State::kOpen && session_ == nullptr && in_state > limits.http.head_timeout) {
    return Abort(NetworkRefusal::kHeadTimeout);
  }
  if (state_ == State::kOpen && n_written_ < output_.size() &&
      now - last_written_ > limits.http.unread_timeout) {
    return Abort(NetworkRefusal::kUnreadAnswer);
  }
  if (state_ == State::kLingering && in_state > limits.linger) {
    return Enter([this] { Close(); });
  }
  if (state_ != State::kOpen || session_ == nullptr) return;
  Enter([this, now] {
    session_->OnTick(now);
    WriteAvailable();
  });
}

void Connection::BeginDrain() {
  is_drained_ = true;
  if (session_ == nullptr) return;
  Enter([this] {
    DrainSession();
    WriteAvailable();
  });
}

void Connection::Abort(NetworkRefusal reason) {
  Enter([this, reason] {
    context_.on_refusal(reason);
    transport_->Abort();
    Close();
  });
}

void Connection::Close() {
  if (state_ == State::kClosed) return;
  EndHandshake();
  state_ = State::kClosed;
  // Handlers go first: they may still speak to the session.
  session_.reset();
  transport_.reset();
}

}  // namespace lowkey
