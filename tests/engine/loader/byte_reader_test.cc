#include "engine/loader/byte_reader.h"

#include <limits>
#include <string>

#include "gtest/gtest.h"

namespace lowkey {
namespace {

ByteReader ReaderOf(const std::string& bytes) {
  return ByteReader({reinterpret_cast<const std::byte*>(bytes.data()), bytes.size()});
}

TEST(ByteReader, ReadsNumbersFrontToBack) {
  const std::string bytes("\x01\x02\x03\xff\xff\xff\xff\x00\x00\x80\x3f", 11);
  ByteReader reader = ReaderOf(bytes);
  EXPECT_EQ(reader.Number<uint8_t>(), 1);
  EXPECT_EQ(reader.Number<uint16_t>(), 0x0302);
  EXPECT_EQ(reader.Number<int32_t>(), -1);
  EXPECT_EQ(reader.Number<float>(), 1.0f);
  EXPECT_EQ(reader.position(), 11u);
  EXPECT_EQ(reader.n_left(), 0u);
  EXPECT_EQ(reader.Number<uint8_t>(), std::nullopt);
}

TEST(ByteReader, WhatDoesNotFitLeavesThePosition) {
  const std::string bytes("\x05\0\0\0\0\0\0\0four", 12);
  ByteReader reader = ReaderOf(bytes);
  EXPECT_EQ(reader.String(), std::nullopt);
  EXPECT_EQ(reader.Take(13), std::nullopt);
  EXPECT_EQ(reader.Take(std::numeric_limits<uint64_t>::max()), std::nullopt);
  EXPECT_EQ(reader.position(), 0u);
  EXPECT_EQ(reader.Number<uint64_t>(), 5u);
  EXPECT_EQ(reader.Number<uint64_t>(), std::nullopt);
  EXPECT_EQ(reader.position(), 8u);
}

TEST(ByteReader, StringsMayBeEmptyAndHoldZeros) {
  const std::string bytes("\0\0\0\0\0\0\0\0\x03\0\0\0\0\0\0\0a\0b", 19);
  ByteReader reader = ReaderOf(bytes);
  EXPECT_EQ(reader.String(), std::string_view());
  EXPECT_EQ(reader.String(), std::string_view("a\0b", 3));
  EXPECT_EQ(reader.String(), std::nullopt);
}

TEST(ByteReader, LengthOf64BitsDoesNotOverflow) {
  const std::string bytes("\xff\xff\xff\xff\xff\xff\xff\xff text", 13);
  ByteReader reader = ReaderOf(bytes);
  EXPECT_EQ(reader.String(), std::nullopt);
  EXPECT_EQ(reader.position(), 0u);
}

}  // namespace
}  // namespace lowkey
