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

constexpr int kMinBits = 2, kMaxBits = 4, kMostLevel = 127;
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
};

const Books& AllBooks() {
  static const Books* const books = new Books;
  return *books;
}

void FillRows(const PrincipalCode& code, int64_t width, TokenRest::Half& half) {
  half.width = width;
  half.rows.assign(half.n_padded() * width, 0.0f);
  for (int64_t j = 0; j < half.n(); ++j) {
    const float size = Books::Unit() * std::sqrt(half.VarianceOf(code, j));
    for (int64_t i = 0; i < code.dim; ++i) {
      half.rows[j * width + i] =
          size * ToFloat(BFloat16{code.decode[i * code.dim + half.ComponentOf(j)]});
    }
  }
}

using TokenFloats = std::array<float, kCodedTokens>;
using TokenBytes = std::array<uint8_t, kCodedTokens>;

// Chooses scales for 64 vectors and quantizes them.
class Encoder {
 public:
  Encoder(const PrincipalCode& code, const TokenRest::Half& half, const float* numbers)
      : half_(half), numbers_(numbers) {
    for (const TokenRest::Band& band : half.bands) {
      for (int64_t i = 0; i < band.n; ++i) bits_.push_back(band.bits);
    }
    for (int64_t j = 0; j < half.n(); ++j) variances_.push_back(half.VarianceOf(code, j));
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

}  // namespace

int64_t TokenRest::Half::n() const {
  int64_t n = 0;
  for (const Band& band : bands) n += band.n;
  return n;
}

int64_t TokenRest::Half::n_padded() const { return RoundUp(n(), kLevelStep); }

int64_t TokenRest::Half::bytes() const {
  int64_t n_bytes = 1;
  for (const Band& band : bands) n_bytes += band.bytes();
  return n_bytes;
}

float TokenRest::Half::VarianceOf(const PrincipalCode& code, int64_t j) const {
  const float variance = code.variances[ComponentOf(j)];
  return j < n_refined ? variance * static_cast<float>(GaussianDistortion(kMaxBits)) : variance;
}

TokenRest::Half TokenRest::KeysOf(int64_t n_index, int64_t dim) {
  const int64_t n_rest = std::max<int64_t>(0, dim - n_index);
  const int64_t most = std::min(n_index, dim) / 4 * 4;
  Half half;
  half.first = std::min(n_index, dim);
  half.bands[0] = {std::min(most, RoundUp(dim / 16, 4)), 4};
  half.bands[1] = {std::min(most - half.bands[0].n, RoundUp(dim / 8, 8)), 2};
  half.bands[2] = {std::min(n_rest / 8 * 8, RoundUp(dim / 4, 8)), 3};
  half.bands[3] = {n_rest - half.bands[2].n, 2};
  half.n_refined = half.bands[0].n + half.bands[1].n;
  return half;
}

TokenRest::Half TokenRest::ValuesOf(int64_t n_index, int64_t dim) {
  const int64_t n_rest = std::max<int64_t>(0, dim - n_index);
  Half half;
  half.first = std::min(n_index, dim);
  half.n_refined = std::min(n_index, dim) / 4 * 4;
  half.bands[0] = {half.n_refined, 2};
  half.bands[1] = {n_rest / 8 * 8, 3};
  half.bands[2] = {n_rest - half.bands[1].n, 2};
  half.bands[3] = {0, 2};
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

void TokenRest::Encode(const PrincipalCode& code, const Half& half, const float* numbers,
                       std::byte* out, int64_t token_bytes) {
  const Encoder encoder(code, half, numbers);
  const TokenBytes scales = encoder.ChooseScales();
  for (int64_t t = 0; t < kCodedTokens; ++t) {
    std::fill_n(out + t * token_bytes, half.bytes(), std::byte{0});
    out[t * token_bytes] = std::byte{scales[t]};
  }
  std::byte* to = out + 1;
  int64_t j = 0;
  for (const Band& band : half.bands) {
    for (int64_t i = 0; i < band.n; ++i, ++j) {
      const TokenBytes codes = encoder.Codes(j, scales);
      const int64_t bit = i * band.bits;
      for (int64_t t = 0; t < kCodedTokens; ++t) {
        std::byte* at = to + t * token_bytes + bit / 8;
        const int code_bits = codes[t] << (bit % 8);
        at[0] |= static_cast<std::byte>(code_bits);
        if (bit % 8 + band.bits > 8) at[1] |= static_cast<std::byte>(code_bits >> 8);
      }
    }
    to += band.bytes();
  }
}

float TokenRest::Read(const Half& half, const std::byte* from, int8_t* levels) {
  const Books& books = AllBooks();
  const auto* codes = reinterpret_cast<const uint8_t*>(from);
  const float scale = books.scales[*codes++];
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

}  // namespace lowkey
