// The real binary with its model on a device: the emulated one, loaded as CUDA's would be.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/integration/child_process.h"

namespace lowkey {
namespace {

using ::testing::HasSubstr;

// Returns the greedy output of a server that was started with `flags`.
std::string Generated(const std::vector<std::string>& flags,
                      const std::vector<std::string>& environment) {
  std::vector<std::string> serve = {LOWKEY_BINARY, "serve",   "--port", "0",
                                    "--dtype",     "float32", "--json"};
  serve.insert(serve.end(), flags.begin(), flags.end());
  ChildProcess server(serve, environment);
  EXPECT_TRUE(server.WaitForOutput("\n"));
  const auto ready = nlohmann::json::parse(server.output(), nullptr, false);
  if (!ready.is_object()) return "";
  ChildProcess client({LOWKEY_BINARY, "generate", "--server",
                       absl::StrCat("127.0.0.1:", ready["port"].get<int>()), "--max-new-tokens",
                       "12", "--temperature", "0", "The fox"});
  EXPECT_EQ(client.Wait(), 0) << client.errors();
  server.Signal(SIGTERM);
  EXPECT_EQ(server.Wait(), 0) << server.errors();
  return client.output();
}

TEST(Device, ServesTheSameTextAsTheCpu) {
  const std::string on_device =
      Generated({"--device", "cuda:0", "--max-batch-tokens", "32", "--cache-bytes", "16M"},
                {"LOWKEY_CUDA_LIBRARY=" LOWKEY_EMULATED_LIBRARY});
  EXPECT_GT(on_device.size(), 12u);
  EXPECT_EQ(on_device, Generated({}, {}));
}

TEST(Device, AMissingLibraryIsNamed) {
  ChildProcess server({LOWKEY_BINARY, "serve", "--device", "cuda:0"},
                      {"LOWKEY_CUDA_LIBRARY=/nowhere/liblowkey_cuda.so"});
  EXPECT_NE(server.Wait(), 0);
  EXPECT_THAT(server.errors(), HasSubstr("--device cuda:0: no CUDA library at /nowhere"));
}

TEST(Device, AutoIsTheCpuWhereThereIsNone) {
  const std::vector<std::string> nowhere = {"LOWKEY_CUDA_LIBRARY=/nowhere/liblowkey_cuda.so"};
  EXPECT_GT(Generated({"--device", "auto"}, nowhere).size(), 12u);
}

}  // namespace
}  // namespace lowkey
