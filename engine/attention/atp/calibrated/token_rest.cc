#include "engine/attention/atp/calibrated/token_rest.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "engine/base/dtype.h"
#include "engine/base/round_up.h"
#include "engine/lowrank/codebook.h"

namespace lowkey {
namespace {

constexpr int kMaxBits = 4, kMostCells = 16, kMostLevel = TokenRest::kMostLevel;
constexpr int kIndexBands = LevelBands::kBands;
constexpr int64_t kLevelStep = 32;  // of products with int8
// A scale is 2^((byte - 128) / 8). Those so many steps from a vector's own size are tried.
constexpr int kScalesPerOctave = 8, kScaleMiddle = 128;
constexpr int kScaleTrials[] = {-4, 0, 4, 9};

// Books holds the quantizers of unit variance, with levels that are integers in one unit.
struct Books {
  Books() {
    for (int bits = 1; bits <= kMaxBits; ++bits) {
      Book& book = books[bits];
      book.code = CodebookOf(Density::kGaussian, bits);
      for (size_t i = 0; i < book.code.levels.size(); ++i) {
        book.levels[i] = static_cast<int8_t>(std::lround(book.code.levels[i] / Unit()));
      }
    }
    for (int codes = 0; codes < 256; ++codes) {
      scales[codes] = std::exp2(static_cast<float>(codes - kScaleMiddle) / kScalesPerOctave);
    }
    for (int band = 0; band < kIndexBands; ++band) AddCells(band);
  }
  static float Unit() {
    return CodebookOf(Density::kGaussian, kMaxBits).levels.back() / kMostLevel;
  }

  struct Book {
    Codebook code;
    std::array<int8_t, 1 << kMaxBits> levels = {};
  };
  Book books[kMaxBits + 1];
  float scales[256];
  // parts holds, by band of the index, bits, and level and part (PartAt), the level of that part in
  // units of kLeadUnit, and without bits the level itself.
  int8_t parts[kIndexBands][kMaxBits + 1][kMostCells << kMaxBits] = {};
  static int PartAt(int level, int part) { return level << kMaxBits | part; }

 private:
  void AddCells(int band) {
    const float unit = Unit() * TokenRest::kLeadUnit * kMostLevel / LevelBook::kMost;
    const auto level_of = [unit](float x) {
      return static_cast<int8_t>(std::clamp<long>(std::lround(x / unit), -kMostLevel, kMostLevel));
    };
    const int index_bits = LevelBands::kBits[band];
    const Codebook index = CodebookOf(Density::kGaussian, index_bits);
    for (int cell = 0; cell < 1 << index_bits; ++cell) {
      parts[band][0][PartAt(cell, 0)] = level_of(index.levels[cell]);
      for (int bits = 1; bits <= kMaxBits; ++bits) {
        const Codebook fine = GaussianCellCodebook(index_bits, cell, bits);
        for (int i = 0; i < 1 << bits; ++i) {
          parts[band][bits][PartAt(cell, i)] = level_of(fine.levels[i]);
        }
      }
    }
  }
};

const Books& AllBooks() {
  static const Books* const books = new Books;
  return *books;
}

// Appends groups of the components [begin, end).
void AddGroups(int64_t begin, int64_t end, int band, std::vector<TokenRest::Group>& groups) {
  constexpr int64_t kMost = TokenRest::Group::kMost;
  for (int64_t first = begin; first < end; first += kMost) {
    groups.push_back({first, std::min(kMost, end - first), band, 0});
  }
}

// Returns by how much a bit more of each of a group's components, which takes a byte, lowers the
// expected error.
double GainOf(absl::Span<const float> variances, const TokenRest::Group& group) {
  if (group.bits == kMaxBits) return 0;
  double sum = 0;
  for (int64_t j = group.first; j < group.end(); ++j) sum += variances[j];
  const int bits = group.bits + (group.band < kIndexBands ? LevelBands::kBits[group.band] : 0);
  return sum * (GaussianDistortion(bits) - GaussianDistortion(bits + 1));
}

void FillRows(const PrincipalCode& code, int64_t width, TokenRest::Half& half) {
  half.width = width;
  half.rows.assign(half.n_padded() * width, 0.0f);
  for (int64_t j = 0; j < half.n(); ++j) {
    const int64_t component = half.first + j;
    const float size = Books::Unit() * std::sqrt(code.variances[component]);
    for (int64_t i = 0; i < code.dim; ++i) {
      half.rows[j * width + i] = size * ToFloat(BFloat16{code.decode[i * code.dim + component]});
    }
  }
}

TokenRest::Half MakeHalf(const PrincipalCode& code, const LevelBands& bands, int64_t n_bytes,
                         int64_t width) {
  TokenRest::Half half = TokenRest::PlanHalf(code.variances, bands, n_bytes);
  FillRows(code, width, half);
  return half;
}

using TokenFloats = std::array<float, kCodedTokens>;
using TokenBytes = std::array<uint8_t, kCodedTokens>;

// Stores one number's codes of 64 tokens, each as number i of a group, which begins at `to` of the
// first token.
void StoreCodes(const uint8_t* codes, int bits, int64_t i, std::byte* to, int64_t token_bytes) {
  const int64_t bit = i * bits;
  for (int64_t t = 0; t < kCodedTokens; ++t) {
    std::byte* at = to + t * token_bytes + bit / 8;
    const int code_bits = codes[t] << (bit % 8);
    at[0] |= static_cast<std::byte>(code_bits);
    if (bit % 8 + bits > 8) at[1] |= static_cast<std::byte>(code_bits >> 8);
  }
}

// Chooses scales for 64 vectors and quantizes them.
class Encoder {
 public:
  Encoder(const PrincipalCode& code, const TokenRest::Half& half, const float* numbers)
      : half_(half), numbers_(numbers) {
    for (const TokenRest::Group& group : half.numbers) {
      bits_.insert(bits_.end(), group.n, group.bits);
    }
    const auto first = code.variances.begin() + half.first;
    variances_.assign(first, first + half.n());
  }

