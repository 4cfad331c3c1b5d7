#include "engine/runtime/memory.h"

#include <algorithm>
#include <fstream>
#include <optional>
#include <string>

#include "absl/strings/numbers.h"

namespace lowkey {
namespace {

std::optional<int64_t> ReadNumber(const char* path) {
  std::ifstream in(path);
  std::string word;
  int64_t value = 0;
  if (!(in >> word) || !absl::SimpleAtoi(word, &value)) return std::nullopt;  // "max": no limit
  return value;
}

int64_t MachineAvailableBytes() {
  std::ifstream in("/proc/meminfo");
  std::string key, unit;
  for (int64_t kib = 0; in >> key >> kib >> unit;) {
    if (key == "MemAvailable:") return kib * 1024;
  }
  return int64_t{1} << 30;
}

}  // namespace

int64_t AvailableMemoryBytes() {
  int64_t available = MachineAvailableBytes();
  const auto limit = ReadNumber("/sys/fs/cgroup/memory.max");
  const auto used = ReadNumber("/sys/fs/cgroup/memory.current");
  if (limit.has_value() && used.has_value()) {
    available = std::min(available, std::max<int64_t>(0, *limit - *used));
  }
  return available;
}

}  // namespace lowkey
