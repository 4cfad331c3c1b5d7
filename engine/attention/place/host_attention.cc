#include "engine/attention/place/host_attention.h"

#include <algorithm>

#include "engine/base/status_macros.h"

namespace lowkey {

absl::Status HostAttention::Plan(absl::Span<const Segment> segments) {
  segments_ = segments;
  return host().Plan(segments);
}

void HostAttention::Attend(const LayerRows& rows) {
  Device& device = *context_.place->device;
  const AttentionGeometry& g = context_.geometry;
  const int64_t out_dim = g.out_dim();
  int64_t first = segments_[0].first_row, end = 0;  // rows of the step that are fetched
  for (const Segment& s : segments_) {
    first = std::min(first, s.first_row);
    end = std::max(end, s.first_row + s.n_rows);
  }
  // Fetches rows into an array that begins where row 0 would; the last row ends after `width`.
  const auto fetch = [&](const float* from, int64_t ld, int64_t width, std::vector<float>& to) {
    to.resize(end * ld);
    (void)device.Download(from + first * ld, to.data() + first * ld,
                          ((end - first - 1) * ld + width) * static_cast<int64_t>(sizeof(float)));
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
    const int64_t last_width = last == rows.q ? g.q_dim() : last == rows.k ? g.k_dim() : g.v_dim();
    fetch(begin, rows.ld_qkv, last - begin + last_width, qkv_);
    for (const float** part : {&fetched.q, &fetched.k, &fetched.v}) {
      if (*part != nullptr) *part = qkv_.data() + (*part - begin);
    }
  }
  out_.resize(end * out_dim);
  fetched.out = out_.data();
  fetched.ld_out = out_dim;
  LK_CHECK(rows.ld_out == out_dim);
  if (!device.status().ok()) return;  // the fetched rows have no meaning
  host().Attend(fetched);
  for (const Segment& s : segments_) {
    device.Upload(out_.data() + s.first_row * out_dim, rows.out + s.first_row * out_dim,
                  s.n_rows * out_dim * static_cast<int64_t>(sizeof(float)));
  }
}

}  // namespace lowkey
