#include "server/api/calls/request_link.h"

#include <gtest/gtest.h>

#include "tests/server/fake_engine.h"
#include "tests/server/testing.h"

namespace lowkey {
namespace {

class RequestLinkTest : public ::testing::Test {
 protected:
  RequestId Submit() {
    struct Ignore : Sink {
      SinkAnswer OnToken(int32_t, const SampledToken&) override { return SinkAnswer::kContinue; }
      void OnDone(const FinalEvent&) override {}
    };
    return *engine_.Submit(EngineRequest(), std::make_unique<Ignore>());
  }

  FakeEngine engine_;
  TextService service_{engine_, TestTokenizer(), {"tales", {}}};
  RequestLink link_{service_};
};

TEST_F(RequestLinkTest, WhatComesBeforeTheIdsReachesThemAll) {
  link_.Resume();
  EXPECT_FALSE(engine_.WaitForResumes(1, absl::ZeroDuration()));
  link_.Submitted({Submit(), Submit()});
  EXPECT_TRUE(engine_.WaitForResumes(2, absl::ZeroDuration()));
  EXPECT_EQ(engine_.ids().size(), 2u);

  RequestLink cancelled(service_);
  cancelled.Cancel();
  EXPECT_EQ(engine_.ids().size(), 2u);
  cancelled.Submitted({engine_.ids()[0], engine_.ids()[1]});
  EXPECT_TRUE(engine_.ids().empty());
}

TEST_F(RequestLinkTest, WhatComesAfterTheIdsReachesThemAtOnce) {
  link_.Submitted({Submit()});
  link_.Resume();
  link_.Resume();
  EXPECT_TRUE(engine_.WaitForResumes(2, absl::ZeroDuration()));
  link_.Cancel();
  EXPECT_TRUE(engine_.ids().empty());
}

}  // namespace
}  // namespace lowkey