  // Returns the bytes of the scales with the least error.
  TokenBytes ChooseScales() const {
    const std::array<int, kCodedTokens> sizes = Sizes();
    TokenBytes best = {};
    TokenFloats least;
    least.fill(std::numeric_limits<float>::infinity());
    for (const int step : kScaleTrials) {
      TokenBytes scales;
      for (int64_t t = 0; t < kCodedTokens; ++t) {
        scales[t] = static_cast<uint8_t>(std::clamp(sizes[t] + step, 0, 255));
      }
      const TokenFloats errors = Errors(scales);
      for (int64_t t = 0; t < kCodedTokens; ++t) {
        if (errors[t] < least[t]) least[t] = errors[t], best[t] = scales[t];
      }
    }
    return best;
  }

  // Returns the codes of number `j`. NaN has code 0.
  TokenBytes Codes(int64_t j, const TokenBytes& scales) const {
    TokenFloats x, codes = {};
    ScaleNumber(j, Inverses(scales), x);
    for (const float threshold : BookOf(j).code.thresholds) AddAbove(x, threshold, 1, codes);
    TokenBytes out;
    for (int64_t t = 0; t < kCodedTokens; ++t) out[t] = static_cast<uint8_t>(codes[t]);
    return out;
  }

 private:
  // Returns the byte of the scale that is each vector's own size: the root of its sum of squares,
  // relative to what the calibration found.
  std::array<int, kCodedTokens> Sizes() const {
    TokenFloats squares = {};
    float expected = 0;
    for (int64_t j = 0; j < half_.n(); ++j) {
      expected += variances_[j];
      const float* x = numbers_ + j * kCodedTokens;
      for (int64_t t = 0; t < kCodedTokens; ++t) squares[t] += x[t] * x[t];
    }
    std::array<int, kCodedTokens> sizes = {};
    for (int64_t t = 0; t < kCodedTokens; ++t) {
      const float ratio = squares[t] / expected;
      if (!(ratio > 1e-9f) || !std::isfinite(ratio)) continue;
      const float octaves = 0.5f * std::log2(ratio);
      sizes[t] = kScaleMiddle + static_cast<int>(std::lround(octaves * kScalesPerOctave));
    }
    return sizes;
  }

  static TokenFloats Inverses(const TokenBytes& scales) {
    TokenFloats inverses;
    for (int64_t t = 0; t < kCodedTokens; ++t) inverses[t] = 1 / AllBooks().scales[scales[t]];
    return inverses;
  }

