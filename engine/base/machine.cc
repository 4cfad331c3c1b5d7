#include "engine/base/machine.h"

#include <fstream>
#include <thread>

#include "absl/strings/str_cat.h"

namespace lowkey {

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

}  // namespace lowkey
