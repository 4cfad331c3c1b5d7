#include "engine/scheduler/fair_queue.h"

#include <map>
#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace lowkey {
namespace {

// Serves whoever is next `n_rows` rows, as often as it says; the queue always holds `depth` of
// each.
std::map<std::string, int64_t> Serve(FairQueue& q, const std::map<std::string, double>& weights,
                                     int n_turns, std::map<std::string, int64_t> n_rows = {}) {
  std::map<uint64_t, std::string> owner;
  uint64_t id = 1;
  const auto push = [&](const std::string& tenant) {
    q.Push({id, tenant, weights.at(tenant), 0});
    owner[id++] = tenant;
  };
  for (const auto& [tenant, weight] : weights) push(tenant), push(tenant);
  std::map<std::string, int64_t> served;
  for (int i = 0; i < n_turns; ++i) {
    const uint64_t next = *q.Front();
    const std::string tenant = owner.at(next);
    q.Remove(next);
    const int64_t n = n_rows.contains(tenant) ? n_rows.at(tenant) : 10;
    q.Charge(tenant, n);
    served[tenant] += n;
    push(tenant);
  }
  return served;
}

TEST(FairQueueTest, IsEmptyAtFirst) {
  const FairQueue q;
  EXPECT_EQ(q.Front(), std::nullopt);
  EXPECT_EQ(q.size(), 0);
}

TEST(FairQueueTest, OneTenantGoesInOrderOfArrival) {
  FairQueue q;
  for (uint64_t id : {5, 3, 9}) q.Push({id, "", 1, 0});
  for (uint64_t id : {5, 3, 9}) {
    EXPECT_EQ(q.Front(), id);
    q.Remove(id);
    q.Charge("", 100);
  }
  EXPECT_EQ(q.size(), 0);
}

TEST(FairQueueTest, HigherPriorityGoesFirst) {
  FairQueue q;
  q.Push({1, "", 1, 0});
  q.Push({2, "", 1, -1});
  q.Push({3, "", 1, 2});
  q.Push({4, "", 1, 2});
  for (uint64_t id : {3, 4, 1, 2}) {
    EXPECT_EQ(q.Front(), id);
    q.Remove(id);
  }
}

TEST(FairQueueTest, LowPriorityIsOvertakenABoundedNumberOfTimes) {
  FairQueue q;
  q.Push({1, "", 1, 0});
  int64_t n_overtakes = 0;
  for (uint64_t id = 2; id < 1000; ++id) {
    q.Push({id, "", 1, 3});
    if (*q.Front() == 1) break;
    q.Remove(*q.Front());
    ++n_overtakes;
  }
  EXPECT_EQ(n_overtakes, 3 * FairQueue::kOvertakes - 1);
}

TEST(FairQueueTest, TenantsShareByWeight) {
  FairQueue q;
  const auto served = Serve(q, {{"a", 1}, {"b", 3}}, 4000);
  EXPECT_NEAR(static_cast<double>(served.at("b")) / static_cast<double>(served.at("a")), 3, 0.02);
}

TEST(FairQueueTest, SharesAreOfRowsAndNotOfRequests) {
  FairQueue q;
  const auto served = Serve(q, {{"long", 1}, {"short", 1}}, 4000, {{"long", 70}, {"short", 10}});
  EXPECT_NEAR(static_cast<double>(served.at("long")), static_cast<double>(served.at("short")), 70);
}

TEST(FairQueueTest, AFloodOfOneTenantDoesNotHoldAnotherBack) {
  FairQueue q;
  for (uint64_t id = 1; id <= 1000; ++id) q.Push({id, "flood", 1, 100});
  q.Remove(1);
  q.Charge("flood", 10);
  q.Push({5000, "late", 1, -100});
  q.Remove(*q.Front());  // one of either
  q.Charge("flood", 10);
  EXPECT_EQ(q.Front(), 5000u);
}

TEST(FairQueueTest, IdlingEarnsNoCredit) {
  FairQueue q;
  q.Push({1, "idle", 1, 0});
  q.Remove(1);  // it came and went
  for (uint64_t id = 10; id < 1010; ++id) {
    q.Push({id, "busy", 1, 0});
    q.Remove(id);
    q.Charge("busy", 10);
  }
  q.Push({2000, "busy", 1, 0});
  for (uint64_t id = 3000; id < 3010; ++id) q.Push({id, "idle", 1, 0});
  // Turn about from now on: the thousand rows of before are not made up for.
  int n_idle = 0;
  while (*q.Front() != 2000) {
    q.Remove(*q.Front());
    q.Charge("idle", 10);
    ++n_idle;
  }
  EXPECT_LE(n_idle, 1);
}

TEST(FairQueueTest, WhoComesWhileNobodyWaitsHasNoCreditEither) {
  for (const bool was_there : {false, true}) {
    SCOPED_TRACE(was_there);
    FairQueue q;
    if (was_there) {
      q.Push({1, "new", 1, 0});
      q.Remove(1);
    }
    for (uint64_t id = 10; id < 1010; ++id) {
      q.Push({id, "busy", 1, 0});
      q.Remove(id);
      q.Charge("busy", 10);
    }
    for (uint64_t id = 3000; id < 3010; ++id) q.Push({id, "new", 1, 0});
    q.Push({2000, "busy", 1, 0});
    int n_new = 0;
    while (*q.Front() != 2000) {
      q.Remove(*q.Front());
      q.Charge("new", 10);
      ++n_new;
    }
    EXPECT_LE(n_new, 1);
  }
}

TEST(FairQueueTest, APlaceCanBeTakenAgain) {
  FairQueue q;
  const int64_t place = q.Push({1, "", 1, 0});
  q.Push({2, "", 1, 0});
  q.Remove(1);
  q.PushAt({1, "", 1, 0}, place);
  EXPECT_EQ(q.Front(), 1u);
}

TEST(FairQueueTest, RemovesFromTheMiddleAndIgnoresUnknownIds) {
  FairQueue q;
  for (uint64_t id : {1, 2, 3}) q.Push({id, "t", 1, 0});
  q.Remove(2);
  q.Remove(7);
  q.Charge("nobody", 1);
  q.Remove(1);
  EXPECT_EQ(q.Front(), 3u);
  EXPECT_EQ(q.size(), 1);
}

// VisitAhead visits those whom a queue with the request in it serves before the request.
TEST(FairQueueTest, VisitsThoseAheadInTheOrderOfTheirTurns) {
  std::mt19937 rng(3);
  const auto below = [&rng](uint32_t n) { return static_cast<int>(rng() % n); };
  const char* const tenants[] = {"a", "b", "c", "d"};
  for (int round = 0; round < 300; ++round) {
    FairQueue q;
    std::map<uint64_t, std::string> owner;
    const auto draw = [&](uint64_t id) {
      owner[id] = tenants[below(4)];
      return FairQueue::Waiting{id, owner[id], 1.0 + below(3), below(5) - 2};
    };
    uint64_t id = 1;
    for (const int n = below(30); id <= static_cast<uint64_t>(n); ++id) {
      q.Push(draw(id));
      if (below(3) == 0) q.Charge(tenants[below(4)], below(100));
      if (below(3) == 0) q.Remove(1 + rng() % id);
    }
    const FairQueue::Waiting request = draw(id);
    const auto rows = [](uint64_t of) { return static_cast<int64_t>(7 * of % 40); };
    std::vector<uint64_t> want, got;
    FairQueue played = q;
    played.Push(request);
    while (*played.Front() != id) {
      want.push_back(*played.Front());
      played.Remove(want.back());
      played.Charge(owner[want.back()], rows(want.back()));
    }
    q.VisitAhead(request, [&](uint64_t ahead) {
      got.push_back(ahead);
      return rows(ahead);
    });
    ASSERT_EQ(got, want) << "round " << round;
  }
}

}  // namespace
}  // namespace lowkey
