#include "tests/server/http/h2_client.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <utility>

namespace lowkey {
namespace {

class FakeHandler final : public HttpHandler {
 public:
  FakeHandler(FakeHost& host, std::shared_ptr<SeenExchange> seen)
      : host_(host), seen_(std::move(seen)) {}
  ~FakeHandler() override { seen_->exchange = nullptr; }

  void OnHead() override {
    if (host_.on_head) host_.on_head(*seen_->exchange);
  }
  void OnBody(std::string_view bytes) override {
    EXPECT_FALSE(bytes.empty());
    EXPECT_FALSE(seen_->has_body_ended);
    seen_->body.append(bytes);
    if (host_.on_body) host_.on_body(*seen_->exchange, bytes);
  }
  void OnBodyEnd() override {
    EXPECT_FALSE(seen_->has_body_ended);
    seen_->has_body_ended = true;
    if (host_.on_body_end) host_.on_body_end(*seen_->exchange);
  }
  void OnSent() override { ++seen_->n_sent_calls; }

 private:
  FakeHost& host_;
  std::shared_ptr<SeenExchange> seen_;
};

// RFC 7541, 5.1 with a prefix of 7 bits.
void AppendInteger(size_t number, std::string& out) {
  if (number < 127) {
    out.push_back(static_cast<char>(number));
    return;
  }
  out.push_back(127);
  for (number -= 127; number >= 128; number /= 128) {
    out.push_back(static_cast<char>(number % 128 + 128));
  }
  out.push_back(static_cast<char>(number));
}

std::vector<nghttp2_nv> Block(const HttpFields& fields) {
  std::vector<nghttp2_nv> block;
  for (const HttpField& field : fields) {
    block.push_back({reinterpret_cast<uint8_t*>(const_cast<char*>(field.name.data())),
                     reinterpret_cast<uint8_t*>(const_cast<char*>(field.value.data())),
                     field.name.size(), field.value.size(), NGHTTP2_NV_FLAG_NONE});
  }
  return block;
}

std::string Text(const uint8_t* data, size_t n_bytes) {
  return {reinterpret_cast<const char*>(data), n_bytes};
}

}  // namespace

std::string BigEndian(uint32_t number) {
  std::string bytes;
  for (int shift = 24; shift >= 0; shift -= 8) bytes.push_back(static_cast<char>(number >> shift));
  return bytes;
}

std::string MakeH2Frame(int type, int flags, uint32_t stream, std::string_view payload) {
  std::string bytes = BigEndian(static_cast<uint32_t>(payload.size() << 8 | type));
  bytes.push_back(static_cast<char>(flags));
  return bytes + BigEndian(stream) + std::string(payload);
}

std::vector<H2Frame> ParseH2Frames(std::string_view bytes) {
  std::vector<H2Frame> frames;
  const auto number = [&bytes](size_t at, size_t n) {
    uint32_t value = 0;
    for (size_t i = at; i < at + n; ++i) value = value << 8 | static_cast<unsigned char>(bytes[i]);
    return value;
  };
  while (bytes.size() >= 9 && bytes.size() >= 9 + number(0, 3)) {
    const size_t n = number(0, 3);
    frames.push_back({bytes[3], bytes[4], number(5, 4), std::string(bytes.substr(9, n))});
    bytes.remove_prefix(9 + n);
  }
  EXPECT_TRUE(bytes.empty()) << "half a frame";
  return frames;
}

std::string MakeHeaderBlock(const HttpFields& fields) {
  std::string block;
  for (const HttpField& field : fields) {
    block.push_back(0);  // a literal that is not indexed
    AppendInteger(field.name.size(), block);
    block += field.name;
    AppendInteger(field.value.size(), block);
    block += field.value;
  }
  return block;
}

HttpFields RequestFields(std::string method, std::string path) {
  return {{":method", std::move(method)},
          {":scheme", "http"},
          {":path", std::move(path)},
          {":authority", "a.b"}};
}

std::string MakeH2Request(uint32_t stream, int flags, const HttpFields& more,
                          std::string_view path) {
  HttpFields fields = RequestFields("POST", std::string(path));
  fields.insert(fields.end(), more.begin(), more.end());
  return MakeH2Frame(NGHTTP2_HEADERS, flags, stream, MakeHeaderBlock(fields));
}

std::string MakeH2Start() {
  return std::string(kHttp2Preface) + MakeH2Frame(NGHTTP2_SETTINGS, 0, 0);
}

std::unique_ptr<HttpHandler> FakeHost::MakeHandler(HttpExchange& exchange) {
  seen.push_back(std::make_shared<SeenExchange>());
  last().exchange = &exchange;
  last().head = exchange.head();
  return std::make_unique<FakeHandler>(*this, seen.back());
}

size_t FakeHost::n_live() const {
  return std::count_if(seen.begin(), seen.end(),
                       [](const auto& one) { return one->exchange != nullptr; });
}

H2Client::H2Client(bool reads_slowly) {
  nghttp2_session_callbacks* callbacks = nullptr;
  nghttp2_session_callbacks_new(&callbacks);
  nghttp2_session_callbacks_set_on_header_callback(callbacks, [](nghttp2_session*,
                                                                 const nghttp2_frame* frame,
                                                                 const uint8_t* name, size_t n_name,
                                                                 const uint8_t* value,
                                                                 size_t n_value, uint8_t,
                                                                 void* user_data) {
    Answer& answer = Of(user_data).answers[frame->hd.stream_id];
    const bool is_head = frame->headers.cat == NGHTTP2_HCAT_RESPONSE;
    if (Text(name, n_name) == "date") {
      answer.date = Text(value, n_value);
      return 0;
    }
    (is_head ? answer.head : answer.trailers).push_back({Text(name, n_name), Text(value, n_value)});
    return 0;
  });
  nghttp2_session_callbacks_set_on_data_chunk_recv_callback(
      callbacks, [](nghttp2_session*, uint8_t, int32_t id, const uint8_t* data, size_t n_bytes,
                    void* user_data) {
        Of(user_data).answers[id].body += Text(data, n_bytes);
        return 0;
      });
  nghttp2_session_callbacks_set_on_stream_close_callback(
      callbacks, [](nghttp2_session*, int32_t id, uint32_t code, void* user_data) {
        Of(user_data).answers[id].is_closed = true;
        Of(user_data).answers[id].code = code;
        return 0;
      });
  nghttp2_session_callbacks_set_on_frame_recv_callback(
      callbacks, [](nghttp2_session*, const nghttp2_frame* frame, void* user_data) {
        if (frame->hd.type == NGHTTP2_GOAWAY) {
          Of(user_data).goaway_codes.push_back(frame->goaway.error_code);
          Of(user_data).goaway_data =
              Text(frame->goaway.opaque_data, frame->goaway.opaque_data_len);
        }
        if (frame->hd.type == NGHTTP2_PING && (frame->hd.flags & NGHTTP2_FLAG_ACK) == 0) {
          ++Of(user_data).n_pings;
        }
        if (frame->hd.type == NGHTTP2_RST_STREAM) ++Of(user_data).n_resets;
        return 0;
      });
  nghttp2_option* option = nullptr;
  nghttp2_option_new(&option);
  nghttp2_option_set_no_auto_window_update(option, reads_slowly);
  nghttp2_session_client_new2(&session_, callbacks, this, option);
  nghttp2_option_del(option);
  nghttp2_session_callbacks_del(callbacks);
  nghttp2_submit_settings(session_, NGHTTP2_FLAG_NONE, nullptr, 0);
}

void H2Client::Talk(HttpSession& server, absl::Time now) {
  for (bool did_move = true; did_move;) {
    did_move = false;
    const uint8_t* data = nullptr;
    for (ssize_t n = 0; !server.is_over() && (n = nghttp2_session_mem_send(session_, &data)) > 0;) {
      server.Receive(Text(data, n), now);
      did_move = true;
    }
    std::string out;
    server.Produce(10'000, out, now);
    EXPECT_LE(out.size(), 10'000u);
    if (out.empty()) continue;
    did_move = true;
    EXPECT_EQ(nghttp2_session_mem_recv(session_, reinterpret_cast<const uint8_t*>(out.data()),
                                       out.size()),
              static_cast<ssize_t>(out.size()));
  }
}

int32_t H2Client::Send(const HttpFields& fields, std::string_view body) {
  if (body.empty()) {
    const std::vector<nghttp2_nv> block = Block(fields);
    return nghttp2_submit_request(session_, nullptr, block.data(), block.size(), nullptr, nullptr);
  }
  const int32_t id = Begin(fields);
  AddBody(id, body);
  EndBody(id);
  return id;
}

int32_t H2Client::Begin(const HttpFields& fields) {
  const std::vector<nghttp2_nv> block = Block(fields);
  nghttp2_data_provider provider = {};
  provider.read_callback = [](nghttp2_session*, int32_t id, uint8_t* data, size_t n_bytes,
                              uint32_t* flags, nghttp2_data_source*, void* user_data) -> ssize_t {
    Body& body = Of(user_data).bodies_[id];
    const size_t n = std::min(n_bytes, body.unsent.size());
    std::memcpy(data, body.unsent.data(), n);
    body.unsent.erase(0, n);
    if (body.unsent.empty() && body.is_whole) *flags |= NGHTTP2_DATA_FLAG_EOF;
    if (n == 0 && !body.is_whole) return NGHTTP2_ERR_DEFERRED;
    return static_cast<ssize_t>(n);
  };
  return nghttp2_submit_request(session_, nullptr, block.data(), block.size(), &provider, nullptr);
}

void H2Client::AddBody(int32_t id, std::string_view bytes) {
  bodies_[id].unsent.append(bytes);
  nghttp2_session_resume_data(session_, id);
}

void H2Client::EndBody(int32_t id) {
  bodies_[id].is_whole = true;
  nghttp2_session_resume_data(session_, id);
}

void H2Client::Cancel(int32_t id) {
  nghttp2_submit_rst_stream(session_, NGHTTP2_FLAG_NONE, id, NGHTTP2_CANCEL);
}

}  // namespace lowkey
