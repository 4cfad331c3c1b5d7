#include "server/http/byte_budget.h"

#include <gtest/gtest.h>

#include <memory>

namespace lowkey {
namespace {

TEST(ByteBudgetTest, TakesOfTheWholeToo) {
  ByteBudget whole(100);
  ByteBudget first(80, &whole), second(80, &whole);
  EXPECT_TRUE(first.Take(70));
  EXPECT_FALSE(second.Take(40)) << "the whole has 30";
  EXPECT_EQ(second.left(), 80);
  EXPECT_EQ(first.held(), 70);
  EXPECT_EQ(whole.held(), 70);
  EXPECT_TRUE(second.Take(30));
  EXPECT_FALSE(first.Take(11)) << "of its own";
  EXPECT_EQ(whole.left(), 0);
  first.Give(70);
  second.Give(30);
  EXPECT_EQ(whole.left(), 100);
  EXPECT_EQ(first.left(), 80);
}

TEST(HeldBytesTest, AreGivenBackByTheLastHolder) {
  ByteBudget whole(100);
  auto held = HeldBytes::Take(std::make_shared<ByteBudget>(60, &whole), 50);
  ASSERT_NE(held, nullptr);
  auto also = held;
  held.reset();
  EXPECT_EQ(whole.left(), 50);
  also.reset();
  EXPECT_EQ(whole.left(), 100);
  EXPECT_EQ(HeldBytes::Take(std::make_shared<ByteBudget>(60, &whole), 61), nullptr);
  EXPECT_EQ(whole.left(), 100);
}

}  // namespace
}  // namespace lowkey
