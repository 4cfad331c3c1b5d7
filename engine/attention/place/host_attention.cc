#include "engine/attention/place/host_attention.h"

#include <algorithm>

#include "engine/base/status_macros.h"

namespace lowkey {

absl::Status HostAttention::Plan(absl::Span<const Segment> segments) {
  segments_ = segments;
  return real().Plan(segments);
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
  if (real().ReadsInputs()) {
    fetch(rows.x, rows.ld_x, g.input_dim(), x_);
    fetched.x = x_.data();
  }
  // Queries, keys and values stand in the same rows, in this order.
  if (rows.q != nullptr) {
    fetch(rows.q, rows.ld_qkv, rows.v - rows.q + g.v_dim(), qkv_);
    fetched.q = qkv_.data();
    fetched.k = qkv_.data() + (rows.k - rows.q);
    fetched.v = qkv_.data() + (rows.v - rows.q);
  }
  out_.resize(end * out_dim);
  fetched.out = out_.data();
  fetched.ld_out = out_dim;
  LK_CHECK(rows.ld_out == out_dim);
  if (!device.status().ok()) return;  // the fetched rows have no meaning
  real().Attend(fetched);
  for (const Segment& s : segments_) {
    device.Upload(out_.data() + s.first_row * out_dim, rows.out + s.first_row * out_dim,
                  s.n_rows * out_dim * static_cast<int64_t>(sizeof(float)));
  }
}

}  // namespace lowkey
