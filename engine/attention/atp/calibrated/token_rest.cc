#include "engine/attention/atp/calibrated/token_rest.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "engine/attention/pages/paged_kv.h"
#include "engine/base/dtype.h"
#include "engine/base/round_up.h"
#include "engine/lowrank/laplacian.h"

namespace lowkey {
namespace {

constexpr int kMinBits = 2, kMaxBits = 4, kLeadLevels = 16, kMostLevel = TokenRest::kMostLevel;
constexpr int64_t kLevelStep = 32;  // of products with int8
// A scale is 2^((byte - 128) / 8). Those so many steps from a vector's own size are tried.
constexpr int kScalesPerOctave = 8, kScaleMiddle = 128;
constexpr int kScaleTrials[] = {-4, 0, 4, 9};

// Books holds the quantizers of unit variance, with levels that are integers in one unit.
struct Books {
  Books() {
    for (int bits = kMinBits; bits <= kMaxBits; ++bits) {
      Book& book = books[bits];
      book.code = LaplacianCodebook(bits);
      for (size_t i = 0; i < book.code.levels.size(); ++i) {
        book.levels[i] = static_cast<int8_t>(std::lround(book.code.levels[i] / Unit()));
      }
    }
    for (int codes = 0; codes < 256; ++codes) {
      for (int i = 0; i < 4; ++i) fours[codes][i] = books[2].levels[codes >> (2 * i) & 3];
      for (int i = 0; i < 2; ++i) {
        sixes[codes % 64][i] = books[3].levels[codes % 64 >> (3 * i) & 7];
        pairs[codes][i] = books[4].levels[codes >> (4 * i) & 15];
      }
      scales[codes] = std::exp2(static_cast<float>(codes - kScaleMiddle) / kScalesPerOctave);
    }
    for (int level = 0; level < kLeadLevels; ++level) AddCell(level);
  }
  static float Unit() { return LaplacianCodebook(kMaxBits).levels.back() / kMostLevel; }

  struct Book {
    Codebook code;
    std::array<int8_t, 1 << kMaxBits> levels = {};
  };
  Book books[kMaxBits + 1];
  // Each entry has the levels of four codes of 2 bits, of two of 3, or of two of 4.
  int8_t fours[256][4], sixes[64][2], pairs[256][2];
  float scales[256];
  // The cell of level i begins at cell_begins[i] and is 1 / cell_inverses[i] wide.
  float cell_begins[kLeadLevels], cell_inverses[kLeadLevels];
  // By bits, level and part: the middle of the part, and without bits the level itself.
  int8_t parts[kMaxBits + 1][kLeadLevels][1 << kMaxBits] = {};

