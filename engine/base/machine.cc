#include "engine/base/machine.h"

#include <algorithm>
#include <fstream>
#include <optional>
#include <thread>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"

namespace lowkey {
namespace {

constexpr int64_t kUnknownBytes = int64_t{1} << 30;

std::optional<int64_t> ReadNumber(const std::string& path) {
  std::ifstream in(path);
  std::string word;
  int64_t value = 0;
  if (!(in >> word) || !absl::SimpleAtoi(word, &value)) return std::nullopt;  // "max": no limit
  return value;
}

// Returns the sum of the numbers of a file of lines "key number ..." whose key is one of two.
std::optional<int64_t> SumOf(const std::string& path, const std::string& a, const std::string& b) {
  std::ifstream in(path);
  std::optional<int64_t> sum;
  std::string key, rest;
  for (int64_t value = 0; in >> key >> value; std::getline(in, rest)) {
    if (key == a || key == b) sum = sum.value_or(0) + value;
  }
  return sum;
}

// The files of a version of control groups.
struct GroupFiles {
  const char *mount, *limit, *used, *cached_active, *cached_inactive;
};
constexpr GroupFiles kVersion2 = {"/sys/fs/cgroup", "memory.max", "memory.current", "active_file",
                                  "inactive_file"};
constexpr GroupFiles kVersion1 = {"/sys/fs/cgroup/memory", "memory.limit_in_bytes",
                                  "memory.usage_in_bytes", "total_active_file",
                                  "total_inactive_file"};

std::optional<int64_t> LeftInGroup(const std::string& directory, const GroupFiles& files) {
  const auto path = [&](const char* name) { return absl::StrCat(directory, "/", name); };
  const auto limit = ReadNumber(path(files.limit)), used = ReadNumber(path(files.used));
  if (!limit.has_value() || !used.has_value()) return std::nullopt;
  const int64_t cached =
      SumOf(path("memory.stat"), files.cached_active, files.cached_inactive).value_or(0);
  return std::max<int64_t>(0, *limit - std::max<int64_t>(0, *used - cached));
}

// Returns the cores whose time a quota of microseconds in each period buys.
std::optional<int64_t> CoresOf(std::optional<int64_t> quota, std::optional<int64_t> period) {
  if (!quota.has_value() || !period.has_value() || *quota <= 0 || *period <= 0) return std::nullopt;
  return (*quota - 1) / *period + 1;
}

std::optional<int64_t> CoresInGroup2(const std::string& directory) {
  std::ifstream in(directory + "/cpu.max");  // "200000 100000", or "max 100000"
  std::string quota_text;
  int64_t quota = 0, period = 0;
  if (!(in >> quota_text >> period) || !absl::SimpleAtoi(quota_text, &quota)) return std::nullopt;
  return CoresOf(quota, period);
}

std::optional<int64_t> CoresInGroup1(const std::string& directory) {
  return CoresOf(ReadNumber(directory + "/cpu.cfs_quota_us"),  // -1: no limit
                 ReadNumber(directory + "/cpu.cfs_period_us"));
}

// Returns the least that `limit` says of a group's directory or of one of those around it. A
// container may see the name that its group has outside: levels that are not there are passed over.
template <typename Limit>
std::optional<int64_t> LeastOfGroups(const std::string& mount, std::string group,
                                     const Limit& limit) {
  std::optional<int64_t> least;
  for (;;) {
    const std::optional<int64_t> here = limit(mount + group);
    if (here.has_value()) least = std::min(least.value_or(*here), *here);
    if (group.empty()) return least;
    group.resize(group.find_last_of('/') == std::string::npos ? 0 : group.find_last_of('/'));
  }
}

// The process's groups, as /proc/self/cgroup names them. Empty: the mount itself.
struct Groups {
  std::string of_2, memory_of_1, cpu_of_1;
};

Groups ReadGroups(const std::string& root) {
  Groups groups;
  std::ifstream in(absl::StrCat(root, "/proc/self/cgroup"));
  for (std::string line; std::getline(in, line);) {  // "0::/name", "4:cpu,cpuacct:/name"
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const std::string name = line.substr(second + 1);
    if (controllers.empty()) groups.of_2 = name;
    for (const absl::string_view controller : absl::StrSplit(controllers, ',')) {
      if (controller == "memory") groups.memory_of_1 = name;
      if (controller == "cpu") groups.cpu_of_1 = name;
    }
  }
  return groups;
}

}  // namespace

std::string MachineName() {
  const std::string cores = absl::StrCat(std::thread::hardware_concurrency(), " cores");
  std::ifstream in("/proc/cpuinfo");
  for (std::string line; std::getline(in, line);) {
    const size_t colon = line.find(": ");
    if (line.starts_with("model name") && colon != std::string::npos) {
      return absl::StrCat(line.substr(colon + 2), ", ", cores);
    }
  }
  return cores;
}

int AvailableCores(const std::string& root) {
  int64_t cores = std::max(1u, std::thread::hardware_concurrency());
  const Groups groups = ReadGroups(root);
  for (const auto& quota :
       {LeastOfGroups(root + "/sys/fs/cgroup", groups.of_2, CoresInGroup2),
        LeastOfGroups(root + "/sys/fs/cgroup/cpu", groups.cpu_of_1, CoresInGroup1)}) {
    if (quota.has_value()) cores = std::min(cores, *quota);
  }
  return static_cast<int>(cores);
}

int64_t AvailableMemoryBytes(const std::string& root) {
  const auto available_kib =
      SumOf(absl::StrCat(root, "/proc/meminfo"), "MemAvailable:", "MemAvailable:");
  int64_t available = available_kib.has_value() ? *available_kib * 1024 : kUnknownBytes;
  const Groups groups = ReadGroups(root);
  const auto left_of = [](const GroupFiles& files) {
    return [&files](const std::string& directory) { return LeftInGroup(directory, files); };
  };
  for (const auto& left :
       {LeastOfGroups(root + kVersion2.mount, groups.of_2, left_of(kVersion2)),
        LeastOfGroups(root + kVersion1.mount, groups.memory_of_1, left_of(kVersion1))}) {
    if (left.has_value()) available = std::min(available, *left);
  }
  return available;
}

}  // namespace lowkey
