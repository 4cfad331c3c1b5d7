#include "engine/attention/atp/principal_block.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>

#include "engine/attention/atp/calibrated/token_index.h"
#include "engine/attention/pages/paged_kv.h"
#include "engine/attention/pages/quantized_kv.h"
#include "engine/base/status_macros.h"

namespace lowkey {
namespace {

// Returns the bytes of rows of principal keys or values, with their scales if they have any.
int64_t RowsBytes(int64_t n_rows, int64_t width, StorageType type) {
  const int64_t scale_bytes = type == StorageType::kInt8 ? n_rows * sizeof(float) : 0;
  return n_rows * width * StorageBytes(type) + scale_bytes;
}

int64_t KeptRowBytes(int64_t width, StorageType type) {
  return type == StorageType::kInt8 ? QuantizedRowBytes(CacheStorage::kInt8, width)
                                    : width * StorageBytes(type);
}

// Returns the type that products read.
StorageType TypeOf(AtpStorage storage, const AttentionGeometry& g) {
  return storage == AtpStorage::kCache ? g.cache_type : StorageType::kInt8;
}

}  // namespace

int64_t PrincipalShape::UBytes(int64_t r) const {
  if (!keeps_basis) return 0;
  if (packs_basis) return n_tokens / kBasisGroup * UGroupBytes(r);
  return n_tokens * r * StorageBytes(u_type);
}

int64_t PrincipalShape::KeyBytes(const AttentionGeometry& g, int64_t r) const {
  return RowsBytes(r + n_mean_rows(), DotWidth(g), principal_type);
}

int64_t PrincipalShape::ValueBytes(const AttentionGeometry& g, int64_t r) const {
  return RowsBytes(r + n_mean_rows(), g.head_dim_padded(), principal_type);
}

int64_t PrincipalShape::KeptKeyBytes(const AttentionGeometry& g) const {
  return packs_kept ? DotWidth(g) / 2 : KeptRowBytes(DotWidth(g), kept_type);
}

int64_t PrincipalShape::KeptValueBytes(const AttentionGeometry& g) const {
  return packs_kept ? QuantizedRowBytes(CacheStorage::kInt4, g.head_dim_padded())
                    : KeptRowBytes(g.head_dim_padded(), kept_type);
}

int64_t PrincipalShape::KeptTokenBytes(const AttentionGeometry& g) const {
  if (keeps_rest) return TokenRest::KeyBytes(g.key_dim()) + TokenRest::ValueBytes(g.head_dim);
  return KeptKeyBytes(g) + KeptValueBytes(g);
}

int64_t PrincipalShape::KeptBytes(const AttentionGeometry& g) const {
  if (!keeps_tokens) return 0;
  const int64_t key_numbers = packs_kept ? n_tokens / kGroup * 2 * DotWidth(g) : 0;
  return n_tokens * KeptTokenBytes(g) + key_numbers * static_cast<int64_t>(sizeof(uint16_t));
}

int64_t PrincipalShape::PartBytes(const AttentionGeometry& g, int64_t r) const {
  if (is_calibrated()) return n_tokens / kPageTokens * TokenIndex::PageBytes(g);
  return UBytes(r) + g.n_kv_heads / n_bases(g) * (KeyBytes(g, r) + ValueBytes(g, r));
}

int64_t PrincipalShape::n_basis_columns(const AttentionGeometry& g) const {
  if (basis == AtpBasis::kInput) return g.input_dim();
  return 2 * g.head_dim * g.n_kv_heads / n_bases(g);
}

PrincipalShape ShapeOf(const AttentionGeometry& g, const AtpOptions& options) {
  PrincipalShape shape;
  shape.basis = options.basis;
  shape.n_tokens = options.block_tokens;
  const int64_t full = std::min<int64_t>(options.block_tokens, shape.n_basis_columns(g));
  shape.rank = full;
  if (const auto* fraction = std::get_if<RankFraction>(&options.rank)) {
    shape.rank = std::llround(fraction->fraction * static_cast<double>(full));
  } else if (const auto* fixed = std::get_if<RankFixed>(&options.rank)) {
    shape.rank = fixed->rank;
  }
  shape.rank = std::clamp<int64_t>(shape.rank, 1, full);
  shape.keeps_tokens = options.refine_tokens > 0;
  shape.keeps_basis = options.readout == AtpReadout::kExact;
  shape.u_type = TypeOf(options.basis_storage, g);
  shape.packs_basis = options.basis_storage == AtpStorage::kInt4;
  shape.principal_type = TypeOf(options.principal_storage, g);
  shape.kept_type = TypeOf(options.kept_storage, g);
  shape.packs_kept = PacksKeptTokens(options);
  shape.keeps_rest = options.kept_storage == AtpStorage::kRest;
  return shape;
}

bool PacksKeptTokens(const AtpOptions& options) {
  return options.kept_storage == AtpStorage::kInt4;
}

absl::Status PrincipalBlock::Allocate(const AttentionGeometry& g, int64_t number, Cache& cache) {
  LK_ASSIGN_OR_RETURN(slab, cache.AllocateSlab(shape.SlabBytes(g)));
  const int64_t n_parts = shape.n_parts(g), part_bytes = shape.PartBytes(g, shape.rank);
  kept_bytes = shape.KeptBytes(g);
  const int64_t first = shape.SlabBytes(g) - n_parts * part_bytes;
  ranks.assign(n_parts, static_cast<int32_t>(shape.rank));
  offsets.resize(n_parts);
  for (int64_t p = 0; p < n_parts; ++p) {
    offsets[p] = first + (p + number) % n_parts * part_bytes;
  }
  return absl::OkStatus();
}

PrincipalView PrincipalBlock::View(const AttentionGeometry& g, int64_t layer,
                                   int64_t kv_head) const {
  const bool shared = shape.shares_basis();
  const int64_t part = layer * shape.n_bases(g) + (shared ? 0 : kv_head);
  PrincipalView view;
  view.kept = slab->data() + (layer * g.n_kv_heads + kv_head) * kept_bytes;
  if (shape.is_calibrated()) {
    view.index = slab->data() + offsets[part];
    return view;
  }
  view.rank = ranks[part];
  const int64_t n_rows = view.rank + shape.n_mean_rows();
  const int64_t key_bytes = shape.KeyBytes(g, view.rank);
  const int64_t value_bytes = shape.ValueBytes(g, view.rank);
  view.u = slab->data() + offsets[part];
  view.keys = view.u + shape.UBytes(view.rank);
  if (shared) view.keys += kv_head * (key_bytes + value_bytes);
  view.values = view.keys + key_bytes;
  if (shape.principal_type == StorageType::kInt8) {
    view.key_scales = reinterpret_cast<const float*>(view.values) - n_rows;
    view.value_scales = reinterpret_cast<const float*>(view.values + value_bytes) - n_rows;
  }
  return view;
}

void PrincipalBlock::Trim(const AttentionGeometry& g) {
  const auto is_full = [this](int32_t rank) { return rank == shape.rank; };
  if (std::all_of(ranks.begin(), ranks.end(), is_full)) return;
  // Moves the parts together in the order in which they lie.
  const auto first = std::min_element(offsets.begin(), offsets.end()) - offsets.begin();
  int64_t end = offsets[first];
  for (size_t i = 0; i < offsets.size(); ++i) {
    const size_t p = (first + i) % offsets.size();
    const int64_t bytes = shape.PartBytes(g, ranks[p]);
    std::memmove(slab->data() + end, slab->data() + offsets[p], static_cast<size_t>(bytes));
    offsets[p] = end;
    end += bytes;
  }
  slab->Shrink(end);
}

double PrincipalBlock::MeanRank() const {
  return std::accumulate(ranks.begin(), ranks.end(), 0.0) / static_cast<double>(ranks.size());
}

}  // namespace lowkey
