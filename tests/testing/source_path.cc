#include "tests/testing/source_path.h"

namespace lowkey {

std::string SourcePath(std::string_view file) {
  return std::string(LOWKEY_SOURCE_DIR "/").append(file);
}

}  // namespace lowkey
