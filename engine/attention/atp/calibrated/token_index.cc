#include "engine/attention/atp/calibrated/token_index.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "engine/attention/pages/paged_kv.h"
#include "engine/base/dtype.h"
#include "engine/base/round_up.h"
#include "engine/lowrank/laplacian.h"

namespace lowkey {
namespace {

constexpr int64_t kTokens = kCodedTokens, kHalf = kTokens / 2;
constexpr int kBits = 4;
constexpr int64_t kComponentBytes = kTokens * kBits / 8, kGainBytes = kTokens * 2 / 8;

void StoreGains(const CodedComponents& coded, uint8_t* out) {
  std::fill_n(out, kGainBytes, uint8_t{0});
  for (int64_t t = 0; t < kTokens; ++t) {
    out[t / 4] = static_cast<uint8_t>(out[t / 4] | coded.gains[t] << (2 * (t % 4)));
  }
}

// Stores a token's code into a byte, whose high bits are for the second half of the tokens.
void StoreCode(uint8_t code, int64_t token, uint8_t& byte) {
  byte = static_cast<uint8_t>(byte | code << (token < kHalf ? 0 : 4));
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
  if (n_layers == g.n_layers && n_kv_heads == g.n_kv_heads && IsOf(keys, n, g.key_dim()) &&
      IsOf(values, n, g.head_dim)) {
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
      rest_(g, codes.keys, codes.values, KeyComponents(g.key_dim()), ValueComponents(g.head_dim)) {
  const auto levels = LaplacianCodebook(kBits).levels;
  unit_ = levels.back() / LevelBook::kMost;
  for (int i = 0; i < LevelBook::kLevels; ++i) {
    book_.levels[i] = static_cast<int8_t>(std::lround(levels[i] / unit_));
  }
  std::copy(std::begin(kCodeGains), std::end(kCodeGains), book_.gains);
  for (const PrincipalCode& code : codes.keys) {
    keys_.push_back(MakeHalf(code, KeyComponents(g.key_dim()), DotWidth(g)));
  }
  for (const PrincipalCode& code : codes.values) {
    values_.push_back(MakeHalf(code, ValueComponents(g.head_dim), g.head_dim_padded()));
  }
}

int64_t TokenIndex::KeyComponents(int64_t dim) { return RoundUp(3 * dim / 8, 4); }

int64_t TokenIndex::ValueComponents(int64_t dim) { return RoundUp(dim / 4, 8); }

TokenRest::Half TokenIndex::RestKeys(const AttentionGeometry& g) {
  return TokenRest::KeysOf(KeyComponents(g.key_dim()), g.key_dim());
}

TokenRest::Half TokenIndex::RestValues(const AttentionGeometry& g) {
  return TokenRest::ValuesOf(ValueComponents(g.head_dim), g.head_dim);
}

TokenIndex::Half TokenIndex::MakeHalf(const PrincipalCode& code, int64_t n, int64_t width) const {
  Half half{n, width, {}};
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
  return (KeyComponents(g.key_dim()) + ValueComponents(g.head_dim)) * kComponentBytes +
         2 * kGainBytes;
}

TokenIndex::Page TokenIndex::PageAt(const AttentionGeometry& g, const std::byte* page) {
  const auto* keys = reinterpret_cast<const uint8_t*>(page);
  const uint8_t* key_gains = keys + KeyComponents(g.key_dim()) * kComponentBytes;
  const uint8_t* values = key_gains + kGainBytes;
  const uint8_t* value_gains = values + ValueComponents(g.head_dim) * kComponentBytes;
  return {keys, key_gains, values, value_gains, value_gains + kGainBytes};
}

float TokenIndex::ReadKey(const Page& page, int64_t token, int64_t n, int8_t* to) const {
  const int shift = token < kHalf ? 0 : kBits;
  const uint8_t* codes = page.keys + token % kHalf * 4;
  for (int64_t j = 0; j < n; j += 4, codes += kHalf * 4) {
    for (int64_t i = 0; i < 4; ++i) to[j + i] = static_cast<int8_t>(codes[i] >> shift & 15);
  }
  return GainAt(page.key_gains, token);
}

float TokenIndex::ReadValue(const Page& page, int64_t token, int64_t n, int8_t* to) const {
  const int shift = token < kHalf ? 0 : kBits;
  const uint8_t* codes = page.values + token % kHalf / 4 * n * 4 + token % 4;
  for (int64_t j = 0; j < n; ++j) to[j] = static_cast<int8_t>(codes[4 * j] >> shift & 15);
  return GainAt(page.value_gains, token);
}

float TokenIndex::GainAt(const uint8_t* gains, int64_t token) const {
  return book_.gains[gains[token / 4] >> (2 * (token % 4)) & 3];
}

void TokenIndex::EncodeRest(const PrincipalCode& code, const TokenRest::Half& half,
                            const CodedComponents& coded, const float* components, std::byte* out,
                            int64_t token_bytes) {
  std::vector<uint8_t> parts;
  parts.reserve(half.n_refined() * kTokens);
  for (const TokenRest::Band& band : half.refined) {
    for (int64_t i = 0; i < band.n; ++i) {
      const auto first = static_cast<int64_t>(parts.size());
      const float deviation = std::sqrt(code.variances[first / kTokens]);
      for (int64_t t = 0; t < kTokens; ++t) {
        const float number = components[first + t] / (kCodeGains[coded.gains[t]] * deviation);
        parts.push_back(TokenRest::PartOf(number, coded.indices[first + t], band.bits));
      }
    }
  }
  TokenRest::Encode(code, half, parts.data(), components + half.first * kTokens, out, token_bytes);
}

void TokenIndex::Encode(int64_t layer, int64_t kv_head, const float* keys, const float* values,
                        PrincipalScratch& scratch, std::byte* page, std::byte* rest) const {
  const int64_t at = At(layer, kv_head), n_keys = keys_[at].n, n_values = values_[at].n;
  auto* out = reinterpret_cast<uint8_t*>(page);
  CodedComponents coded{kBits, std::min(n_keys, codes_.keys[at].dim), {}, {}};
  EncodeComponents(codes_.keys[at], keys, scratch, coded);
  std::fill_n(out, n_keys * kComponentBytes, uint8_t{0});
  for (int64_t i = 0; i < coded.n * kTokens; ++i) {
    const int64_t component = i / kTokens, token = i % kTokens, at = token % kHalf;
    StoreCode(coded.indices[i], token, out[(component / 4 * kHalf + at) * 4 + component % 4]);
  }
  const TokenRest::Half &rest_keys = rest_.keys(layer, kv_head),
                        &rest_values = rest_.values(layer, kv_head);
  const int64_t rest_bytes = rest_keys.bytes() + rest_values.bytes();
  if (rest != nullptr) {
    EncodeRest(codes_.keys[at], rest_keys, coded, scratch.components.data(), rest, rest_bytes);
  }
  out += n_keys * kComponentBytes;
  StoreGains(coded, out);
  out += kGainBytes;

  coded.n = std::min(n_values, codes_.values[at].dim);
  EncodeComponents(codes_.values[at], values, scratch, coded);
  if (rest != nullptr) {
    EncodeRest(codes_.values[at], rest_values, coded, scratch.components.data(),
               rest + rest_keys.bytes(), rest_bytes);
  }
  std::fill_n(out, n_values * kComponentBytes, uint8_t{0});
  for (int64_t i = 0; i < coded.n * kTokens; ++i) {
    const int64_t component = i / kTokens, token = i % kTokens, at = token % kHalf;
    StoreCode(coded.indices[i], token, out[(at / 4 * n_values + component) * 4 + at % 4]);
  }
  StoreGains(coded, out + n_values * kComponentBytes);
}

}  // namespace lowkey
