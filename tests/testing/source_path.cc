#include "tests/testing/source_path.h"

#include <cstdlib>

namespace lowkey {

std::string SourcePath(std::string_view file) {
  const char* named = std::getenv("LOWKEY_SOURCE_DIR");
  const std::string root = named == nullptr ? LOWKEY_SOURCE_DIR : named;
  return (root + "/").append(file);
}

}  // namespace lowkey
