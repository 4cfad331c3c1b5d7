#include "engine/attention/atp/calibrated/token_index.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "engine/attention/pages/paged_kv.h"
#include "engine/base/dtype.h"
#include "engine/base/round_up.h"
#include "engine/lowrank/codebook.h"

namespace lowkey {
namespace {

constexpr int64_t kTokens = kCodedTokens, kHalf = kTokens / 2;
constexpr int kBands = LevelBands::kBands, kNibbleBits = 4;
constexpr int64_t kKeyStep = 4, kValueStep = 8;  // nibbles that are scored and read together
constexpr int64_t kNibbleBytes = kTokens * kNibbleBits / 8, kGainBytes = kTokens * 2 / 8;

void StoreGains(const CodedComponents& coded, uint8_t* out) {
  std::fill_n(out, kGainBytes, uint8_t{0});
  for (int64_t t = 0; t < kTokens; ++t) {
    out[t / 4] = static_cast<uint8_t>(out[t / 4] | coded.gains[t] << (2 * (t % 4)));
  }
}

// Calls body(component, nibble, shift) for every component: its bits of a nibble begin at `shift`.
template <typename Body>
void ForComponents(const LevelBands& bands, const Body& body) {
  int64_t component = 0, first_nibble = 0;
  for (int band = 0; band < kBands; ++band) {
    const int bits = LevelBands::kBits[band];
    for (int shift = 0; shift < kNibbleBits; shift += bits) {
      for (int64_t u = 0; u < bands.nibbles(band); ++u) {
        body(component++, first_nibble + u, shift);
      }
    }
    first_nibble += bands.nibbles(band);
  }
}

// Stores the components of 64 tokens, where nibble u of token t < 32 has the low bits of byte
// place(u, t) and that of token t + 32 the high ones.
template <typename Place>
void StoreCodes(const CodedComponents& coded, const LevelBands& bands, const Place& place,
                uint8_t* out) {
  std::fill_n(out, bands.n_nibbles() * kNibbleBytes, uint8_t{0});
  ForComponents(bands, [&](int64_t component, int64_t nibble, int shift) {
    if (component >= static_cast<int64_t>(coded.bits.size())) return;
    const uint8_t* codes = coded.indices.data() + component * kTokens;
    for (int64_t t = 0; t < kTokens; ++t) {
      uint8_t& byte = out[place(nibble, t % kHalf)];
      const int at = t < kHalf ? shift : shift + kNibbleBits;
      byte = static_cast<uint8_t>(byte | codes[t] << at);
    }
  });
}

int64_t KeyPlace(int64_t nibble, int64_t t) { return (nibble / 4 * kHalf + t) * 4 + nibble % 4; }

// ValuePlace gives the places of values that have n_nibbles.
struct ValuePlace {
  int64_t n_nibbles = 0;
  int64_t operator()(int64_t nibble, int64_t t) const {
    return (t / 4 * n_nibbles + nibble) * 4 + t % 4;
  }
};

// Reads a token's components of a band: four(u) returns the token's nibbles from u on, each in the
// low bits of a byte.
template <int kBits, typename Four>
void ReadBand(int64_t first, int64_t n, const Four& four, int8_t* to) {
  constexpr uint32_t kMask = ((1u << kBits) - 1) * 0x01010101u;
  for (int64_t u = 0; u < n; u += 4) {
    uint32_t nibbles = four(first + u);
    for (int place = 0; place < kNibbleBits / kBits; ++place, nibbles >>= kBits) {
      const uint32_t codes = nibbles & kMask;
      std::memcpy(to + place * n + u, &codes, sizeof(codes));
    }
  }
}

template <typename Four>
void ReadCodes(const LevelBands& bands, const Four& four, int8_t* to) {
  const int64_t twos = bands.nibbles(0), ones = twos + bands.nibbles(1);
  ReadBand<4>(0, twos, four, to);
  ReadBand<2>(twos, bands.nibbles(1), four, to + bands.n[0]);
  ReadBand<1>(ones, bands.nibbles(2), four, to + bands.n[0] + bands.n[1]);
}

// Returns the bits of the components that the bands have of a code, without their indices.
CodedComponents ComponentsOf(const LevelBands& bands, int64_t dim) {
  CodedComponents coded;
  for (int band = 0; band < kBands; ++band) {
    coded.bits.insert(coded.bits.end(), bands.n[band], LevelBands::kBits[band]);
  }
  coded.bits.resize(std::min(bands.n_components(), dim));
  return coded;
}

bool IsOf(const std::vector<PrincipalCode>& codes, size_t n, int64_t dim) {
  return codes.size() == n &&
         std::all_of(codes.begin(), codes.end(), [&](const auto& code) { return code.dim == dim; });
}

int64_t SizeBytes(const std::vector<PrincipalCode>& codes) {
  int64_t n_bytes = 0;
  for (const PrincipalCode& code : codes) n_bytes += code.size_bytes();
  return n_bytes;
}

}  // namespace

int64_t HeadCodes::size_bytes() const { return SizeBytes(keys) + SizeBytes(values); }

absl::Status HeadCodes::CheckFits(const AttentionGeometry& g) const {
  const auto n = static_cast<size_t>(g.n_layers * g.n_kv_heads);
  if (n_layers == g.n_layers && n_kv_heads == g.n_kv_heads &&
      static_cast<int64_t>(inverse_frequencies.size()) * 2 == g.key_dim() &&
      IsOf(keys, n, g.key_dim()) && IsOf(values, n, g.head_dim)) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(
      absl::StrCat("calibration: codes of ", n_layers, " layers and ", n_kv_heads,
                   " KV heads, expected ", g.n_layers, " and ", g.n_kv_heads, " of keys of ",
                   g.key_dim(), " and values of ", g.head_dim));
}

TokenIndex::TokenIndex(const AttentionGeometry& g, const HeadCodes& codes)
    : codes_(codes),
      n_kv_heads_(g.n_kv_heads),
      rest_(g.n_kv_heads),
      turned_means_(codes.inverse_frequencies) {
  unit_ = CodebookOf(Density::kGaussian, kNibbleBits).levels.back() / LevelBook::kMost;
  for (int band = 0; band < kBands; ++band) {
    const int bits = LevelBands::kBits[band];
    const auto levels = CodebookOf(Density::kGaussian, bits).levels;
    for (int i = 0; i < kNibbleBits / bits; ++i) {
      for (int nibble = 0; nibble < LevelBook::kNibbles; ++nibble) {
        const float level = levels[nibble >> (i * bits) & ((1 << bits) - 1)];
        book_.levels[LevelBook::TableOf(band) + i][nibble] =
            static_cast<int8_t>(std::lround(level / unit_));
      }
    }
  }
  std::copy(std::begin(kCodeGains), std::end(kCodeGains), book_.gains);
  for (const PrincipalCode& code : codes.keys) {
    const LevelBands bands = PlanBands(code.variances, KeyNibbles(code.dim), kKeyStep);
    keys_.push_back(MakeHalf(code, bands, DotWidth(g)));
    rest_.AddKeys(code, bands, DotWidth(g));
  }
  for (const PrincipalCode& code : codes.values) {
    const LevelBands bands = PlanBands(code.variances, ValueNibbles(code.dim), kValueStep);
    values_.push_back(MakeHalf(code, bands, g.head_dim_padded()));
    rest_.AddValues(code, bands, g.head_dim_padded());
  }
}

int64_t TokenIndex::KeyNibbles(int64_t dim) { return RoundUp(3 * dim / 8, kKeyStep); }

int64_t TokenIndex::ValueNibbles(int64_t dim) { return RoundUp(dim / 4, kValueStep); }

int64_t TokenIndex::MaxKeyComponents(const AttentionGeometry& g) {
  return std::max(KeyNibbles(g.key_dim()), g.key_dim());
}

int64_t TokenIndex::MaxValueComponents(const AttentionGeometry& g) {
  return std::max(ValueNibbles(g.head_dim), g.head_dim);
}

LevelBands TokenIndex::PlanBands(absl::Span<const float> variances, int64_t n_nibbles,
                                 int64_t step) {
  const auto dim = static_cast<int64_t>(variances.size());
  const auto error = [&](const LevelBands& bands) {
    double sum = 0;
    int64_t end = 0, i = 0;
    for (int band = 0; band < kBands; ++band) {
      end += bands.n[band];
      for (; i < std::min(end, dim); ++i) {
        sum += variances[i] * GaussianDistortion(LevelBands::kBits[band]);
      }
    }
    for (; i < dim; ++i) sum += variances[i];
    return sum;
  };
  LevelBands best{{n_nibbles, 0, 0}};
  double least = error(best);
  for (int64_t fours = 0; fours <= n_nibbles; fours += step) {
    for (int64_t twos = 0; fours + twos <= n_nibbles; twos += step) {
      const LevelBands bands{{fours, 2 * twos, 4 * (n_nibbles - fours - twos)}};
      if (bands.n_components() > dim) continue;
      if (const double sum = error(bands); sum < least) least = sum, best = bands;
    }
  }
  return best;
}

double TokenIndex::MeanComponents(const std::vector<Half>& halves) {
  double sum = 0;
  for (const Half& half : halves) sum += static_cast<double>(half.n());
  return sum / static_cast<double>(halves.size());
}

TokenIndex::Half TokenIndex::MakeHalf(const PrincipalCode& code, const LevelBands& bands,
                                      int64_t width) const {
  const int64_t n = bands.n_components();
  Half half{bands, width, {}};
  half.rows.resize((n + 1) * width);
  for (int64_t i = 0; i < code.dim; ++i) {
    for (int64_t j = 0; j < std::min(n, code.dim); ++j) {
      half.rows[j * width + i] =
          unit_ * std::sqrt(code.variances[j]) * ToFloat(BFloat16{code.decode[i * code.dim + j]});
    }
    half.rows[n * width + i] = code.mean[i];
  }
  return half;
}

int64_t TokenIndex::PageBytes(const AttentionGeometry& g) {
  return (KeyNibbles(g.key_dim()) + ValueNibbles(g.head_dim)) * kNibbleBytes + 2 * kGainBytes;
}

TokenIndex::Page TokenIndex::PageAt(const AttentionGeometry& g, const std::byte* page) {
  const auto* keys = reinterpret_cast<const uint8_t*>(page);
  const uint8_t* key_gains = keys + KeyNibbles(g.key_dim()) * kNibbleBytes;
  const uint8_t* values = key_gains + kGainBytes;
  const uint8_t* value_gains = values + ValueNibbles(g.head_dim) * kNibbleBytes;
  return {keys, key_gains, values, value_gains, value_gains + kGainBytes};
}

float TokenIndex::ReadKey(const Page& page, int64_t token, const LevelBands& bands,
                          int8_t* to) const {
  const int shift = token < kHalf ? 0 : kNibbleBits;
  const auto four = [&](int64_t nibble) {
    uint32_t bytes;
    std::memcpy(&bytes, page.keys + KeyPlace(nibble, token % kHalf), sizeof(bytes));
    return bytes >> shift;
  };
  ReadCodes(bands, four, to);
  return GainAt(page.key_gains, token);
}

float TokenIndex::ReadValue(const Page& page, int64_t token, const LevelBands& bands,
                            int8_t* to) const {
  const ValuePlace place{bands.n_nibbles()};
  const int shift = token < kHalf ? 0 : kNibbleBits;
  const auto four = [&](int64_t nibble) {
    const uint8_t* from = page.values + place(nibble, token % kHalf);
    return (from[0] | uint32_t{from[4]} << 8 | uint32_t{from[8]} << 16 |
            uint32_t{from[12]} << 24) >>
           shift;
  };
  ReadCodes(bands, four, to);
  return GainAt(page.value_gains, token);
}

float TokenIndex::GainAt(const uint8_t* gains, int64_t token) const {
  return book_.gains[gains[token / 4] >> (2 * (token % 4)) & 3];
}

void TokenIndex::EncodeRest(const PrincipalCode& code, const TokenRest::Half& half,
                            const CodedComponents& coded, const float* components, std::byte* out,
                            int64_t token_bytes) {
  std::vector<uint8_t> parts(coded.indices.size());
  for (const TokenRest::Group& group : half.refined) {
    for (int64_t j = group.first; j < std::min(group.end(), code.dim); ++j) {
      const float deviation = std::sqrt(code.variances[j]);
      for (int64_t t = 0; t < kTokens && group.bits > 0; ++t) {
        const int64_t at = j * kTokens + t;
        const float number = components[at] / (kCodeGains[coded.gains[t]] * deviation);
        parts[at] = TokenRest::PartOf(number, group, coded.indices[at]);
      }
    }
  }
  TokenRest::Encode(code, half, parts, components + half.first * kTokens, out, token_bytes);
}

void TokenIndex::Encode(const Tokens& tokens, Scratch& scratch, std::byte* page,
                        std::byte* rest) const {
  const int64_t layer = tokens.layer, kv_head = tokens.kv_head, at = At(layer, kv_head);
  const TokenRest::Half &rest_keys = rest_.keys(layer, kv_head),
                        &rest_values = rest_.values(layer, kv_head);
  const int64_t rest_bytes = rest_keys.bytes() + rest_values.bytes();
  const auto encode = [&](const PrincipalCode& code, const LevelBands& bands,
                          const TokenRest::Half& rest_half, const float* x, std::byte* rest_at) {
    CodedComponents coded = ComponentsOf(bands, code.dim);
    EncodeComponents(code, x, scratch.code, coded);
    if (rest != nullptr) {
      EncodeRest(code, rest_half, coded, scratch.code.components.data(), rest_at, rest_bytes);
    }
    return coded;
  };
  // Components are those of a key less its turned mean; the code takes its mean off itself.
  const PrincipalCode& key_code = codes_.keys[at];
  scratch.keys.resize(key_code.dim * kTokens);
  turned_means_.Turn(key_code.mean.data(), tokens.number, scratch.keys.data());
  for (int64_t i = 0; i < key_code.dim * kTokens; ++i) {
    scratch.keys[i] = tokens.keys[i] - scratch.keys[i] + key_code.mean[i / kTokens];
  }
  auto* out = reinterpret_cast<uint8_t*>(page);
  const LevelBands& key_bands = keys_[at].bands;
  const CodedComponents key = encode(key_code, key_bands, rest_keys, scratch.keys.data(), rest);
  StoreCodes(key, key_bands, KeyPlace, out);
  out += key_bands.n_nibbles() * kNibbleBytes;
  StoreGains(key, out);
  out += kGainBytes;

  const LevelBands& value_bands = values_[at].bands;
  const CodedComponents value = encode(codes_.values[at], value_bands, rest_values, tokens.values,
                                       rest == nullptr ? nullptr : rest + rest_keys.bytes());
  StoreCodes(value, value_bands, ValuePlace{value_bands.n_nibbles()}, out);
  StoreGains(value, out + value_bands.n_nibbles() * kNibbleBytes);
}

}  // namespace lowkey
