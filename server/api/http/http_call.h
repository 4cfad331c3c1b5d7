#ifndef LOWKEY_SERVER_API_HTTP_HTTP_CALL_H_
#define LOWKEY_SERVER_API_HTTP_HTTP_CALL_H_

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "server/api/http/event_streams.h"
#include "server/http/exchange.h"
#include "server/net/refusals.h"
#include "server/rpc/stream.h"

namespace lowkey {

// The server's end of one call over HTTP. Its answer is one JSON document, which Write gives in one
// piece, unless it becomes a stream of events: then Write gives whole events ("data: ...\n\n").
// Finish with an error answers with the error's object, or ends a stream that has begun with an
// event that says so.
class HttpStream : public RpcStream {
 public:
  // Writes the event of an error.
  using WriteErrorEvent = std::function<std::string(const absl::Status& status)>;

  // The answer is a stream of server-sent events. Before the first Write.
  virtual void BecomeEventStream(WriteErrorEvent write_error) = 0;
  // Adds a field to the answer's head. Before the first Write.
  virtual void AddField(HttpField field) = 0;

 protected:
  ~HttpStream() = default;
};

// Makes the handler of one call. It gets the body (of methods without one: the target's query) as
// one message, then the half-close.
using MakeHttpHandler = std::function<std::unique_ptr<RpcHandler>(HttpStream& stream)>;

// All calls over HTTP share this. Everything must outlive them.
struct HttpServices {
  EventStreams& event_streams;
  OnRefusal on_refusal;
};

// A body of JSON is expected for POST, and none for the other methods.
enum class BodyKind { kNone, kJson };

// Runs one call over HTTP: gathers the body within its limits, then writes the answer of its
// handler. It belongs to the exchange's loop.
class HttpCall final : public HttpHandler, private HttpStream, private EventStream {
 public:
  static constexpr size_t kMaxBodyBytes = size_t{4} << 20;

  // The caller has passed the credentials. `context.method` is the path.
  HttpCall(const HttpServices& services, HttpExchange& exchange, EventLoop& loop,
           RpcContext context, BodyKind body, MakeHttpHandler make_handler);
  ~HttpCall();

  void OnHead() override;
  void OnBody(std::string_view bytes) override;
  void OnBodyEnd() override;
  void OnSent() override;

 private:
  const RpcContext& context() const override { return context_; }
  EventLoop& loop() const override { return loop_; }
  void Write(std::string_view bytes) override;
  void Finish(const absl::Status& status) override;
  size_t unsent_bytes() const override { return exchange_.unsent_bytes(); }
  void BecomeEventStream(WriteErrorEvent write_error) override;
  void AddField(HttpField field) override { fields_.push_back(std::move(field)); }
  void OnSilence(absl::Time now) override;

  // Runs a step of the call; a lack of memory ends the call.
  template <typename Step>
  void Run(const Step& step);
  // Ends the call when there is no memory to say how.
  void Break();
  absl::Status CheckHead(const HttpHead& head) const;
  // Takes memory for more of the body, and allows the client to send as much.
  absl::Status AllowMore();
  // Gives the whole body to the handler.
  void Deliver();
  void StartEvents();
  void SendEvent(std::string_view bytes);
  void EndEvents(const absl::Status& status);

  const HttpServices& services_;
  HttpExchange& exchange_;
  EventLoop& loop_;
  const RpcContext context_;
  const BodyKind body_kind_;
  const MakeHttpHandler make_handler_;
  std::string body_;
  std::vector<std::shared_ptr<const HeldBytes>> held_;  // for the body
  size_t n_allowed_ = 0;
  HttpFields fields_;     // of the answer
  std::string document_;  // the answer, unless it is a stream of events
  bool is_head_request_ = false, is_event_stream_ = false, is_started_ = false;
  bool is_finished_ = false;
  absl::Time last_write_;
  WriteErrorEvent write_error_;          // of a stream of events
  std::unique_ptr<RpcHandler> handler_;  // null: the head was refused
};

}  // namespace lowkey

#endif  // LOWKEY_SERVER_API_HTTP_HTTP_CALL_H_
