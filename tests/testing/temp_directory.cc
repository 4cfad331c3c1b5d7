#include "tests/testing/temp_directory.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "engine/base/status_macros.h"

namespace lowkey {

TempDirectory::TempDirectory() {
  std::string pattern = (std::filesystem::temp_directory_path() / "lowkey-test-XXXXXX").string();
  LK_CHECK(mkdtemp(pattern.data()) != nullptr);
  path_ = pattern;
}

TempDirectory::~TempDirectory() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::string ReadFileOrDie(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream bytes;
  bytes << file.rdbuf();
  LK_CHECK(file.good());
  return bytes.str();
}

void WriteFileOrDie(const std::string& path, const std::string& bytes) {
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file << bytes;
  file.close();
  LK_CHECK(file.good());
}

}  // namespace lowkey
