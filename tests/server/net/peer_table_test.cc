#include "server/net/peer_table.h"

#include <gtest/gtest.h>

#include <utility>

namespace lowkey {
namespace {

TEST(PeerTableTest, BoundsConnectionsInAllAndByNetwork) {
  PeerTable table(3, 2);
  EXPECT_EQ(table.Add("a"), std::nullopt);
  EXPECT_EQ(table.Add("a"), std::nullopt);
  EXPECT_EQ(table.Add("a"), NetworkRefusal::kPeerConnections);
  EXPECT_EQ(table.Add("b"), std::nullopt);
  EXPECT_EQ(table.Add("c"), NetworkRefusal::kConnections);
  table.Remove("a");
  EXPECT_EQ(table.Add("c"), std::nullopt);
}

TEST(PeerSeatTest, IsFreeAfterItsEnd) {
  PeerTable table(1, 1);
  {
    PeerSeat seat;
    EXPECT_EQ(seat.Take(table, "a"), std::nullopt);
    PeerSeat other;
    EXPECT_EQ(other.Take(table, "a"), NetworkRefusal::kConnections);
    const PeerSeat moved = std::move(seat);
    EXPECT_EQ(other.Take(table, "a"), NetworkRefusal::kConnections);
  }
  PeerSeat seat;
  EXPECT_EQ(seat.Take(table, "a"), std::nullopt);
  seat.Leave();
  seat.Leave();
  EXPECT_EQ(table.Add("a"), std::nullopt);
  EXPECT_EQ(table.Add("a"), NetworkRefusal::kConnections);
}

}  // namespace
}  // namespace lowkey
