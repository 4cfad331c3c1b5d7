#include "tests/server/front/http_get.h"

#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

#include "absl/strings/str_cat.h"

namespace lowkey {

RawConnection::RawConnection(int port) : socket_(socket(AF_INET, SOCK_STREAM, 0)) {
  const timeval patience = {.tv_sec = 20, .tv_usec = 0};
  setsockopt(socket_, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof(patience));
  setsockopt(socket_, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof(patience));
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  is_connected_ =
      connect(socket_, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
}

RawConnection::~RawConnection() { close(socket_); }

void RawConnection::Send(const std::string& bytes) {
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t n = send(socket_, bytes.data() + done, bytes.size() - done, MSG_NOSIGNAL);
    if (n <= 0) return;  // the server may have had enough
    done += static_cast<size_t>(n);
  }
}

std::string RawConnection::ReadSome() {
  char buffer[4096];
  const ssize_t n = recv(socket_, buffer, sizeof(buffer), 0);
  return std::string(buffer, n > 0 ? static_cast<size_t>(n) : 0);
}

std::string RawConnection::ReadToEnd(bool* is_closed) {
  std::string text;
  char buffer[4096];
  ssize_t n = 0;
  while ((n = recv(socket_, buffer, sizeof(buffer), 0)) > 0) {
    text.append(buffer, static_cast<size_t>(n));
  }
  if (is_closed != nullptr) *is_closed = n == 0 || errno == ECONNRESET;
  return text;
}

HttpAnswer HttpGet(int port, const std::string& path, const std::string& method,
                   const std::string& fields) {
  RawConnection connection(port);
  connection.Send(absl::StrCat(method, " ", path, " HTTP/1.1\r\nHost: 127.0.0.1\r\n", fields,
                               "Connection: close\r\n\r\n"));
  HttpAnswer answer;
  answer.text = connection.ReadToEnd();
  if (answer.text.rfind("HTTP/1.1 ", 0) == 0) answer.code = std::atoi(answer.text.c_str() + 9);
  return answer;
}

}  // namespace lowkey
