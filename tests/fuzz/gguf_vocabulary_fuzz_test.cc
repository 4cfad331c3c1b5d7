// The fuzz target over mutations of good vocabularies, always the same ones.

#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <string>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace {

using Random = std::mt19937;

void RunTarget(const std::string& text) {
  LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(text.data()), text.size());
}

std::string MergedSeed() {
  return "mgpt2\npllama-bpe\nt3 <s>\nt4 <u>\nt1 a\nt1 Ġ\nt1 t\nt1 h\nt1 th\nt1 Ġth\nt5 x\n"
         "gt h\ngĠ th\nb0\ne0\nx1\ns0\n";
}

std::string ScoredSeed() {
  std::string seed = "mllama\nt2 <unk>\nt3 <s>\nt3 </s>\nu0\nb1\ne2\ns1\n";
  constexpr char kHex[] = "0123456789ABCDEF";
  for (int byte = 0; byte < 256; ++byte) {
    seed += std::string("t6 <0x") + kHex[byte / 16] + kHex[byte % 16] + ">\n";
  }
  return seed + "t1!▁\nt1\"a\nt1#▁a\nt4$<sep>\nt5%th\n";
}

class GgufVocabularyFuzzTest : public testing::TestWithParam<std::string (*)()> {};

TEST_P(GgufVocabularyFuzzTest, SurvivesTruncation) {
  const std::string seed = GetParam()();
  for (size_t n = 0; n <= seed.size(); n += n < 200 ? 1 : 13) RunTarget(seed.substr(0, n));
}

TEST_P(GgufVocabularyFuzzTest, SurvivesFlippedBitsAndSplicedBytes) {
  const std::string seed = GetParam()();
  Random random(1);
  for (int round = 0; round < 4000; ++round) {
    std::string text = seed;
    for (int n = 1 + static_cast<int>(random() % 3); n > 0; --n) {
      const size_t at = random() % text.size();
      const size_t length = std::min<size_t>(random() % 16, text.size() - at);
      if (random() % 4 == 0) {
        text.erase(at, length);
      } else if (random() % 4 == 0) {
        text.insert(at, seed.substr(random() % seed.size(), length));
      } else {
        text[at] = static_cast<char>(text[at] ^ (1 << random() % 8));
      }
    }
    RunTarget(text);
  }
}

INSTANTIATE_TEST_SUITE_P(Seeds, GgufVocabularyFuzzTest, testing::Values(MergedSeed, ScoredSeed));

}  // namespace
