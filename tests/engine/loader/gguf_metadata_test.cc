#include "engine/loader/gguf_metadata.h"

#include <cmath>
#include <limits>

#include "engine/loader/gguf.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/gguf_builder.h"

namespace lowkey {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string Bytes(auto value) { return GgufBuilder::Bytes(value); }
std::string Type(GgufType type) { return Bytes(static_cast<uint32_t>(type)); }

// A file of metadata alone, which outlives the views into it.
class Metadata : public ::testing::Test {
 protected:
  const GgufMetadata& Read() {
    bytes_ = builder_.Build();
    auto index = ParseGguf({reinterpret_cast<const std::byte*>(bytes_.data()), bytes_.size()}, "f");
    EXPECT_TRUE(index.ok()) << index.status();
    if (index.ok()) metadata_ = std::move(index->metadata);
    return metadata_;
  }

  std::string Error(absl::StatusCode code = absl::StatusCode::kInvalidArgument) {
    bytes_ = builder_.Build();
    const absl::Status status =
        ParseGguf({reinterpret_cast<const std::byte*>(bytes_.data()), bytes_.size()}, "f").status();
    EXPECT_EQ(status.code(), code) << status;
    return std::string(status.message());
  }

  GgufBuilder builder_;
  std::string bytes_;
  GgufMetadata metadata_;
};

TEST_F(Metadata, AbsentKeysAreNothing) {
  const GgufMetadata& m = Read();
  EXPECT_FALSE(m.Has("a"));
  EXPECT_FALSE(m.IsArray("a"));
  EXPECT_EQ(*m.Int("a", 0, 1), std::nullopt);
  EXPECT_EQ(*m.Number("a", 0, 1), std::nullopt);
  EXPECT_EQ(*m.Bool("a"), std::nullopt);
  EXPECT_EQ(*m.String("a"), std::nullopt);
  EXPECT_EQ(*m.Strings("a"), std::nullopt);
  EXPECT_EQ(*m.Floats("a"), std::nullopt);
  EXPECT_EQ(*m.Ints("a"), std::nullopt);
  EXPECT_EQ(m.RequiredInt("a", 1, 5).status().message(), "f: a: missing, expected 1..5");
}

TEST_F(Metadata, IntegersOfEveryWidthAreRead) {
  builder_.Set("u8", GgufType::kUint8, uint8_t{200});
  builder_.Set("i8", GgufType::kInt8, int8_t{-100});
  builder_.Set("u16", GgufType::kUint16, uint16_t{60000});
  builder_.Set("i16", GgufType::kInt16, int16_t{-30000});
  builder_.Set("u32", GgufType::kUint32, uint32_t{4000000000});
  builder_.Set("i32", GgufType::kInt32, int32_t{-2000000000});
  builder_.Set("u64", GgufType::kUint64, uint64_t{1} << 62);
  builder_.Set("i64", GgufType::kInt64, std::numeric_limits<int64_t>::min());
  const GgufMetadata& m = Read();
  const int64_t least = std::numeric_limits<int64_t>::min();
  const int64_t most = std::numeric_limits<int64_t>::max();
  EXPECT_EQ(*m.Int("u8", least, most), 200);
  EXPECT_EQ(*m.Int("i8", least, most), -100);
  EXPECT_EQ(*m.Int("u16", least, most), 60000);
  EXPECT_EQ(*m.Int("i16", least, most), -30000);
  EXPECT_EQ(*m.Int("u32", least, most), 4000000000);
  EXPECT_EQ(*m.Int("i32", least, most), -2000000000);
  EXPECT_EQ(*m.Int("u64", least, most), int64_t{1} << 62);
  EXPECT_EQ(*m.Int("i64", least, most), least);
  EXPECT_EQ(*m.Number("i16", -1e9, 1e9), -30000.0);
  EXPECT_EQ(m.Int("u8", 0, 199).status().message(), "f: u8: 200, expected 0..199");
  EXPECT_EQ(*m.RequiredInt("u8", 200, 200), 200);
}

TEST_F(Metadata, WhatDoesNotFitInt64IsRefusedOnUse) {
  builder_.Set("n", GgufType::kUint64, std::numeric_limits<uint64_t>::max());
  builder_.SetRaw("list", Type(GgufType::kArray) + Type(GgufType::kUint64) + Bytes(uint64_t{1}) +
                              Bytes(std::numeric_limits<uint64_t>::max()));
  const GgufMetadata& m = Read();
  EXPECT_EQ(m.Int("n", 0, 9).status().message(), "f: n: over 2^63, expected 0..9");
  EXPECT_FALSE(m.Number("n", 0, 1e30).ok());
  EXPECT_EQ(m.Ints("list").status().message(),
            "f: list: an array of 1 uint64, expected an array of integers below 2^63");
}

TEST_F(Metadata, FloatsMustBeNumbersInRange) {
  builder_.Float32("x", 0.5f);
  builder_.Set("wide", GgufType::kFloat64, 1e100);
  builder_.Float32("nan", std::nanf(""));
  builder_.Float32("inf", HUGE_VALF);
  const GgufMetadata& m = Read();
  EXPECT_EQ(*m.Number("x", 0, 1), 0.5);
  EXPECT_EQ(*m.Number("wide", 0, 1e200), 1e100);
  EXPECT_EQ(m.Number("x", 1, 2).status().message(), "f: x: 0.5, expected a number in 1..2");
  EXPECT_FALSE(m.Number("nan", -HUGE_VAL, HUGE_VAL).ok());
  EXPECT_FALSE(m.Number("inf", -HUGE_VAL, HUGE_VAL).ok());
}

TEST_F(Metadata, BoolsAreZeroOrOne) {
  builder_.Bool("yes", true);
  builder_.Set("odd", GgufType::kBool, uint8_t{2});
  const GgufMetadata& m = Read();
  EXPECT_EQ(*m.Bool("yes"), true);
  EXPECT_EQ(m.Bool("odd").status().message(), "f: odd: bool 2, expected bool 0 or 1");
}

TEST_F(Metadata, StringsAreBytesInPlace) {
  builder_.String("s", std::string_view("a\0\xff", 3));
  builder_.Strings("list", {"", "two", "three"});
  const GgufMetadata& m = Read();
  const auto text = **m.String("s");
  EXPECT_EQ(text, std::string_view("a\0\xff", 3));
  EXPECT_GE(text.data(), bytes_.data());
  EXPECT_LT(text.data(), bytes_.data() + bytes_.size());
  EXPECT_TRUE(m.IsArray("list"));
  EXPECT_THAT(**m.Strings("list"), ElementsAre("", "two", "three"));
  EXPECT_EQ(m.Bool("s").status().message(), "f: s: \"a\\x00\\xff\", expected bool 0 or 1");
}

TEST_F(Metadata, ArraysOfNumbers) {
  builder_.Int32s("ints", {1, -2, 3});
  builder_.Float32s("floats", {0.5f, -1.0f});
  builder_.Float32s("none", {});
  const GgufMetadata& m = Read();
  EXPECT_THAT(**m.Ints("ints"), ElementsAre(1, -2, 3));
  EXPECT_THAT(**m.Floats("floats"), ElementsAre(0.5f, -1.0f));
  EXPECT_THAT(**m.Floats("none"), ElementsAre());
}

TEST_F(Metadata, AnotherTypeIsNamedWithTheExpectedOne) {
  builder_.Int32s("ints", {1, 2});
  builder_.Uint32("n", 7);
  builder_.String("s", "text");
  const GgufMetadata& m = Read();
  EXPECT_EQ(m.Strings("ints").status().message(),
            "f: ints: an array of 2 int32, expected an array of strings");
  EXPECT_EQ(m.Floats("ints").status().message(),
            "f: ints: an array of 2 int32, expected an array of float32");
  EXPECT_EQ(m.Ints("n").status().message(), "f: n: 7, expected an array of integers below 2^63");
  EXPECT_EQ(m.Int("s", 0, 9).status().message(), "f: s: \"text\", expected 0..9");
  EXPECT_EQ(m.String("n").status().message(), "f: n: 7, expected a string");
  EXPECT_FALSE(m.Int("ints", 0, 9).ok());
}

TEST_F(Metadata, ArraysOfArraysAreUnimplemented) {
  builder_.SetRaw("nested", Type(GgufType::kArray) + Type(GgufType::kArray) + Bytes(uint64_t{1}));
  EXPECT_EQ(Error(absl::StatusCode::kUnimplemented),
            "f: nested: an array of arrays, expected one of numbers or strings");
}

TEST_F(Metadata, UnknownTypesAreRefused) {
  builder_.SetRaw("k", Bytes(uint32_t{13}) + Bytes(uint64_t{0}));
  EXPECT_EQ(Error(), "f: k: type 13, expected 0..12");
  builder_.SetRaw("k", Type(GgufType::kArray) + Bytes(uint32_t{0xffffffff}) + Bytes(uint64_t{0}));
  EXPECT_EQ(Error(), "f: k: type 4294967295, expected 0..12");
}

TEST_F(Metadata, CountsAreCheckedBeforeAnythingIsTaken) {
  for (const GgufType item : {GgufType::kUint8, GgufType::kFloat64, GgufType::kString}) {
    for (const uint64_t count : {uint64_t{100}, uint64_t{1} << 61, ~uint64_t{0}}) {
      builder_.SetRaw("k", Type(GgufType::kArray) + Type(item) + Bytes(count));
      EXPECT_THAT(Error(), HasSubstr("f: k: " + std::to_string(count) + " of type ")) << count;
    }
  }
  // Five strings announced, of which the second is longer than the file.
  builder_.SetRaw("k", Type(GgufType::kArray) + Type(GgufType::kString) + Bytes(uint64_t{5}) +
                           Bytes(std::string_view("one")) + Bytes(~uint64_t{0}) +
                           std::string(64, 'x'));
  EXPECT_THAT(Error(), HasSubstr("f: k: 5 of type string"));
}

TEST_F(Metadata, KeysAreNamedOnceAndNotEmpty) {
  builder_.Uint32("", 1);
  EXPECT_THAT(Error(), HasSubstr("metadata key 0: 0 bytes, expected 1..65535"));
  builder_.Erase("");
  builder_.Uint32("k1", 1);
  builder_.Uint32("k2", 2);
  bytes_ = builder_.Build();
  bytes_[bytes_.find("k2") + 1] = '1';
  const auto index =
      ParseGguf({reinterpret_cast<const std::byte*>(bytes_.data()), bytes_.size()}, "f");
  EXPECT_EQ(index.status().message(), "f: k1: twice, expected each key once");
}

TEST_F(Metadata, UnprintableKeysAreEscapedInMessages) {
  builder_.SetRaw("\x1b[2J", Bytes(uint32_t{99}));
  EXPECT_EQ(Error(), "f: \\x1b[2J: type 99, expected 0..12");
}

}  // namespace
}  // namespace lowkey
