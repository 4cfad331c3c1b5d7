#include <algorithm>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "server/http/h1_parser.h"
#include "server/http/h1_writer.h"
#include "server/http/http_date.h"
#include "server/http/session.h"

namespace lowkey {
namespace {

constexpr size_t kMaxWaitingInputBytes = 16 << 10;
constexpr size_t kMaxWaitingOutputBytes = 64 << 10;  // more is not read then
// Of a body that its handler did not take; past it the connection is closed.
constexpr size_t kMaxDroppedBytes = 64 << 10;

// How the end of an answer's body is told.
enum class Framing { kNoBody, kLength, kChunked, kClose };

// A request and the state of its answer.
struct Exchange {
  HttpHead head = {};
  std::unique_ptr<HttpHandler> handler = {};
  bool is_body_whole = false;
  size_t allowed_bytes = 0;    // of the body, and not yet passed on
  bool owes_continue = false;  // the client waits for 100 Continue
  bool has_started = false;
  bool has_ended = false;
  bool keeps_alive = false;  // the connection can take another request
  Framing framing = Framing::kNoBody;
  uint64_t length_left = 0;   // of the body, by the handler's Content-Length
  size_t n_unsent_bytes = 0;  // at most so many of the body's bytes are in the output
};

// Every public method of HttpSession but the getters runs within an Entry. Handlers are called
// there, and by their own means at other times; then the host is asked for a flush. A handler is
// destroyed by an Entry's end or by a method that no handler has called.
class Http1Session final : public HttpSession, private HttpExchange {
 public:
  Http1Session(HttpSessionHost& host, const HttpLimits& limits, HttpBudgets& budgets,
               absl::Time now)
      : host_(host),
        limits_(limits),
        parser_(limits),
        output_(limits.max_connection_answer_bytes, budgets.answers),
        bodies_(std::make_shared<ByteBudget>(limits.max_connection_body_bytes, &budgets.bodies)),
        now_(now),
        begin_(now),
        idle_since_(now) {}

  void Receive(std::string_view bytes, absl::Time now) override;
  void ReceiveEnd(absl::Time now) override;
  void Produce(size_t max_bytes, std::string& out, absl::Time now) override;
  void OnTick(absl::Time now) override;
  void BeginDrain() override;
  // The next answer says so.
  bool has_told() const override { return is_over_ || (is_draining_ && !IsBeingAsked()); }

  bool wants_input() const override;
  bool has_output() const override { return !output_.empty(); }
  bool is_over() const override { return is_over_; }
  size_t n_exchanges() const override { return exchange_.has_value() && !is_cut_ ? 1 : 0; }
  bool is_trusted() const override { return is_trusted_; }

 private:
  // Marks a method of the session's own, and destroys the handler of a cut exchange at its end.
  class Entry {
   public:
    Entry(Http1Session& session, absl::Time now) : session_(session) {
      session_.now_ = now;
      session_.is_within_ = true;
    }
    Entry(const Entry&) = delete;
    Entry& operator=(const Entry&) = delete;
    ~Entry() {
      if (session_.is_cut_) session_.exchange_.reset();
      session_.is_within_ = false;
    }

   private:
    Http1Session& session_;
  };

  const HttpHead& head() const override { return exchange_->head; }
  void AllowBody(size_t n_bytes) override;
  std::shared_ptr<const HeldBytes> HoldBody(size_t n_bytes) override;
  void Start(int status, const HttpFields& fields) override;
  void Write(std::string_view bytes) override;
  void End(const HttpFields& trailers) override;
  void StartAndEnd(int status, const HttpFields& fields) override;
  void Reset(HttpReset reason) override;
  size_t unsent_bytes() const override { return exchange_->n_unsent_bytes; }
  void Trust() override { is_trusted_ = true; }

  // Handles input until it is used up or must wait.
  void Advance(std::string_view& bytes);
  void AdvanceInput();
  // One event of the parser. False when there is nothing to do for now.
  bool AdvanceOnce(std::string_view& bytes);
  void BeginExchange();
  void OnBody(std::string_view bytes);
  void OnBodyEnd();
  // Whether a part of a request has come, and the rest is to come.
  bool IsBeingAsked() const {
    return exchange_.has_value() ? !exchange_->is_body_whole && !exchange_->has_ended
                                 : parser_.is_in_head();
  }
  // Ends an exchange whose answer was handed over. False if there is none.
  bool FinishExchange();
  // Whether what comes of a body is dropped.
  bool IsDropping() const { return !exchange_.has_value() || exchange_->has_ended; }
  size_t MaxBodyBytes() const { return IsDropping() ? droppable_bytes_ : exchange_->allowed_bytes; }
  void WatchHead();