 private:
  // The cells at both ends, which have no end, are taken to be as wide on both sides of a level.
  void AddCell(int level) {
    const Codebook& code = books[kMaxBits].code;
    const bool is_first = level == 0, is_last = level == kLeadLevels - 1;
    const float middle = code.levels[level];
    const float below = is_first ? 2 * middle - code.thresholds[0] : code.thresholds[level - 1];
    const float above = is_last ? 2 * middle - below : code.thresholds[level];
    cell_begins[level] = below, cell_inverses[level] = 1 / (above - below);
    parts[0][level][0] = books[kMaxBits].levels[level];
    for (int bits = 1; bits <= kMaxBits; ++bits) {
      const int n_parts = 1 << bits;
      for (int part = 0; part < n_parts; ++part) {
        const float share = (static_cast<float>(part) + 0.5f) / static_cast<float>(n_parts);
        const long x = std::lround((below + share * (above - below)) / Unit());
        parts[bits][level][part] =
            static_cast<int8_t>(std::clamp<long>(x, -kMostLevel, kMostLevel));
      }
    }
  }
};

const Books& AllBooks() {
  static const Books* const books = new Books;
  return *books;
}

using Bands = std::array<TokenRest::Band, 3>;

int64_t NumbersOf(const Bands& bands) { return bands[0].n + bands[1].n + bands[2].n; }

int64_t BytesOf(const Bands& bands) {
  return bands[0].bytes() + bands[1].bytes() + bands[2].bytes();
}

// Cuts bands to n numbers in all.
Bands BandsOf(int64_t n, Bands bands) {
  for (TokenRest::Band& band : bands) {
    band.n = std::min(band.n, n);
    n -= band.n;
  }
  return bands;
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

using TokenFloats = std::array<float, kCodedTokens>;
using TokenBytes = std::array<uint8_t, kCodedTokens>;

// Stores one number's codes of 64 tokens, each as number i of a band, which begins at `to` of the
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
    for (const TokenRest::Band& band : half.bands) {
      for (int64_t i = 0; i < band.n; ++i) bits_.push_back(band.bits);
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

// The levels of a codebook's cells, by part.
using CellLevels = int8_t[kLeadLevels][1 << kMaxBits];

// Turns n codes into the levels of their parts, of kBits each.
template <int kBits>
void RefineLevels(const CellLevels& levels, const uint8_t* parts, int64_t n, int8_t* codes) {
  for (int64_t i = 0; i < n; ++i) {
    const int64_t bit = i * kBits;
    codes[i] = levels[codes[i]][parts[bit / 8] >> (bit % 8) & ((1 << kBits) - 1)];
  }
}

}  // namespace

int64_t TokenRest::Half::n_refined() const { return NumbersOf(refined); }

int64_t TokenRest::Half::n() const { return NumbersOf(bands); }

int64_t TokenRest::Half::n_padded() const { return RoundUp(n(), kLevelStep); }

int64_t TokenRest::Half::bytes() const { return 1 + BytesOf(refined) + BytesOf(bands); }

TokenRest::Half TokenRest::KeysOf(int64_t n_index, int64_t dim) {
  Half half;
  half.first = std::min(n_index, dim);
  const int64_t n_rest = dim - half.first, n_fine = half.first;
  half.refined = BandsOf(n_fine, {{{dim / 32, 4}, {dim / 16, 2}, {dim / 8, 1}}});
  half.bands[1] = {std::min(n_rest / 8 * 8, RoundUp(3 * dim / 8, 8)), 3};
  half.bands[2] = {n_rest - half.bands[1].n, 2};
  return half;
}

TokenRest::Half TokenRest::ValuesOf(int64_t n_index, int64_t dim) {
  Half half;
  half.first = std::min(n_index, dim);
  const int64_t n_rest = dim - half.first;
  half.refined = BandsOf(half.first, {{{0, 4}, {0, 2}, {dim / 8, 1}}});
  half.bands[0] = {std::min(n_rest / 8 * 8, RoundUp(3 * dim / 8, 8)), 4};
  half.bands[1] = {(n_rest - half.bands[0].n) / 8 * 8, 3};
  half.bands[2] = {n_rest - half.bands[0].n - half.bands[1].n, 2};
  return half;
}

TokenRest::TokenRest(const AttentionGeometry& g, const std::vector<PrincipalCode>& keys,
                     const std::vector<PrincipalCode>& values, int64_t n_keys, int64_t n_values)
    : n_kv_heads_(g.n_kv_heads) {
  for (const PrincipalCode& code : keys) {
    FillRows(code, DotWidth(g), keys_.emplace_back(KeysOf(n_keys, code.dim)));
  }
  for (const PrincipalCode& code : values) {
    FillRows(code, g.head_dim_padded(), values_.emplace_back(ValuesOf(n_values, code.dim)));
  }
}

uint8_t TokenRest::PartOf(float number, uint8_t level, int bits) {
  const Books& books = AllBooks();
  const float share = (number - books.cell_begins[level]) * books.cell_inverses[level];
  const float part = share * static_cast<float>(1 << bits);
  // NaN is in the first part.
  return static_cast<uint8_t>(
      std::min(part > 0 ? part : 0.0f, static_cast<float>((1 << bits) - 1)));
}

void TokenRest::Encode(const PrincipalCode& code, const Half& half, const uint8_t* parts,
                       const float* numbers, std::byte* out, int64_t token_bytes) {
  const Encoder encoder(code, half, numbers);
  const TokenBytes scales = encoder.ChooseScales();
  for (int64_t t = 0; t < kCodedTokens; ++t) {
    std::fill_n(out + t * token_bytes, half.bytes(), std::byte{0});
    out[t * token_bytes] = std::byte{scales[t]};
  }
  std::byte* to = out + 1;
  for (const Band& band : half.refined) {
    for (int64_t i = 0; i < band.n; ++i, parts += kCodedTokens) {
      StoreCodes(parts, band.bits, i, to, token_bytes);
    }
    to += band.bytes();
  }
  int64_t j = 0;
  for (const Band& band : half.bands) {
    for (int64_t i = 0; i < band.n; ++i, ++j) {
      StoreCodes(encoder.Codes(j, scales).data(), band.bits, i, to, token_bytes);
    }
    to += band.bytes();
  }
}

float TokenRest::Read(const Half& half, const std::byte* from, int8_t* levels) {
  const Books& books = AllBooks();
  const auto* codes = reinterpret_cast<const uint8_t*>(from);
  const float scale = books.scales[*codes++];
  codes += BytesOf(half.refined);
  for (const Band& band : half.bands) {
    if (band.bits == 4) {
      for (int64_t i = 0; i < band.n; i += 2) std::memcpy(levels + i, books.pairs[*codes++], 2);
    } else if (band.bits == 3) {
      for (int64_t i = 0; i < band.n; i += 8, codes += 3) {
        const int eight = codes[0] | codes[1] << 8 | codes[2] << 16;
        for (int k = 0; k < 4; ++k) {
          std::memcpy(levels + i + 2 * k, books.sixes[eight >> (6 * k) & 63], 2);
        }
      }
    } else {
      // The last four may reach into what is padded, whose rows are zero.
      for (int64_t i = 0; i < band.n; i += 4) std::memcpy(levels + i, books.fours[*codes++], 4);
    }
    levels += band.n;
  }
  return scale;
}

void TokenRest::ReadLead(const Half& half, const std::byte* from, int64_t n, int8_t* codes) {
  const auto& levels = AllBooks().parts;
  const auto* parts = reinterpret_cast<const uint8_t*>(from) + 1;
  for (const Band& band : half.refined) {
    const auto refine = band.bits == 1   ? RefineLevels<1>
                        : band.bits == 2 ? RefineLevels<2>
                                         : RefineLevels<4>;
    refine(levels[band.bits], parts, band.n, codes);
    parts += band.bytes(), codes += band.n;
  }
  for (int64_t j = half.n_refined(); j < n; ++j, ++codes) *codes = levels[0][*codes][0];
}

}  // namespace lowkey
