#include "engine/base/machine.h"

#include <algorithm>
#include <filesystem>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/temp_directory.h"

namespace lowkey {
namespace {

constexpr int64_t kGiB = int64_t{1} << 30;

// A machine with 8 GiB available, as its files tell.
class AvailableMemory : public ::testing::Test {
 protected:
  AvailableMemory() {
    Write("/proc/meminfo", "MemTotal: 16777216 kB\nMemFree: 1024 kB\nMemAvailable: 8388608 kB\n");
  }
  void Write(const std::string& path, const std::string& text) const {
    const std::filesystem::path file(root_.path() + path);
    std::filesystem::create_directories(file.parent_path());
    WriteFileOrDie(file.string(), text);
  }
  void WriteGroup(const std::string& directory, const std::string& limit, int64_t used,
                  int64_t cached) const {
    Write(directory + "/memory.max", limit + "\n");
    Write(directory + "/memory.current", std::to_string(used) + "\n");
    Write(directory + "/memory.stat", "anon 5\nfile " + std::to_string(cached) +
                                          "\ninactive_file " + std::to_string(cached - 7) +
                                          "\nactive_file 7\n");
  }
  int64_t Available() const { return AvailableMemoryBytes(root_.path()); }

  TempDirectory root_;
};

TEST_F(AvailableMemory, IsTheMachinesWithoutALimit) {
  EXPECT_EQ(Available(), 8 * kGiB);
  Write("/proc/self/cgroup", "0::/\n");
  WriteGroup("/sys/fs/cgroup", "max", kGiB, 100);
  EXPECT_EQ(Available(), 8 * kGiB);
}

TEST_F(AvailableMemory, IsWhatTheControlGroupLeaves) {
  WriteGroup("/sys/fs/cgroup", std::to_string(4 * kGiB), kGiB, 7);
  EXPECT_EQ(Available(), 3 * kGiB + 7);
  WriteGroup("/sys/fs/cgroup", std::to_string(kGiB), 2 * kGiB, 7);
  EXPECT_EQ(Available(), 0);
}

TEST_F(AvailableMemory, CachedFilesAreAvailable) {
  WriteGroup("/sys/fs/cgroup", std::to_string(4 * kGiB), 4 * kGiB, 3 * kGiB);
  EXPECT_EQ(Available(), 3 * kGiB);
}

TEST_F(AvailableMemory, TheTightestLevelCounts) {
  Write("/proc/self/cgroup", "0::/outer/inner\n");
  WriteGroup("/sys/fs/cgroup/outer", std::to_string(2 * kGiB), kGiB, 7);
  WriteGroup("/sys/fs/cgroup/outer/inner", "max", kGiB, 7);
  EXPECT_EQ(Available(), kGiB + 7);
  WriteGroup("/sys/fs/cgroup/outer/inner", std::to_string(kGiB), kGiB, 7);
  EXPECT_EQ(Available(), 7);
  Write("/proc/self/cgroup", "0::/not/here\n");
  EXPECT_EQ(Available(), 8 * kGiB);
}

TEST_F(AvailableMemory, KnowsTheFirstVersionOfControlGroups) {
  Write("/proc/self/cgroup", "5:cpu:/\n4:memory:/docker/abc\n");
  const std::string directory = "/sys/fs/cgroup/memory";
  Write(directory + "/memory.limit_in_bytes", std::to_string(2 * kGiB));
  Write(directory + "/memory.usage_in_bytes", std::to_string(kGiB));
  EXPECT_EQ(Available(), kGiB);
  Write(directory + "/memory.stat",
        "inactive_file 1\ntotal_inactive_file 5\ntotal_active_file 6\n");
  EXPECT_EQ(Available(), kGiB + 11);
  Write(directory + "/memory.limit_in_bytes", "9223372036854771712");  // none
  EXPECT_EQ(Available(), 8 * kGiB);
}

TEST_F(AvailableMemory, IsAGuessWhereTheSystemTellsNothing) {
  EXPECT_EQ(AvailableMemoryBytes(root_.File("absent")), kGiB);
  EXPECT_GT(AvailableMemoryBytes(), 0);
}

// A machine whose files tell of quotas.
class Cores : public ::testing::Test {
 protected:
  void Write(const std::string& path, const std::string& text) const {
    const std::filesystem::path file(root_.path() + path);
    std::filesystem::create_directories(file.parent_path());
    WriteFileOrDie(file.string(), text);
  }
  int Available() const { return AvailableCores(root_.path()); }

  TempDirectory root_;
  const int all_ = AvailableCores(root_.path());
};

TEST_F(Cores, AreAllWithoutAQuota) {
  EXPECT_GE(all_, 1);
  Write("/proc/self/cgroup", "0::/\n");
  Write("/sys/fs/cgroup/cpu.max", "max 100000\n");
  Write("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", "-1\n");
  Write("/sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(Available(), all_);
}

TEST_F(Cores, AreWhatTheTightestQuotaBuysRoundedUp) {
  Write("/proc/self/cgroup", "0::/pod/container\n");
  Write("/sys/fs/cgroup/pod/cpu.max", "50000 100000\n");
  Write("/sys/fs/cgroup/pod/container/cpu.max", "9900000 100000\n");
  EXPECT_EQ(Available(), 1);
  Write("/sys/fs/cgroup/pod/cpu.max", "100001 100000\n");
  EXPECT_EQ(Available(), std::min(all_, 2));
}

TEST_F(Cores, OfVersion1AreReadToo) {
  Write("/proc/self/cgroup", "3:cpu,cpuacct:/pod\n4:memory:/other\n");
  Write("/sys/fs/cgroup/cpu/pod/cpu.cfs_quota_us", "100000\n");
  Write("/sys/fs/cgroup/cpu/pod/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(Available(), 1);
}

TEST_F(Cores, PassOverFilesThatMakeNoSense) {
  for (const char* text : {"", "max", "0 100000", "-5 100000", "100000 0", "abc def",
                           "9223372036854775807 1", "99999999999999999999 100000"}) {
    Write("/sys/fs/cgroup/cpu.max", std::string(text) + "\n");
    EXPECT_EQ(Available(), all_) << text;
  }
}

}  // namespace
}  // namespace lowkey
