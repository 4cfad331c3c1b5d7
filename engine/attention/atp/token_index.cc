#include "engine/attention/atp/token_index.h"

#include <algorithm>
#include <cmath>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "engine/attention/pages/paged_kv.h"
#include "engine/base/dtype.h"

namespace lowkey {
namespace {

constexpr int64_t kTokens = kCodedTokens;

// Returns the bytes of 64 vectors' components and gains.
int64_t PartBytes(int64_t dim, double bits) {
  return static_cast<int64_t>(bits * static_cast<double>(dim)) * kTokens / 8 + kCodeGainBytes;
}

void EncodePart(const PrincipalCode& code, const BitPlan& plan, const float* x,
                absl::Span<std::byte> part, PrincipalScratch& scratch) {
  std::vector<std::byte> bytes;
  EncodeComponents(code, plan, x, scratch, bytes);
  const auto gains = bytes.end() - kCodeGainBytes;
  std::copy(bytes.begin(), gains, part.begin());
  std::copy(gains, bytes.end(), part.end() - kCodeGainBytes);
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
      key_bytes_(PartBytes(g.key_dim(), kKeyBits)),
      value_bytes_(PartBytes(g.head_dim, kValueBits)),
      levels_(LevelCodes::kMostBits * LevelCodes::kMostLevels),
      gains_(levels_.size()) {
  std::copy(std::begin(kCodeGains), std::end(kCodeGains),
            gains_.begin() + (kCodeGainBits - 1) * LevelCodes::kMostLevels);
  for (int bits = 1; bits <= LevelCodes::kMostBits; ++bits) {
    const auto levels = LaplacianCodebook(bits).levels;
    std::copy(levels.begin(), levels.end(), levels_.begin() + (bits - 1) * LevelCodes::kMostLevels);
  }
  for (const PrincipalCode& code : codes.keys) {
    keys_.push_back(MakeHalf(code, kKeyBits, DotWidth(g)));
    mean_rank_ += static_cast<double>(keys_.back().n()) / static_cast<double>(codes.keys.size());
    most_components_ = std::max(most_components_, keys_.back().n());
  }
  for (const PrincipalCode& code : codes.values) {
    values_.push_back(MakeHalf(code, kValueBits, g.head_dim_padded()));
    most_components_ = std::max(most_components_, values_.back().n());
  }
}

TokenIndex::Half TokenIndex::MakeHalf(const PrincipalCode& code, double bits, int64_t width) const {
  Half half{PlanBits(code.variances, bits, LevelCodes::kMostBits), width, {}};
  half.rows.resize((half.n() + 1) * width);
  for (int64_t i = 0; i < code.dim; ++i) {
    for (int64_t j = 0; j < half.n(); ++j) {
      half.rows[j * width + i] =
          std::sqrt(code.variances[j]) * ToFloat(BFloat16{code.decode[i * code.dim + j]});
    }
    half.rows[half.n() * width + i] = code.mean[i];
  }
  return half;
}

int64_t TokenIndex::PageBytes(const AttentionGeometry& g) {
  constexpr int64_t kAlign = 16;
  const int64_t n_bytes =
      PartBytes(g.key_dim(), kKeyBits) + PartBytes(g.head_dim, kValueBits) + LevelCodes::kSlack;
  return (n_bytes + kAlign - 1) / kAlign * kAlign;
}

void TokenIndex::Encode(int64_t layer, int64_t kv_head, const float* keys, const float* values,
                        PrincipalScratch& scratch, std::byte* page) const {
  const int64_t at = At(layer, kv_head);
  EncodePart(codes_.keys[at], keys_[at].plan, keys, {page, static_cast<size_t>(key_bytes_)},
             scratch);
  EncodePart(codes_.values[at], values_[at].plan, values,
             {page + key_bytes_, static_cast<size_t>(value_bytes_)}, scratch);
}

void TokenIndex::DecodeHalf(const Half& half, int64_t part_bytes, const std::byte* part,
                            float* levels, float* gains) const {
  const auto* codes = reinterpret_cast<const uint8_t*>(part);
  Kernels().unpack_levels({codes, half.plan.bits.data(), half.n(), levels_.data()}, levels);
  static constexpr uint8_t kGainBits = kCodeGainBits;
  Kernels().unpack_levels({codes + part_bytes - kCodeGainBytes, &kGainBits, 1, gains_.data()},
                          gains);
}

void TokenIndex::DecodeKeys(int64_t layer, int64_t kv_head, const std::byte* page, float* levels,
                            float* gains) const {
  DecodeHalf(keys(layer, kv_head), key_bytes_, page, levels, gains);
}

void TokenIndex::DecodeValues(int64_t layer, int64_t kv_head, const std::byte* page, float* levels,
                              float* gains) const {
  DecodeHalf(values(layer, kv_head), value_bytes_, page + key_bytes_, levels, gains);
}

}  // namespace lowkey
