#ifndef LOWKEY_TESTS_SERVER_HTTP_H2_CLIENT_H_
#define LOWKEY_TESTS_SERVER_HTTP_H2_CLIENT_H_

#include <nghttp2/nghttp2.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "server/http/session.h"

namespace lowkey {

struct H2Frame {
  int type = 0, flags = 0;
  uint32_t stream = 0;
  std::string payload = {};
};

// A frame's bytes.
std::string MakeH2Frame(int type, int flags, uint32_t stream, std::string_view payload = {});
// The whole frames of what a server has sent.
std::vector<H2Frame> ParseH2Frames(std::string_view bytes);
std::string BigEndian(uint32_t number);

// HPACK without the dynamic table.
std::string MakeHeaderBlock(const HttpFields& fields);
// HEADERS of a request with `more` fields.
std::string MakeH2Request(uint32_t stream, int flags, const HttpFields& more = {},
                          std::string_view path = "/a");
// The preface and empty SETTINGS.
std::string MakeH2Start();

// What a handler has seen, and what it does. It outlives the handler.
struct SeenExchange {
  HttpExchange* exchange = nullptr;  // null once the handler is destroyed
  HttpHead head = {};
  std::string body = {};
  bool has_body_ended = false;
  int n_sent_calls = 0;
};

class FakeHost final : public HttpSessionHost {
 public:
  std::unique_ptr<HttpHandler> MakeHandler(HttpExchange& exchange) override;
  void WantsFlush() override { ++n_flushes; }
  void CountRefusal(NetworkRefusal reason) override { ++refusals[reason]; }

  SeenExchange& last() { return *seen.back(); }
  size_t n_live() const;

  std::function<void(HttpExchange&)> on_head = {};
  std::function<void(HttpExchange&, std::string_view)> on_body = {};
  std::function<void(HttpExchange&)> on_body_end = {};
  std::vector<std::shared_ptr<SeenExchange>> seen;
  std::map<NetworkRefusal, int> refusals;
  int n_flushes = 0;
};

// A client by nghttp2.
class H2Client {
 public:
  struct Answer {
    HttpFields head = {}, trailers = {};  // without the date
    std::string date = {};
    std::string body = {};
    bool is_closed = false;
    uint32_t code = 0;  // of its end
  };

  // With `reads_slowly` the windows are not opened again.
  explicit H2Client(bool reads_slowly = false);
  H2Client(const H2Client&) = delete;
  H2Client& operator=(const H2Client&) = delete;
  ~H2Client() { nghttp2_session_del(session_); }

  // Moves bytes both ways until none are left.
  void Talk(HttpSession& server, absl::Time now);

  // Begins a request; its body is sent as far as AddBody gives it.
  int32_t Send(const HttpFields& fields, std::string_view body);
  int32_t Begin(const HttpFields& fields);
  void AddBody(int32_t id, std::string_view bytes);
  void EndBody(int32_t id);
  void Cancel(int32_t id);

  nghttp2_session* session() { return session_; }
  std::map<int32_t, Answer> answers;
  std::vector<uint32_t> goaway_codes;
  std::string goaway_data;
  int n_pings = 0;   // without ACK, from the server
  int n_resets = 0;  // of streams, by the server

 private:
  struct Body {
    std::string unsent = {};
    bool is_whole = false;
  };

  static H2Client& Of(void* user_data) { return *static_cast<H2Client*>(user_data); }

  nghttp2_session* session_ = nullptr;
  std::map<int32_t, Body> bodies_;
};

// Fields of a request with a method and a path.
HttpFields RequestFields(std::string method, std::string path);

}  // namespace lowkey

#endif  // LOWKEY_TESTS_SERVER_HTTP_H2_CLIENT_H_
