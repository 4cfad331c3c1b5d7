#include "engine/base/machine.h"

#include <algorithm>
#include <fstream>
#include <optional>
#include <thread>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

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

// Returns the least that a group or one of those around it leaves. A container may see the name that
// its group has outside: levels that are not there are passed over.
std::optional<int64_t> LeftInGroups(const std::string& root, std::string group,
                                    const GroupFiles& files) {
  std::optional<int64_t> least;
  for (;;) {
    const auto left = LeftInGroup(absl::StrCat(root, files.mount, group), files);
    if (left.has_value()) least = std::min(least.value_or(*left), *left);
    if (group.empty()) return least;
    group.resize(group.find_last_of('/') == std::string::npos ? 0 : group.find_last_of('/'));
  }
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

int64_t AvailableMemoryBytes(const std::string& root) {
  const auto available_kib =
      SumOf(absl::StrCat(root, "/proc/meminfo"), "MemAvailable:", "MemAvailable:");
  int64_t available = available_kib.has_value() ? *available_kib * 1024 : kUnknownBytes;
  std::ifstream in(absl::StrCat(root, "/proc/self/cgroup"));
  std::string group_of_1, group_of_2;
  for (std::string line; std::getline(in, line);) {  // "0::/name", "4:memory:/name"
    const size_t first = line.find(':'), second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    if (controllers.empty()) group_of_2 = line.substr(second + 1);
    if (controllers == "memory") group_of_1 = line.substr(second + 1);
  }
  for (const auto& left :
       {LeftInGroups(root, group_of_2, kVersion2), LeftInGroups(root, group_of_1, kVersion1)}) {
    if (left.has_value()) available = std::min(available, *left);
  }
  return available;
}

}  // namespace lowkey
