#include "server/config/variables.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lowkey {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr std::string_view kServeFlags[] = {"port", "host", "cache-bytes"};
constexpr std::string_view kKnownFlags[] = {"server", "port", "host", "cache-bytes", "temperature"};

std::vector<std::string> Unknown(const std::vector<std::string>& variables) {
  return UnknownVariables(variables, kServeFlags, kKnownFlags);
}

TEST(UnknownVariablesTest, NamesTheVariableAndTheNearestFlag) {
  EXPECT_THAT(Unknown({"LOWKEY_CACHE_BYTE"}),
              ElementsAre("LOWKEY_CACHE_BYTE: ignored, as no flag is called so; did you mean "
                          "LOWKEY_CACHE_BYTES?"));
  EXPECT_THAT(Unknown({"LOWKEY_XYLOPHONE", "LOWKEY_PROT"}),
              ElementsAre("LOWKEY_XYLOPHONE: ignored, as no flag is called so",
                          "LOWKEY_PROT: ignored, as no flag is called so; did you mean "
                          "LOWKEY_PORT?"));
}

TEST(UnknownVariablesTest, FlagsOfTheCommandAreMeantBeforeOthers) {
  EXPECT_THAT(Unknown({"LOWKEY_ADDRESS", "LOWKEY_TEMPERATURES"}),
              ElementsAre("LOWKEY_ADDRESS: ignored, as no flag is called so; did you mean "
                          "LOWKEY_HOST?",
                          "LOWKEY_TEMPERATURES: ignored, as no flag is called so; did you mean "
                          "LOWKEY_TEMPERATURE?"));
}

TEST(UnknownVariablesTest, FlagsOfEveryCommandAndOtherSettingsAreKnown) {
  EXPECT_THAT(Unknown({"LOWKEY_PORT", "LOWKEY_TEMPERATURE", "LOWKEY_ISA", "LOWKEY_TOKEN",
                       "LOWKEY_CUDA_LIBRARY", "LOWKEY_TEST_DEVICE", "PATH", "LOWKEYS", ""}),
              IsEmpty());
}

TEST(UnknownVariablesTest, WhatKubernetesSetsForAServiceIsKnown) {
  EXPECT_THAT(Unknown({"LOWKEY_SERVICE_HOST", "LOWKEY_SERVICE_PORT_GRPC", "LOWKEY_PORT",
                       "LOWKEY_PORT_50051_TCP_ADDR"}),
              IsEmpty());
}

}  // namespace
}  // namespace lowkey