  const Books::Book& BookOf(int64_t j) const { return AllBooks().books[bits_[j]]; }

  // Sets x to number `j` in units of its deviation and of each token's scale.
  void ScaleNumber(int64_t j, const TokenFloats& inverses, TokenFloats& x) const {
    const float deviation = std::sqrt(variances_[j]), inverse = deviation > 0 ? 1 / deviation : 0;
    const float* numbers = numbers_ + j * kCodedTokens;
    for (int64_t t = 0; t < kCodedTokens; ++t) x[t] = numbers[t] * inverse * inverses[t];
  }

  // Adds `step` for each token whose x has reached a threshold; a loop that compilers vectorize.
  static void AddAbove(const TokenFloats& x, float threshold, float step, TokenFloats& sums) {
    for (int64_t t = 0; t < kCodedTokens; ++t) sums[t] += x[t] >= threshold ? step : 0.0f;
  }

  // Returns each token's squared error.
  TokenFloats Errors(const TokenBytes& scales) const {
    TokenFloats errors = {}, x, levels;
    const TokenFloats inverses = Inverses(scales);
    for (int64_t j = 0; j < half_.n(); ++j) {
      const Codebook& book = BookOf(j).code;
      ScaleNumber(j, inverses, x);
      levels.fill(book.levels[0]);
      for (size_t i = 0; i < book.thresholds.size(); ++i) {
        AddAbove(x, book.thresholds[i], book.levels[i + 1] - book.levels[i], levels);
      }
      for (int64_t t = 0; t < kCodedTokens; ++t) {
        errors[t] += variances_[j] * (x[t] - levels[t]) * (x[t] - levels[t]);
      }
    }
    for (int64_t t = 0; t < kCodedTokens; ++t) {
      errors[t] *= AllBooks().scales[scales[t]] * AllBooks().scales[scales[t]];
    }
    return errors;
  }

