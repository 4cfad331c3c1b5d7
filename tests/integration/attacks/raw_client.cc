#include "tests/integration/attacks/raw_client.h"

#include <arpa/inet.h>
#include <nghttp2/nghttp2.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <memory>

#include "absl/strings/str_cat.h"

namespace lowkey {
namespace {

constexpr size_t kFrameHead = 9;

sockaddr_in Address(int last_byte, int port) {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<in_port_t>(port));
  address.sin_addr.s_addr = htonl(0x7f000000u | static_cast<uint32_t>(last_byte));
  return address;
}

size_t FrameBytes(std::string_view bytes) {
  size_t n = 0;
  for (size_t i = 0; i < 3; ++i) n = n << 8 | static_cast<unsigned char>(bytes[i]);
  return kFrameHead + n;
}

// Decodes one header block with the connection's state.
HttpFields Inflate(nghttp2_hd_inflater* inflater, std::string_view block) {
  HttpFields fields;
  const auto* in = reinterpret_cast<const uint8_t*>(block.data());
  for (size_t left = block.size();;) {
    nghttp2_nv field;
    int flags = 0;
    const ssize_t n = nghttp2_hd_inflate_hd2(inflater, &field, &flags, in, left, /*in_final=*/1);
    if (n < 0) break;
    in += n;
    left -= static_cast<size_t>(n);
    if ((flags & NGHTTP2_HD_INFLATE_EMIT) != 0) {
      fields.push_back({std::string(reinterpret_cast<char*>(field.name), field.namelen),
                        std::string(reinterpret_cast<char*>(field.value), field.valuelen)});
    }
    if ((flags & NGHTTP2_HD_INFLATE_FINAL) != 0) break;
  }
  nghttp2_hd_inflate_end_headers(inflater);
  return fields;
}

}  // namespace

RawClient::RawClient(int port, int from) : socket_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  const sockaddr_in own = Address(from, 0), server = Address(1, port);
  const int one = 1;
  setsockopt(socket_.get(), IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &one, sizeof(one));
  is_open_ =
      bind(socket_.get(), reinterpret_cast<const sockaddr*>(&own), sizeof(own)) == 0 &&
      connect(socket_.get(), reinterpret_cast<const sockaddr*>(&server), sizeof(server)) == 0;
}

bool RawClient::Send(std::string_view bytes) {
  while (is_open_ && !bytes.empty() && Move(bytes, kPatience)) {
  }
  return is_open_ && bytes.empty();
}

size_t RawClient::SendUnread(std::string_view bytes, absl::Duration patience) {
  std::string_view unsent = bytes;
  pollfd writable = {socket_.get(), POLLOUT, 0};
  while (is_open_ && !unsent.empty() &&
         poll(&writable, 1, static_cast<int>(absl::ToInt64Milliseconds(patience))) > 0) {
    WriteAvailable(unsent);
  }
  return bytes.size() - unsent.size();
}

bool RawClient::Await(const std::function<bool(std::string_view)>& is_enough,
                      absl::Duration patience) {
  std::string_view nothing;
  while (!is_enough(received_)) {
    if (!is_open_ || !Move(nothing, patience)) return false;
  }
  return true;
}

bool RawClient::AwaitEnd(absl::Duration patience) {
  std::string_view nothing;
  while (is_open_ && Move(nothing, patience)) {
  }
  return !is_open_;
}

bool RawClient::Move(std::string_view& unsent, absl::Duration patience) {
  pollfd ready = {socket_.get(), POLLIN, 0};
  if (!unsent.empty()) ready.events |= POLLOUT;
  if (poll(&ready, 1, static_cast<int>(absl::ToInt64Milliseconds(patience))) <= 0) return false;
  if ((ready.revents & ~POLLOUT) != 0) ReadAvailable();
  if (is_open_ && (ready.revents & POLLOUT) != 0) WriteAvailable(unsent);
  return true;
}

void RawClient::ReadAvailable() {
  char buffer[64 << 10];
  const ssize_t n = recv(socket_.get(), buffer, sizeof(buffer), MSG_DONTWAIT);
  if (n > 0) received_.append(buffer, static_cast<size_t>(n));
  if (n == 0 || (n < 0 && errno != EAGAIN)) is_open_ = false;
}

void RawClient::WriteAvailable(std::string_view& unsent) {
  const ssize_t n = send(socket_.get(), unsent.data(), unsent.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
  if (n > 0) unsent.remove_prefix(static_cast<size_t>(n));
  // A server that has ended the connection may have left an answer, unless it was a reset.
  if (n < 0 && errno != EAGAIN) AwaitEnd();
}

RawClient OpenHttp2(int port, int from) {
  RawClient client(port, from);
  client.Send(MakeH2Start());
  return client;
}

std::string MakeCallHead(uint32_t stream, std::string_view path, const HttpFields& more) {
  HttpFields fields = {{"content-type", "application/grpc"}, {"te", "trailers"}};
  fields.insert(fields.end(), more.begin(), more.end());
  return MakeH2Request(stream, NGHTTP2_FLAG_END_HEADERS, fields, path);
}

std::string MakePrefix(uint32_t n_bytes, char flag) {
  return std::string(1, flag) + BigEndian(n_bytes);
}

std::string MakeCallBody(uint32_t stream, std::string_view message) {
  return MakeH2Frame(
      NGHTTP2_DATA, NGHTTP2_FLAG_END_STREAM, stream,
      absl::StrCat(MakePrefix(static_cast<uint32_t>(message.size())), std::string(message)));
}

std::string MakeHealthCall(uint32_t stream, std::string_view method) {
  const std::string path = absl::StrCat("/grpc.health.v1.Health/", std::string(method));
  return MakeCallHead(stream, path) + MakeCallBody(stream, "");
}

std::vector<H2Frame> FramesIn(std::string_view received) {
  size_t n_whole = 0;
  while (received.size() >= n_whole + kFrameHead &&
         received.size() >= n_whole + FrameBytes(received.substr(n_whole))) {
    n_whole += FrameBytes(received.substr(n_whole));
  }
  return ParseH2Frames(received.substr(0, n_whole));
}

std::map<uint32_t, HttpFields> AnswersIn(std::string_view received) {
  nghttp2_hd_inflater* inflater = nullptr;
  nghttp2_hd_inflate_new(&inflater);
  std::map<uint32_t, HttpFields> answers;
  for (const H2Frame& frame : FramesIn(received)) {
    if (frame.type != NGHTTP2_HEADERS) continue;
    for (HttpField& field : Inflate(inflater, frame.payload)) {
      answers[frame.stream].push_back(std::move(field));
    }
  }
  nghttp2_hd_inflate_del(inflater);
  return answers;
}

std::string FieldIn(std::string_view received, uint32_t stream, std::string_view name) {
  const std::map<uint32_t, HttpFields> answers = AnswersIn(received);
  const auto answer = answers.find(stream);
  if (answer == answers.end()) return "";
  for (const HttpField& field : answer->second) {
    if (field.name == name) return field.value;
  }
  return "";
}

std::optional<Goaway> GoawayIn(std::string_view received) {
  for (const H2Frame& frame : FramesIn(received)) {
    if (frame.type != NGHTTP2_GOAWAY || frame.payload.size() < 8) continue;
    uint32_t code = 0;
    for (size_t i = 4; i < 8; ++i) code = code << 8 | static_cast<unsigned char>(frame.payload[i]);
    return Goaway{code, frame.payload.substr(8)};
  }
  return std::nullopt;
}

}  // namespace lowkey
