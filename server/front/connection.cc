#include "server/front/connection.h"

#include <algorithm>
#include <utility>

#include "absl/time/clock.h"

namespace lowkey {
namespace {

constexpr size_t kWriteBytes = 64 << 10;
// One connection may take so much before others have their turn.
constexpr int kReadsInARow = 4;

}  // namespace

Connection::Connection(Context& context, const Router& router, std::unique_ptr<Transport> transport,
                       Peer peer, absl::Time now)
    : context_(context),
      router_(router),
      transport_(std::move(transport)),
      peer_(std::move(peer)),
      accepted_(now),
      state_since_(now),
      last_active_(now),
      last_written_(now) {}

Connection::~Connection() = default;

std::unique_ptr<HttpHandler> Connection::MakeHandler(HttpExchange& exchange) {
  return router_.MakeHandler(exchange, context_.loop, peer_);
}

void Connection::WantsFlush() {
  if (is_busy_ || std::exchange(is_flush_wanted_, true)) return;
  context_.wants_flush(*this);
}

void Connection::Advance() {
  if (state_ == State::kClosed) return;
  is_busy_ = true;
  if (state_ == State::kHandshake) ShakeHands();
  if (state_ == State::kOpen) ReadAvailable();
  if (state_ == State::kOpen) WriteAvailable();
  if (state_ == State::kLingering) DropAvailable();
  is_busy_ = false;
  WaitForMore();
  ReportClosed();
}

void Connection::Flush() {
  is_flush_wanted_ = false;
  if (state_ != State::kOpen) return;
  is_busy_ = true;
  WriteAvailable();
  is_busy_ = false;
  WaitForMore();
  ReportClosed();
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
  state_ = State::kOpen;
  state_since_ = absl::Now();
  if (!transport_->is_encrypted()) return;
  session_ =
      transport_->protocol() == "h2"
          ? MakeHttp2Session(*this, context_.limits.http, context_.answer_budget, state_since_)
          : MakeHttp1Session(*this, context_.limits.http, context_.answer_budget, state_since_);
}

void Connection::ReadAvailable() {
  std::string& buffer = context_.read_buffer;
  for (int i = 0; i < kReadsInARow && state_ == State::kOpen && !is_reading_over_; ++i) {
    if (session_ != nullptr && (session_->is_over() || !session_->wants_input())) return;
    const IoResult result = transport_->Read(buffer.data(), buffer.size());
    if (result.state == IoState::kWait) return;
    if (result.state == IoState::kFailure) return Close();
    last_active_ = absl::Now();
    if (result.state == IoState::kEnd) {
      is_reading_over_ = true;
      if (session_ == nullptr) return Close();
      session_->ReceiveEnd(last_active_);
      return;
    }
    TakeBytes(std::string_view(buffer.data(), result.n_bytes));
    WriteAvailable();
  }
}

void Connection::TakeBytes(std::string_view bytes) {
  if (session_ == nullptr) return TakeFirstBytes(bytes);
  session_->Receive(bytes, last_active_);
}

void Connection::TakeFirstBytes(std::string_view bytes) {
  first_bytes_.append(bytes);
  const size_t n = std::min(first_bytes_.size(), kHttp2Preface.size());
  const bool may_be_http2 =
      kHttp2Preface.substr(0, n) == std::string_view(first_bytes_).substr(0, n);
  if (may_be_http2 && n < kHttp2Preface.size()) return;
  session_ =
      may_be_http2
          ? MakeHttp2Session(*this, context_.limits.http, context_.answer_budget, last_active_)
          : MakeHttp1Session(*this, context_.limits.http, context_.answer_budget, last_active_);
  if (is_drained_) session_->BeginDrain();
  const std::string first = std::exchange(first_bytes_, std::string());
  session_->Receive(first, last_active_);
}

void Connection::WriteAvailable() {
  if (session_ == nullptr || state_ != State::kOpen) return;
  while (true) {
    if (n_written_ == output_.size()) {
      output_ = std::string();
      n_written_ = 0;
      if (session_->has_output()) session_->Produce(kWriteBytes, output_, absl::Now());
      if (output_.empty()) break;
    }
    const IoResult result = transport_->Write(std::string_view(output_).substr(n_written_));
    if (result.state == IoState::kWait) return;
    if (result.state != IoState::kDone) return Close();
    n_written_ += result.n_bytes;
    last_written_ = absl::Now();
  }
  last_written_ = absl::Now();
  if (!session_->is_over()) return;
  transport_->CloseWriting();
  state_ = State::kLingering;
  state_since_ = absl::Now();
  session_.reset();
}

void Connection::DropAvailable() {
  std::string& buffer = context_.read_buffer;
  for (int i = 0; i < kReadsInARow; ++i) {
    const IoResult result = transport_->Read(buffer.data(), buffer.size());
    if (result.state == IoState::kWait) return;
    if (result.state != IoState::kDone) return Close();
  }
}

void Connection::WaitForMore() {
  if (state_ == State::kClosed) return;
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
  if (state_ == State::kHandshake && in_state > limits.handshake_timeout) {
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
    Close();
    return ReportClosed();
  }
  if (state_ != State::kOpen || session_ == nullptr) return;
  is_busy_ = true;
  session_->OnTick(now);
  is_busy_ = false;
  Flush();
}

void Connection::BeginDrain() {
  is_drained_ = true;
  if (session_ == nullptr) return;
  is_busy_ = true;
  session_->BeginDrain();
  is_busy_ = false;
  Flush();
}

void Connection::Abort(NetworkRefusal reason) {
  if (state_ == State::kClosed) return;
  context_.on_refusal(reason);
  transport_->Abort();
  Close();
  ReportClosed();
}

void Connection::Close() {
  state_ = State::kClosed;
  // Handlers go first: they may still speak to the session.
  session_.reset();
  transport_.reset();
}

void Connection::ReportClosed() {
  if (state_ == State::kClosed) context_.on_closed(*this);
}

}  // namespace lowkey
