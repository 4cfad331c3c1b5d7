#include "engine/kernels/device/device.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "tests/testing/temp_directory.h"

namespace lowkey {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

// Opens with LOWKEY_CUDA_LIBRARY naming `library`; ctest names the build's own by it.
absl::Status OpenWith(const std::string& library, const std::string& name) {
  const char* before = std::getenv("LOWKEY_CUDA_LIBRARY");
  const std::string kept = before == nullptr ? "" : before;
  setenv("LOWKEY_CUDA_LIBRARY", library.c_str(), 1);
  const absl::Status status = OpenDevice(name).status();
  setenv("LOWKEY_CUDA_LIBRARY", kept.c_str(), 1);
  return status;
}

TEST(OpenDeviceTest, RefusesOtherNames) {
  for (const char* name : {"", "cuda", "cuda:", "cuda:-1", "cuda:+1", "cuda:one", "cuda:0 ",
                           " cuda:0", "cuda:99999999999999999999", "CUDA:0", "gpu:0", "cpu"}) {
    const absl::Status status = OpenDevice(name).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << name;
    EXPECT_THAT(std::string(status.message()), HasSubstr("expected cuda:N")) << name;
  }
}

TEST(OpenDeviceTest, OpensOrSaysWhatIsMissing) {
  const auto device = OpenDevice("cuda:0");
  if (device.ok()) {
    EXPECT_THAT((*device)->name(), StartsWith("cuda:0 "));
    return;
  }
  EXPECT_EQ(device.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(
      std::string(device.status().message()),
      testing::AllOf(
          StartsWith("cuda:0: "),
          testing::AnyOf(HasSubstr("this build has no CUDA"), HasSubstr("no GPU, or no driver"),
                         HasSubstr("no CUDA library at"), HasSubstr("libcublasLt"))));
}

// Opens the build's own library, where there is one.
TEST(OpenDeviceTest, NoMachineHasTenThousandDevices) {
  const absl::Status status = OpenDevice("cuda:9999").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), StartsWith("cuda:9999: "));
}

TEST(OpenDeviceTest, NamesTheLibraryThatIsNotThere) {
  const absl::Status status = OpenWith("/nonexistent/liblowkey_cuda.so", "cuda:0");
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(status.message(),
            "cuda:0: no CUDA library at /nonexistent/liblowkey_cuda.so (LOWKEY_CUDA_LIBRARY names "
            "another place)");
}

TEST(OpenDeviceTest, SaysWhyALibraryCannotBeLoaded) {
  TempDirectory folder;
  const std::string path = folder.path() + "/liblowkey_cuda.so";
  std::ofstream(path) << "no library";
  const absl::Status status = OpenWith(path, "cuda:0");
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("liblowkey_cuda.so: "));
}

TEST(OpenDeviceTest, CallsNothingInALibraryOfAnotherBuild) {
  const absl::Status status = OpenWith(LOWKEY_OTHER_BUILD, "cuda:0");
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("of another build"));
}

TEST(OpenDeviceTest, GivesTheNumberAndPassesTheErrorOn) {
  const absl::Status status = OpenWith(LOWKEY_SAME_BUILD, "cuda:7");
  EXPECT_EQ(status, absl::ResourceExhaustedError("cuda:7: no room on device 7"));
}

}  // namespace
}  // namespace lowkey
