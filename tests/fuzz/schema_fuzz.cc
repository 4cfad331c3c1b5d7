// One input is a description of a text: its first byte chooses the form, the second draws tokens.
// What compiles within the budget gives masks that agree with Advance, and only texts that can be
// finished; JSON that is complete parses.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/base/status_macros.h"
#include "nlohmann/json.hpp"
#include "server/grammar/compile.h"
#include "server/grammar/constraint.h"

namespace {

using lowkey::grammar::Budget;
using lowkey::grammar::GrammarConstraint;
using lowkey::grammar::Vocabulary;

constexpr int kSteps = 64;
constexpr int32_t kEnd = 256;

std::shared_ptr<const Vocabulary> Tokens() {
  static const auto tokens = [] {
    std::vector<std::string> texts;
    for (int i = 0; i < 256; ++i) texts.push_back(std::string(1, static_cast<char>(i)));
    texts.push_back("");
    for (const char* text : {"\":", "\",", "\"}", "{\"", "\": ", "}}", "]}", "12", "true", "ab"}) {
      texts.push_back(text);
    }
    return std::make_shared<const Vocabulary>(texts, std::vector<int32_t>{kEnd});
  }();
  return tokens;
}

absl::StatusOr<std::shared_ptr<const lowkey::grammar::Grammar>> Compile(int form,
                                                                        std::string_view text) {
  Budget budget;
  switch (form) {
    case 0:
      return lowkey::grammar::CompileRegex(text, budget);
    case 1:
      return lowkey::grammar::CompileEbnf(text, budget);
    case 2:
      return lowkey::grammar::CompileChoice({std::string(text)}, budget);
    default:
      return lowkey::grammar::CompileJsonSchema(text, budget);
  }
}

bool MayCome(absl::Span<const uint64_t> mask, int32_t token) {
  return (mask[token / 64] >> (token % 64) & 1) != 0;
}

void Walk(GrammarConstraint& constraint, std::mt19937& random, bool is_json) {
  const auto tokens = Tokens();
  std::string text;
  for (int step = 0; step < kSteps; ++step) {
    const auto mask = constraint.Mask();
    if (!mask.ok()) {  // every byte is a token: there is no dead end
      LK_CHECK(absl::IsResourceExhausted(mask.status()));
      return;
    }
    std::vector<int32_t> allowed;
    for (int32_t t = 0; t < tokens->vocab_size(); ++t) {
      if (MayCome(*mask, t)) allowed.push_back(t);
    }
    const auto refused = static_cast<int32_t>(random() % tokens->vocab_size());
    if (!MayCome(*mask, refused)) LK_CHECK(!constraint.Copy()->Advance(refused).ok());
    int32_t token = allowed[random() % allowed.size()];
    if (MayCome(*mask, kEnd) && random() % 4 == 0) token = kEnd;
    const absl::Status status = constraint.Advance(token);
    if (absl::IsResourceExhausted(status)) return;
    LK_CHECK(status.ok());
    if (token == kEnd) {
      LK_CHECK(!is_json || nlohmann::json::accept(text));
      return;
    }
    text.append(tokens->text(token));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2 || size > lowkey::grammar::kMaxGrammarBytes) return 0;
  const int form = data[0] % 8;
  const auto grammar =
      Compile(form, std::string_view(reinterpret_cast<const char*>(data) + 2, size - 2));
  if (!grammar.ok()) {
    LK_CHECK(absl::IsInvalidArgument(grammar.status()));
    return 0;
  }
  LK_CHECK((*grammar)->n_states() <= lowkey::grammar::kMaxStates);
  const auto cache = std::make_shared<lowkey::grammar::MaskCache>(1 << 20);
  std::mt19937 random(data[1]);
  GrammarConstraint constraint({*grammar, Tokens(), cache});
  Walk(constraint, random, form > 2);
  return 0;
}
