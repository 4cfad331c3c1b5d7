#include "tests/integration/attacks/http_client.h"

#include <openssl/bio.h>
#include <openssl/ssl.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "tests/server/net/sockets.h"

namespace lowkey {
namespace {

using SslContext = std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)>;
using Ssl = std::unique_ptr<SSL, decltype(&SSL_free)>;

constexpr char kLengthField[] = "content-length: ";

// The length of a head's body; field names are compared as the server writes them, in any case.
size_t BodyBytes(std::string head) {
  std::transform(head.begin(), head.end(), head.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  const size_t at = head.find(kLengthField);
  if (at == std::string::npos) return 0;
  return std::strtoul(head.c_str() + at + sizeof(kLengthField) - 1, nullptr, 10);
}

}  // namespace

struct HttpClient::Stream {
  bool Connect(int port, Over over) {
    const timeval patience = {20, 0};
    setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
    if (!lowkey::Connect(socket, port)) return false;
    if (over == Over::kClear) return true;
    ssl.reset(SSL_new(context.get()));
    return SSL_set_fd(ssl.get(), socket.get()) == 1 && SSL_connect(ssl.get()) == 1;
  }

  bool Write(std::string_view bytes) {
    if (ssl == nullptr) return SendAll(socket, bytes);
    return SSL_write(ssl.get(), bytes.data(), static_cast<int>(bytes.size())) > 0;
  }

  // Appends what comes next; false at the end.
  bool Read(std::string& text) {
    char buffer[16 << 10];
    const ssize_t n = ssl == nullptr ? recv(socket.get(), buffer, sizeof(buffer), 0)
                                     : SSL_read(ssl.get(), buffer, sizeof(buffer));
    if (n > 0) text.append(buffer, static_cast<size_t>(n));
    return n > 0;
  }

  const SslContext context{SSL_CTX_new(TLS_client_method()), &SSL_CTX_free};
  const OwnedSocket socket = MakeClientSocket();
  Ssl ssl{nullptr, &SSL_free};
  bool is_connected = false;
};

HttpClient::HttpClient(int port, Over over) : stream_(std::make_unique<Stream>()) {
  stream_->is_connected = stream_->Connect(port, over);
}

HttpClient::~HttpClient() = default;

std::string HttpClient::Get(std::string_view path, std::string_view token) {
  std::string request = absl::StrCat("GET ", std::string(path), " HTTP/1.1\r\nHost: 127.0.0.1\r\n");
  if (!token.empty())
    absl::StrAppend(&request, "Authorization: Bearer ", std::string(token), "\r\n");
  if (!stream_->is_connected || !stream_->Write(request + "\r\n")) return "";
  std::string answer;
  size_t head_end;
  while ((head_end = answer.find("\r\n\r\n")) == std::string::npos) {
    if (!stream_->Read(answer)) return "";
  }
  const size_t n_bytes = head_end + 4 + BodyBytes(answer.substr(0, head_end));
  while (answer.size() < n_bytes) {
    if (!stream_->Read(answer)) return "";
  }
  return answer;
}

std::string MakeClientHello() {
  const SslContext context(SSL_CTX_new(TLS_client_method()), &SSL_CTX_free);
  const Ssl ssl(SSL_new(context.get()), &SSL_free);
  BIO* const out = BIO_new(BIO_s_mem());
  SSL_set_bio(ssl.get(), BIO_new(BIO_s_mem()), out);
  SSL_connect(ssl.get());  // waits for an answer that never comes
  char* data = nullptr;
  const long n_bytes = BIO_get_mem_data(out, &data);
  return {data, static_cast<size_t>(n_bytes)};
}

}  // namespace lowkey
