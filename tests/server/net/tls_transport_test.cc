// TLS without sockets of the network: a client of OpenSSL's at the other end of a pair.
#include <gtest/gtest.h>
#include <openssl/ssl.h>
#include <sys/socket.h>

#include <algorithm>
#include <memory>
#include <string>

#include "server/net/transport.h"
#include "tests/testing/certificates.h"

namespace lowkey {
namespace {

class TlsTransportTest : public ::testing::Test {
 protected:
  // Both ends have shaken hands.
  void SetUp() override {
    const TestAuthority authority("authority");
    const TestAuthority::Issued issued = authority.Issue("server");
    TlsFiles files;
    files.certificate = issued.certificate;
    files.key = issued.key;
    const auto tls = TlsContext::Make(files);
    ASSERT_TRUE(tls.ok()) << tls.status();
    int ends[2] = {-1, -1};
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends), 0);
    client_socket_ = OwnedSocket(ends[1]);
    context_.reset(SSL_CTX_new(TLS_client_method()));
    client_.reset(SSL_new(context_.get()));
    SSL_set_fd(client_.get(), ends[1]);
    SSL_set_connect_state(client_.get());
    Run([&] { server_ = MakeTransport(*loop_, OwnedSocket(ends[0]), *tls); });
    IoState state = IoState::kWait;
    for (int i = 0; i < 10; ++i) {
      SSL_do_handshake(client_.get());
      Run([&] {
        if (state == IoState::kWait) state = server_->Handshake();
      });
    }
    ASSERT_EQ(state, IoState::kDone);
    ASSERT_EQ(SSL_version(client_.get()), TLS1_3_VERSION);
  }
  void TearDown() override {
    Run([&] { server_.reset(); });
  }

  template <typename Work>
  void Run(const Work& work) {
    loop_->PostAndWait(work);
  }

  // Sends a record that has no data.
  void ChangeKeys() {
    ASSERT_EQ(SSL_key_update(client_.get(), SSL_KEY_UPDATE_NOT_REQUESTED), 1);
    ASSERT_EQ(SSL_do_handshake(client_.get()), 1);
  }
  void Send(const std::string& text) {
    ASSERT_EQ(SSL_write(client_.get(), text.data(), static_cast<int>(text.size())),
              static_cast<int>(text.size()));
  }
  IoResult Read() {
    IoResult result;
    Run([&] { result = server_->Read(buffer_, sizeof(buffer_)); });
    return result;
  }

  struct Freer {
    void operator()(SSL* ssl) const { SSL_free(ssl); }
    void operator()(SSL_CTX* context) const { SSL_CTX_free(context); }
  };
  const std::unique_ptr<EventLoop> loop_ = EventLoop::Start().value();
  std::unique_ptr<Transport> server_;
  OwnedSocket client_socket_;
  std::unique_ptr<SSL_CTX, Freer> context_;
  std::unique_ptr<SSL, Freer> client_;
  char buffer_[1 << 10];
};

TEST_F(TlsTransportTest, AReadReturnsAfterEachRecordWithoutData) {
  for (int i = 0; i < 3; ++i) ChangeKeys();
  Send("abc");
  for (int i = 0; i < 3; ++i) EXPECT_EQ(Read().state, IoState::kWait) << i;
  const IoResult last = Read();
  EXPECT_EQ(last.state, IoState::kDone);
  EXPECT_EQ(std::string(buffer_, last.n_bytes), "abc");
}

TEST_F(TlsTransportTest, SomeChangesOfKeysAreTakenAndAFloodIsNot) {
  int n_changes = 0;
  for (; n_changes < 10'000; ++n_changes) {
    ChangeKeys();
    if (Read().state == IoState::kFailure) break;
    Send("x");
    ASSERT_EQ(Read().state, IoState::kDone) << n_changes;
  }
  EXPECT_GE(n_changes, 1000);
  EXPECT_LT(n_changes, 1010);
}

// As they come over a slow line: reads without data are no sign of a flood.
TEST_F(TlsTransportTest, RecordsInPiecesAreWaitedFor) {
  BIO* const sent = BIO_new(BIO_s_mem());
  SSL_set0_wbio(client_.get(), sent);
  for (int i = 0; i < 2000; ++i) {
    Send("abc");
    char record[256];
    const int n_bytes = BIO_read(sent, record, sizeof(record));
    ASSERT_GT(n_bytes, 12);
    for (int at = 0; at < n_bytes; at += 6) {
      const size_t n = static_cast<size_t>(std::min(6, n_bytes - at));
      ASSERT_EQ(send(client_socket_.get(), record + at, n, 0), static_cast<ssize_t>(n));
      const IoState state = Read().state;
      ASSERT_EQ(state, at + 6 < n_bytes ? IoState::kWait : IoState::kDone) << i;
    }
  }
}

}  // namespace
}  // namespace lowkey