  const TokenRest::Half& half_;
  const float* const numbers_;
  std::vector<int> bits_;
  std::vector<float> variances_;
};

// Spreads eight numbers of kBits each, one behind the other, to a byte each.
template <int kBits>
uint64_t Spread(uint64_t x) {
  constexpr auto low = [](int bits) { return (uint64_t{1} << bits) - 1; };
  x = (x | x << (32 - 4 * kBits)) & low(4 * kBits) * 0x100000001;
  x = (x | x << (16 - 2 * kBits)) & low(2 * kBits) * 0x1000100010001;
  return (x | x << (8 - kBits)) & low(kBits) * 0x101010101010101;
}

// Returns the codes of a group, a byte each.
template <int kBits>
uint64_t CodesOf(const uint8_t* bytes) {
  uint64_t bits = 0;
  for (int i = 0; i < kBits; ++i) bits |= uint64_t{bytes[i]} << (8 * i);
  return Spread<kBits>(bits);
}

uint64_t CodesOf(const TokenRest::Group& group, const uint8_t* bytes) {
  switch (group.bits) {
    case 0:
      return 0;
    case 1:
      return CodesOf<1>(bytes);
    case 2:
      return CodesOf<2>(bytes);
    case 3:
      return CodesOf<3>(bytes);
    default:
      return CodesOf<4>(bytes);
  }
}

// Writes to each of a group's n numbers the table's entry for its code, a byte of `codes`. With
// kBehind the code lies behind the bits of what the number is before: table[to[i] << kMaxBits |
// code].
template <bool kBehind>
void LookUp(uint64_t codes, const int8_t* table, int64_t n, int8_t* to) {
  const auto all = [&](auto count) {
    uint64_t before = 0;
    if (kBehind) std::memcpy(&before, to, count);
    const uint64_t indices = before << kMaxBits | codes;
    for (int64_t i = 0; i < count; ++i) to[i] = table[indices >> (8 * i) & 255];
  };
  if (n == TokenRest::Group::kMost) {
    all(std::integral_constant<int64_t, TokenRest::Group::kMost>());
  } else {
    all(n);
  }
}

}  // namespace

int64_t TokenRest::Half::n_padded() const { return RoundUp(n(), kLevelStep); }

int64_t TokenRest::MaxPadded(int64_t dim) { return RoundUp(dim, kLevelStep); }

int64_t TokenRest::KeyBytes(int64_t dim) { return 1 + (dim + 3) / 4; }

int64_t TokenRest::ValueBytes(int64_t dim) { return 1 + (11 * dim + 31) / 32; }

TokenRest::Half TokenRest::PlanHalf(absl::Span<const float> variances, const LevelBands& bands,
                                    int64_t n_bytes) {
  const auto dim = static_cast<int64_t>(variances.size());
  Half half;
  half.n_bytes = n_bytes;
  std::vector<Group> groups;
  int64_t begin = 0;
  for (int band = 0; band < kIndexBands; ++band) {
    const int64_t end = std::min(begin + bands.n[band], dim);
    AddGroups(begin, end, band, groups);
    begin = end;
  }
  half.first = begin;
  AddGroups(begin, dim, kIndexBands, groups);
  for (int64_t n_left = n_bytes - 1; n_left > 0; --n_left) {
    const auto best =
        std::max_element(groups.begin(), groups.end(), [&](const Group& a, const Group& b) {
          return GainOf(variances, a) < GainOf(variances, b);
        });
    if (best == groups.end() || !(GainOf(variances, *best) > 0)) break;
    ++best->bits;
  }
  for (Group group : groups) {
    if (group.band < kIndexBands) {
      half.refined.push_back(group);
      half.n_refined_bytes += group.bits;
    } else if (group.bits > 0) {
      group.first -= half.first;
      half.numbers.push_back(group);
    }
  }
  return half;
}

void TokenRest::AddKeys(const PrincipalCode& code, const LevelBands& bands, int64_t width) {
  keys_.push_back(MakeHalf(code, bands, KeyBytes(code.dim), width));
}

void TokenRest::AddValues(const PrincipalCode& code, const LevelBands& bands, int64_t width) {
  values_.push_back(MakeHalf(code, bands, ValueBytes(code.dim), width));
}

uint8_t TokenRest::PartOf(float number, const Group& group, uint8_t level) {
  const auto thresholds =
      GaussianCellCodebook(LevelBands::kBits[group.band], level, group.bits).thresholds;
  // NaN is in the first part.
  const auto n = std::count_if(thresholds.begin(), thresholds.end(),
                               [number](float threshold) { return number >= threshold; });
  return static_cast<uint8_t>(n);
}

void TokenRest::Encode(const PrincipalCode& code, const Half& half, absl::Span<const uint8_t> parts,
                       const float* numbers, std::byte* out, int64_t token_bytes) {
  const Encoder encoder(code, half, numbers);
  const TokenBytes scales = encoder.ChooseScales();
  for (int64_t t = 0; t < kCodedTokens; ++t) {
    std::fill_n(out + t * token_bytes, half.bytes(), std::byte{0});
    out[t * token_bytes] = std::byte{scales[t]};
  }
  std::byte* to = out + 1;
  for (const Group& group : half.refined) {
    for (int64_t i = 0; i < group.n && group.bits > 0; ++i) {
      const uint8_t* codes = parts.data() + (group.first + i) * kCodedTokens;
      StoreCodes(codes, group.bits, i, to, token_bytes);
    }
    to += group.bits;
  }
  for (const Group& group : half.numbers) {
    for (int64_t i = 0; i < group.n; ++i) {
      StoreCodes(encoder.Codes(group.first + i, scales).data(), group.bits, i, to, token_bytes);
    }
    to += group.bits;
  }
}

float TokenRest::Read(const Half& half, const std::byte* from, int8_t* levels) {
  const Books& books = AllBooks();
  const auto* codes = reinterpret_cast<const uint8_t*>(from);
  const float scale = books.scales[*codes++];
  codes += half.n_refined_bytes;
  for (const Group& group : half.numbers) {
    LookUp<false>(CodesOf(group, codes), books.books[group.bits].levels.data(), group.n,
                  levels + group.first);
    codes += group.bits;
  }
  return scale;
}

void TokenRest::ReadLead(const Half& half, const std::byte* from, int8_t* codes) {
  const Books& books = AllBooks();
  const auto* parts = reinterpret_cast<const uint8_t*>(from) + 1;
  for (const Group& group : half.refined) {
    LookUp<true>(CodesOf(group, parts), books.parts[group.band][group.bits], group.n,
                 codes + group.first);
    parts += group.bits;
  }
}

}  // namespace lowkey
