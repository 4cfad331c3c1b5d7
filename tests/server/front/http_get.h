#ifndef LOWKEY_TESTS_SERVER_FRONT_HTTP_GET_H_
#define LOWKEY_TESTS_SERVER_FRONT_HTTP_GET_H_

#include <string>

namespace lowkey {

// A connection to 127.0.0.1 as no well-behaved client would use it. Every read and write gives up
// after 20 s.
class RawConnection {
 public:
  explicit RawConnection(int port);
  ~RawConnection();
  RawConnection(const RawConnection&) = delete;
  RawConnection& operator=(const RawConnection&) = delete;

  bool is_connected() const { return is_connected_; }

  void Send(const std::string& bytes);

  std::string ReadSome();

  // Reads until the server closes, as it must.
  std::string ReadToEnd(bool* is_closed = nullptr);

 private:
  const int socket_;
  bool is_connected_ = false;
};

struct HttpAnswer {
  int code = 0;  // 0: none came
  std::string text;
};

// `fields` are whole lines of the head.
HttpAnswer HttpGet(int port, const std::string& path, const std::string& method = "GET",
                   const std::string& fields = "");

}  // namespace lowkey

#endif  // LOWKEY_TESTS_SERVER_FRONT_HTTP_GET_H_
