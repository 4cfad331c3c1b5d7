#include "engine/attention/place/host_attention.h"

#include <algorithm>

#include "engine/base/status_macros.h"

namespace lowkey {

int64_t HostAttention::first_row() const {
  int64_t first = segments_[0].first_row;
  for (const Segment& s : segments_) first = std::min(first, s.first_row);
  return first;
}

int64_t HostAttention::end_row() const {
  int64_t end = 0;
  for (const Segment& s : segments_) end = std::max(end, s.first_row + s.n_rows);
  return end;
}

absl::Status HostAttention::Plan(absl::Span<const Segment> segments) {
  segments_ = segments;
  return host().Plan(segments);
}

void HostAttention::Attend(const LayerRows& rows) {
  Device& device = *context_.place->device;
  const AttentionGeometry& g = context_.geometry;
  const int64_t q_dim = g.n_heads * g.head_dim;
  const int64_t first = first_row(), n = end_row() - first;
  // Fetches rows into an array that begins where row 0 would; the last row ends after `width`.
  const auto fetch = [&](const float* from, int64_t ld, int64_t width, std::vector<float>& to) {
    to.resize((first + n) * ld);
    (void)device.Download(from + first * ld, to.data() + first * ld,
                          ((n - 1) * ld + width) * static_cast<int64_t>(sizeof(float)));
  };
  LayerRows fetched = rows;
  if (rows.x != nullptr) {
    fetch(rows.x, rows.ld_x, g.input_dim(), x_);
    fetched.x = x_.data();
  }
  // Queries, keys and values stand in the same rows, in this order.
  const float* begin = rows.q != nullptr ? rows.q : rows.k != nullptr ? rows.k : rows.v;
  if (begin != nullptr) {
    const float* last = rows.v != nullptr ? rows.v : rows.k != nullptr ? rows.k : rows.q;
    const int64_t last_width = last == rows.q ? q_dim : g.n_kv_heads * g.head_dim;
    fetch(begin, rows.ld_qkv, last - begin + last_width, qkv_);
    for (const float** part : {&fetched.q, &fetched.k, &fetched.v}) {
      if (*part != nullptr) *part = qkv_.data() + (*part - begin);
    }
  }
  out_.resize((first + n) * q_dim);
  fetched.out = out_.data();
  fetched.ld_out = q_dim;
  LK_CHECK(rows.ld_out == q_dim);
  if (!device.status().ok()) return;  // the fetched rows have no meaning
  host().Attend(fetched);
  for (const Segment& s : segments_) {
    device.Upload(out_.data() + s.first_row * q_dim, rows.out + s.first_row * q_dim,
                  s.n_rows * q_dim * static_cast<int64_t>(sizeof(float)));
  }
}

}  // namespace lowkey
