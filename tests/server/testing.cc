#include "tests/server/testing.h"

#include <cstdio>
#include <cstdlib>

#include "server/model_files/load_tokenizer.h"
#include "tests/testing/source_path.h"

namespace lowkey {

const Tokenizer& TestTokenizer() {
  static const Tokenizer* tokenizer = [] {
    auto loaded = LoadTokenizer(OpenModelFiles(SourcePath("models/tales")).value());
    if (!loaded.ok()) {
      std::fprintf(stderr, "%s\n", loaded.status().ToString().c_str());
      std::abort();
    }
    return loaded->release();
  }();
  return *tokenizer;
}

std::vector<int32_t> BytePieces(const std::string& text) {
  std::vector<int32_t> ids;
  for (const char c : text) {
    char piece[8];
    std::snprintf(piece, sizeof(piece), "<0x%02X>", static_cast<unsigned char>(c));
    ids.push_back(TestTokenizer().PieceToId(piece).value());
  }
  return ids;
}

}  // namespace lowkey
