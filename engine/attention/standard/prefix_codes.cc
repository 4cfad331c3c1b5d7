#include "engine/attention/standard/prefix_codes.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "engine/base/dtype.h"
#include "engine/base/status_macros.h"

namespace lowkey {
namespace {

// The numbers of the share's keys and values in x [dim][64].
float* KeysOf(const CodedShare& share, int64_t head, float* x) {
  return x + head * share.codes.group.key_dim * kPageTokens;
}
float* ValuesOf(const CodedShare& share, int64_t head, float* x) {
  const HeadGroup& group = share.codes.group;
  return x + (group.n_heads * group.key_dim + head * group.value_dim) * kPageTokens;
}

KvTile TileOf(const CodedShare& share, int64_t head) {
  return TileOf(share.geometry, share.page, share.layer,
                share.group * share.codes.group.n_heads + head);
}

// Reads values [64][head_dim_padded] into their columns x [head_dim][64].
template <typename T>
void ReadValues(const AttentionGeometry& g, const T* values, float* x) {
  for (int64_t t = 0; t < kPageTokens; ++t) {
    for (int64_t j = 0; j < g.head_dim; ++j) {
      if constexpr (sizeof(T) == sizeof(float)) {
        x[j * kPageTokens + t] = values[j];
      } else {
        x[j * kPageTokens + t] = ToFloat(BFloat16{values[j]});
      }
    }
    values += g.head_dim_padded();
  }
}

template <typename T>
void WriteTile(const AttentionGeometry& g, const float* keys, const float* values,
               const KvTile& tile) {
  T* to = reinterpret_cast<T*>(tile.keys);
  for (int64_t i = 0; i < g.key_dim() * kPageTokens; ++i) to[i] = Convert<T>(keys[i]);
  to = reinterpret_cast<T*>(tile.values);
  for (int64_t t = 0; t < kPageTokens; ++t) {
    for (int64_t j = 0; j < g.head_dim; ++j) to[j] = Convert<T>(values[j * kPageTokens + t]);
    std::fill(to + g.head_dim, to + g.head_dim_padded(), T{});
    to += g.head_dim_padded();
  }
}

}  // namespace

int64_t PrefixCodes::size_bytes() const {
  int64_t n_bytes = 0;
  for (const PrincipalCode& code : codes) n_bytes += code.size_bytes();
  return n_bytes;
}

absl::Status PrefixCodes::CheckFits(const AttentionGeometry& g) const {
  const bool fits = n_layers == g.n_layers && group.n_heads >= 1 &&
                    n_groups * group.n_heads == g.n_kv_heads && group.key_dim == g.key_dim() &&
                    group.value_dim == g.head_dim && g.key_dim() % 2 == 0 &&
                    static_cast<int64_t>(codes.size()) == n_layers * n_groups &&
                    static_cast<int64_t>(inverse_frequencies.size()) == g.key_dim() / 2;
  if (fits) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("calibration: ", n_layers, " layers of ", n_groups * group.n_heads,
                   " KV heads of ", group.key_dim, " and ", group.value_dim, ", expected ",
                   g.n_layers, " of ", g.n_kv_heads, " of ", g.key_dim(), " and ", g.head_dim));
}

PrefixBits PlanPrefixBits(const PrefixCodes& codes, double bits_per_number) {
  PrefixBits plans;
  plans.reserve(codes.codes.size());
  for (const PrincipalCode& code : codes.codes) {
    plans.push_back(PlanBits(code.variances, bits_per_number));
  }
  return plans;
}

PageRotation::PageRotation(const PrefixCodes& codes, int64_t page) {
  const size_t n = codes.inverse_frequencies.size() * kPageTokens;
  cos.reserve(n), sin.reserve(n), minus_sin.reserve(n);
  for (const double frequency : codes.inverse_frequencies) {
    for (int64_t t = 0; t < kPageTokens; ++t) {
      const double angle = static_cast<double>(page * kPageTokens + t) * frequency;
      cos.push_back(static_cast<float>(std::cos(angle)));
      sin.push_back(static_cast<float>(std::sin(angle)));
      minus_sin.push_back(-sin.back());
    }
  }
}

void EncodeShare(const CodedShare& share, PageCodeScratch& scratch, std::vector<std::byte>& out) {
  const AttentionGeometry& g = share.geometry;
  scratch.x.resize(share.codes.group.dim() * kPageTokens);
  for (int64_t h = 0; h < share.codes.group.n_heads; ++h) {
    const KvTile tile = TileOf(share, h);
    Kernels().RotateColumns(g.cache_type,
                            {tile.keys, share.rotation.cos.data(), share.rotation.minus_sin.data(),
                             KeysOf(share, h, scratch.x.data()), g.key_dim()});
    float* values = ValuesOf(share, h, scratch.x.data());
    if (g.cache_type == StorageType::kFloat32) {
      ReadValues(g, reinterpret_cast<const float*>(tile.values), values);
    } else {
      ReadValues(g, reinterpret_cast<const uint16_t*>(tile.values), values);
    }
  }
  EncodeVectors(share.codes.code(share.layer, share.group),
                share.bits[share.layer * share.codes.n_groups + share.group], scratch.x.data(),
                scratch.code, out);
}

absl::Status DecodeShare(const CodedShare& share, absl::Span<const std::byte> bytes,
                         PageCodeScratch& scratch) {
  const AttentionGeometry& g = share.geometry;
  scratch.x.resize(share.codes.group.dim() * kPageTokens);
  scratch.rotated.resize(g.key_dim() * kPageTokens);
  LK_RETURN_IF_ERROR(DecodeVectors(share.codes.code(share.layer, share.group),
                                   share.bits[share.layer * share.codes.n_groups + share.group],
                                   bytes, scratch.code, scratch.x.data()));
  for (int64_t h = 0; h < share.codes.group.n_heads; ++h) {
    Kernels().RotateColumns(StorageType::kFloat32,
                            {KeysOf(share, h, scratch.x.data()), share.rotation.cos.data(),
                             share.rotation.sin.data(), scratch.rotated.data(), g.key_dim()});
    const float* values = ValuesOf(share, h, scratch.x.data());
    if (g.cache_type == StorageType::kFloat32) {
      WriteTile<float>(g, scratch.rotated.data(), values, TileOf(share, h));
    } else {
      WriteTile<uint16_t>(g, scratch.rotated.data(), values, TileOf(share, h));
    }
  }
  return absl::OkStatus();
}

}  // namespace lowkey