  // Chooses the answer's framing and returns the fields that tell it.
  std::string BeginFraming(int status, const HttpFields& fields, bool has_more);
  void WriteHead(int status, const HttpFields& fields, bool has_more);
  void Finish();
  // Appends to the output. False if that cut the exchange off.
  bool Append(std::initializer_list<std::string_view> pieces);
  void WantFlush();

  // Answers without a handler and ends the session.
  void Refuse(int status, std::string_view reason, NetworkRefusal refusal);
  // Ends the session with nothing more produced. The handler is destroyed when the Entry ends.
  void Cut();
  bool IsWaitingForBody() const;
  void CheckBody();

  HttpSessionHost& host_;
  const HttpLimits& limits_;
  Http1Parser parser_;
  std::string input_;  // bytes that wait
  AnswerBuffer output_;
  const std::shared_ptr<ByteBudget> bodies_;  // that handlers hold
  HttpDate date_;
  std::optional<Exchange> exchange_;
  size_t droppable_bytes_ = 0;     // of the body of the answered request
  bool is_dropping_rest_ = false;  // the exchange is over and its body still comes
  bool is_within_ = false;
  bool is_cut_ = false;
  bool is_over_ = false;
  bool is_draining_ = false;
  bool is_trusted_ = false;

  absl::Time now_;
  const absl::Time begin_;
  absl::Time idle_since_;
  std::optional<absl::Time> head_since_;
  std::optional<absl::Time> body_since_;  // since when the body is allowed to come
  absl::Time body_progress_;
  absl::Time unread_since_;
};

void Http1Session::Receive(std::string_view bytes, absl::Time now) {
  const Entry entry(*this, now);
  if (is_over_) return;
  if (!input_.empty()) {
    input_ += bytes;
    AdvanceInput();
    return;
  }
  Advance(bytes);
  if (!is_over_) input_ = bytes;
}

void Http1Session::ReceiveEnd(absl::Time now) {
  const Entry entry(*this, now);
  if (exchange_.has_value() && !exchange_->has_ended) Cut();
  is_over_ = true;
}

void Http1Session::Produce(size_t max_bytes, std::string& out, absl::Time now) {
  const Entry entry(*this, now);
  AdvanceInput();
  while (out.size() < max_bytes && !output_.empty()) {
    output_.Take(max_bytes - out.size(), out);
    unread_since_ = now;
    if (exchange_.has_value() && exchange_->n_unsent_bytes > output_.size()) {
      exchange_->n_unsent_bytes = output_.size();
      if (!exchange_->has_ended) exchange_->handler->OnSent();
    }
    AdvanceInput();
  }
}

void Http1Session::OnTick(absl::Time now) {
  const Entry entry(*this, now);
  if (!output_.empty() && now - unread_since_ >= limits_.unread_timeout) {
    host_.CountRefusal(NetworkRefusal::kUnreadAnswer);
    Cut();
    return;
  }
  if (now - begin_ >= limits_.max_age) BeginDrain();
  if (is_over_) return;
  if (exchange_.has_value() || is_dropping_rest_) {
    CheckBody();
  } else if (parser_.is_in_head()) {
    if (now - head_since_.value_or(now) >= limits_.head_timeout) {
      Refuse(408, "the request's head took too long", NetworkRefusal::kHeadTimeout);
    }
  } else if (now - idle_since_ >=
             (is_trusted_ ? limits_.h1_idle_timeout : limits_.stranger_idle_timeout)) {
    host_.CountRefusal(NetworkRefusal::kIdleTimeout);
    is_over_ = true;
  }
}

void Http1Session::BeginDrain() {
  is_draining_ = true;
  if (!exchange_.has_value() && !parser_.is_in_head()) is_over_ = true;
}

bool Http1Session::wants_input() const {
  if (is_over_ || output_.size() >= kMaxWaitingOutputBytes) return false;
  const bool waits_to_be_allowed = exchange_.has_value() && parser_.is_in_body() &&
                                   parser_.is_in_body_data() && MaxBodyBytes() == 0;
  return waits_to_be_allowed ? input_.empty() : input_.size() < kMaxWaitingInputBytes;
}

void Http1Session::AdvanceInput() {
  std::string_view bytes = input_;
  Advance(bytes);
  if (is_over_) bytes = {};
  input_.erase(0, input_.size() - bytes.size());
  if (input_.empty()) std::string().swap(input_);
}

void Http1Session::Advance(std::string_view& bytes) {
  do {
    while (!is_over_ && AdvanceOnce(bytes)) {
    }
  } while (FinishExchange());
  WatchHead();
}

bool Http1Session::AdvanceOnce(std::string_view& bytes) {
  if (exchange_.has_value() && exchange_->is_body_whole) return false;  // one at a time
  const size_t n_bytes = bytes.size();
  const Http1Parser::Event event = parser_.Next(bytes, MaxBodyBytes());
  if (bytes.size() < n_bytes) body_progress_ = now_;
  switch (event) {
    case Http1Parser::Event::kNone:
      // The rest of a body that nobody wants is too long.
      if (!bytes.empty() && IsDropping()) is_over_ = true;
      return false;
    case Http1Parser::Event::kHead:
      BeginExchange();
      return true;
    case Http1Parser::Event::kBody:
      OnBody(parser_.body());
      return true;
    case Http1Parser::Event::kEnd:
      OnBodyEnd();
      return true;
    case Http1Parser::Event::kError:
      break;
  }
  const auto [status, reason] = parser_.error();
  Refuse(status, reason,
         status == 431 || status == 414 ? NetworkRefusal::kHeadSize
         : status == 413                ? NetworkRefusal::kBodySize
                                        : NetworkRefusal::kBadProtocol);
  return false;
}

void Http1Session::BeginExchange() {
  head_since_.reset();
  body_since_.reset();
  exchange_.emplace();
  exchange_->head = parser_.TakeHead();
  exchange_->owes_continue = parser_.expects_continue();
  exchange_->keeps_alive = parser_.keeps_alive();
  exchange_->handler = host_.MakeHandler(*this);
  exchange_->handler->OnHead();
}

void Http1Session::OnBody(std::string_view bytes) {
  if (IsDropping()) {
    droppable_bytes_ -= bytes.size();
    return;
  }
  exchange_->allowed_bytes -= bytes.size();
  exchange_->handler->OnBody(bytes);
}

void Http1Session::OnBodyEnd() {
  if (!exchange_.has_value()) {
    is_dropping_rest_ = false;
    idle_since_ = now_;
    return;
  }
  exchange_->is_body_whole = true;
  if (!exchange_->has_ended) exchange_->handler->OnBodyEnd();
}

bool Http1Session::FinishExchange() {
  if (!exchange_.has_value() || !exchange_->has_ended || !output_.empty() || is_cut_) return false;
  is_dropping_rest_ = !exchange_->is_body_whole;
  exchange_.reset();
  idle_since_ = now_;
  if (is_draining_) is_over_ = true;
  return true;
}

void Http1Session::WatchHead() {
  if (exchange_.has_value() || !parser_.is_in_head()) {
    head_since_.reset();
  } else if (!head_since_.has_value()) {
    head_since_ = now_;
  }
}

void Http1Session::AllowBody(size_t n_bytes) {
  Exchange& exchange = *exchange_;
  if (is_cut_ || exchange.has_ended || exchange.is_body_whole || n_bytes == 0) return;
  if (!body_since_.has_value()) body_since_ = now_;
  if (exchange.allowed_bytes == 0) body_progress_ = now_;
  exchange.allowed_bytes +=
      std::min(n_bytes, std::numeric_limits<size_t>::max() - exchange.allowed_bytes);
  if (exchange.owes_continue && !exchange.has_started) {
    exchange.owes_continue = false;
    Append({"HTTP/1.1 100 Continue\r\n\r\n"});
  }
  WantFlush();
}

std::shared_ptr<const HeldBytes> Http1Session::HoldBody(size_t n_bytes) {
  auto held = HeldBytes::Take(bodies_, static_cast<int64_t>(n_bytes));
  if (held == nullptr) host_.CountRefusal(NetworkRefusal::kBodyMemory);
  return held;
}

void Http1Session::Start(int status, const HttpFields& fields) {
  WriteHead(status, fields, /*has_more=*/true);
  WantFlush();
}

void Http1Session::Write(std::string_view bytes) {
  Exchange& exchange = *exchange_;
  if (is_cut_ || bytes.empty()) return;
  LK_CHECK(exchange.has_started && !exchange.has_ended);
  switch (exchange.framing) {
    case Framing::kNoBody:
      return;
    case Framing::kLength:
      bytes = bytes.substr(
          0, static_cast<size_t>(std::min<uint64_t>(bytes.size(), exchange.length_left)));
      exchange.length_left -= bytes.size();
      [[fallthrough]];
    case Framing::kClose:
      if (!Append({bytes})) return;
      break;
    case Framing::kChunked:
      if (!Append({absl::StrCat(absl::Hex(bytes.size()), "\r\n"), bytes, "\r\n"})) return;
  }
  exchange.n_unsent_bytes += bytes.size();
  WantFlush();
}

void Http1Session::End(const HttpFields& /*trailers*/) {
  if (is_cut_) return;
  LK_CHECK(exchange_->has_started && !exchange_->has_ended);
  if (exchange_->framing == Framing::kChunked && !Append({"0\r\n\r\n"})) return;
  Finish();
  WantFlush();
}

void Http1Session::StartAndEnd(int status, const HttpFields& fields) {
  WriteHead(status, fields, /*has_more=*/false);
  if (!is_cut_) Finish();
  WantFlush();
}

void Http1Session::Reset(HttpReset /*reason*/) {
  Cut();
  WantFlush();
}

std::string Http1Session::BeginFraming(int status, const HttpFields& fields, bool has_more) {
  Exchange& exchange = *exchange_;
  const bool is_head = exchange.head.method == "HEAD";
  if (status == 204 || status == 304) return "";
  if (has_more || is_head) {
    for (const HttpField& field : fields) {
      if (field.name != "content-length" || !absl::SimpleAtoi(field.value, &exchange.length_left)) {
        continue;
      }
      exchange.framing = is_head ? Framing::kNoBody : Framing::kLength;
      return absl::StrCat("Content-Length: ", exchange.length_left, "\r\n");
    }
  }
  if (!has_more) return is_head ? "" : "Content-Length: 0\r\n";
  if (!parser_.is_http_1_0()) {
    exchange.framing = is_head ? Framing::kNoBody : Framing::kChunked;
    return "Transfer-Encoding: chunked\r\n";
  }
  if (is_head) return "";
  exchange.framing = Framing::kClose;
  exchange.keeps_alive = false;
  return "";
}

void Http1Session::WriteHead(int status, const HttpFields& fields, bool has_more) {
  Exchange& exchange = *exchange_;
  if (is_cut_) return;
  LK_CHECK(!exchange.has_started && status >= 200 && status <= 599);
  exchange.has_started = true;
  std::string own_fields = BeginFraming(status, fields, has_more);
  // A client that waits for 100 Continue may send its body or not; a long body is not waited for.
  const bool leaves_body =
      !exchange.is_body_whole &&
      (exchange.owes_continue || parser_.body_left().value_or(0) > kMaxDroppedBytes);
  if (is_draining_ || leaves_body) exchange.keeps_alive = false;
  if (!exchange.keeps_alive) {
    own_fields += "Connection: close\r\n";
  } else if (parser_.is_http_1_0()) {
    own_fields += "Connection: keep-alive\r\n";
  }
  Append({Http1AnswerHead(status, fields, date_.At(now_), own_fields)});
}

void Http1Session::Finish() {
  Exchange& exchange = *exchange_;
  exchange.has_ended = true;
  const bool is_short = exchange.framing == Framing::kLength && exchange.length_left > 0;
  if (!exchange.keeps_alive || is_short) is_over_ = true;
  droppable_bytes_ = kMaxDroppedBytes;
  if (!body_since_.has_value()) body_since_ = body_progress_ = now_;
}

bool Http1Session::Append(std::initializer_list<std::string_view> pieces) {
  if (output_.empty()) unread_since_ = now_;
  if (output_.Append(pieces)) return true;
  host_.CountRefusal(NetworkRefusal::kAnswerMemory);
  Cut();
  WantFlush();
  return false;
}

void Http1Session::WantFlush() {
  if (!is_within_) host_.WantsFlush();
}

void Http1Session::Refuse(int status, std::string_view reason, NetworkRefusal refusal) {
  host_.CountRefusal(refusal);
  is_over_ = true;
  if (exchange_.has_value()) {
    if (exchange_->has_ended) return;  // its answer is whole
    if (exchange_->has_started) {
      Cut();
      return;
    }
    exchange_.reset();  // no handler has called
  } else if (is_dropping_rest_) {
    return;  // the request was answered
  }
  const std::string text = absl::StrCat(std::string(reason), "\n");
  const std::string own_fields =
      absl::StrCat("Content-Length: ", text.size(), "\r\nConnection: close\r\n");
  Append({Http1AnswerHead(status, {{"content-type", "text/plain; charset=utf-8"}}, date_.At(now_),
                          own_fields),
          text});
}

void Http1Session::Cut() {
  is_over_ = true;
  is_cut_ = true;
  output_.Clear();
}

bool Http1Session::IsWaitingForBody() const {
  if (!parser_.is_in_body() || !body_since_.has_value()) return false;
  return !parser_.is_in_body_data() || IsDropping() || MaxBodyBytes() > 0;
}

void Http1Session::CheckBody() {
  if (!IsWaitingForBody()) return;
  if (now_ - body_progress_ < limits_.body_progress_timeout &&
      now_ - *body_since_ < limits_.body_timeout) {
    return;
  }
  Refuse(408, "the request's body took too long", NetworkRefusal::kBodyTimeout);
}

}  // namespace

std::unique_ptr<HttpSession> MakeHttp1Session(HttpSessionHost& host, const HttpLimits& limits,
                                              HttpBudgets& budgets, absl::Time now) {
  return std::make_unique<Http1Session>(host, limits, budgets, now);
}

}  // namespace lowkey
