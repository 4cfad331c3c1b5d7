#ifndef LOWKEY_TESTS_SERVER_HTTP_H2_FIXTURE_H_
#define LOWKEY_TESTS_SERVER_HTTP_H2_FIXTURE_H_

#include <gtest/gtest.h>
#include <nghttp2/nghttp2.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tests/server/http/h2_client.h"

namespace lowkey {

inline constexpr int kEndStream = NGHTTP2_FLAG_END_STREAM;
inline constexpr int kEndHeaders = NGHTTP2_FLAG_END_HEADERS;

// A session of the server with a client that nghttp2 plays.
class H2SessionTest : public testing::Test {
 protected:
  void SetUp() override { Restart(); }

  void Restart() { session_ = MakeHttp2Session(host_, limits_, budgets_, now_); }
  void Talk() { client_.Talk(*session_, now_); }

  // Talks after `duration`, with ticks on the way.
  void Wait(absl::Duration duration) {
    const absl::Time end = now_ + duration;
    while (now_ < end) {
      now_ = std::min(now_ + absl::Milliseconds(500), end);
      if (!session_->is_over()) session_->OnTick(now_);
    }
  }

  std::string Output() {
    std::string out;
    while (session_->has_output()) {
      const size_t n_before = out.size();
      session_->Produce(out.size() + 20'000, out, now_);
      if (out.size() == n_before) break;
    }
    return out;
  }

  FakeHost host_;
  HttpLimits limits_;
  HttpBudgets budgets_{.answers = ByteBudget(64 << 20)};
  absl::Time now_ = absl::FromUnixSeconds(1'000'000);
  H2Client client_;
  std::unique_ptr<HttpSession> session_;
};

// A session whose client is made of frames by hand; it has sent its preface.
class H2AttackTest : public H2SessionTest {
 protected:
  void SetUp() override {
    H2SessionTest::SetUp();
    session_->Receive(MakeH2Start(), now_);
    Output();
  }

  // Feeds the bytes until the session is over, as a client that reads everything.
  void Flood(const std::function<std::string(int)>& make, int n_times) {
    for (int i = 0; i < n_times && !session_->is_over(); ++i) {
      session_->Receive(make(i), now_);
      ASSERT_LE(session_->n_exchanges(), limits_.max_streams);
      if (!session_->is_over()) output_ = Output();
    }
    output_ = Output();
  }

  void ExpectGoaway(uint32_t code, std::string_view debug_data = {}) {
    EXPECT_TRUE(session_->is_over());
    EXPECT_EQ(host_.n_live(), 0u);
    const std::vector<H2Frame> frames = ParseH2Frames(output_);
    ASSERT_FALSE(frames.empty());
    EXPECT_EQ(frames.back().type, NGHTTP2_GOAWAY);
    EXPECT_EQ(frames.back().payload.substr(4), BigEndian(code) + std::string(debug_data));
    EXPECT_FALSE(session_->has_output());
  }

  std::string output_;
};

}  // namespace lowkey

#endif  // LOWKEY_TESTS_SERVER_HTTP_H2_FIXTURE_H_
