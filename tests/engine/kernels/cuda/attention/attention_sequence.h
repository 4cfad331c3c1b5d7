#ifndef LOWKEY_TESTS_ENGINE_KERNELS_CUDA_ATTENTION_ATTENTION_SEQUENCE_H_
#define LOWKEY_TESTS_ENGINE_KERNELS_CUDA_ATTENTION_ATTENTION_SEQUENCE_H_

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <random>
#include <vector>

#include "engine/base/dtype.h"
#include "engine/kernels/cuda/launches.h"
#include "engine/kernels/device/kernels.h"
#include "tests/testing/max_difference.h"
#include "tests/testing/test_device.h"

namespace lowkey {

inline constexpr int64_t kTokensInPage = 64;
inline constexpr int64_t kLayers = 2, kLayer = 1;

struct Shape {
  StorageType type = StorageType::kFloat32;
  int64_t n_kv_heads = 1, group = 1, head_dim = 32;
  std::optional<int64_t> window = {};
  int64_t n_tokens = 0;
  int64_t closed_bits = 0;

  int64_t n_before() const { return window.value_or(std::numeric_limits<int32_t>::max()) - 1; }
};

// Rows of a step: tokens [first, end) of the sequence.
struct Rows {
  int64_t first = 0, end = 0;
};

// Whether each span is a task of its own.
enum class Spans { kTogether, kSpread };

// Whether results are fp32, or bf16 beside sums in fp32.
enum class Results { kFloat, kRounded };

// How DeviceKernels::attend computes: as the device chooses, or by warpgroups.
enum class Way { kChosen, kWarpgroups };

// One sequence in pages of its own, which held NaN before.
class Sequence {
 public:
  Sequence(const Shape& shape, uint32_t seed) : shape_(shape) {
    std::mt19937 engine(seed);
    std::normal_distribution<float> normal;
    rows_.resize(shape.n_tokens * ld());
    for (float& x : rows_) x = normal(engine);
    rows_there_.emplace(rows_);
    const int64_t n_pages = (shape.n_tokens + kTokensInPage - 1) / kTokensInPage;
    const int64_t page_bytes =
        kLayers * shape.n_kv_heads * 2 * kTokensInPage * shape.head_dim * StorageBytes(shape.type);
    for (int64_t i = 0; i < n_pages; ++i) {
      memory_.emplace_back(std::vector<std::byte>(page_bytes, std::byte{0xff}));
      pages_.push_back(memory_.back().data());
    }
  }

  // Row layout [q | k | v].
  int64_t q_dim() const { return shape_.n_kv_heads * shape_.group * shape_.head_dim; }
  int64_t kv_dim() const { return shape_.n_kv_heads * shape_.head_dim; }
  int64_t ld() const { return q_dim() + 2 * kv_dim() + 1; }
  const float* q(int64_t token) const { return rows_.data() + token * ld(); }
  const float* k(int64_t token) const { return q(token) + q_dim(); }
  const float* v(int64_t token) const { return k(token) + kv_dim(); }

  void Write(Rows tokens) {
    std::vector<CacheSlot> slots;
    for (int64_t t = tokens.first; t < tokens.end; ++t) {
      slots.push_back({memory_[t / kTokensInPage].data(), static_cast<int32_t>(t),
                       static_cast<int32_t>(t % kTokensInPage)});
    }
    std::reverse(slots.begin(), slots.end());
    const DeviceArray<CacheSlot> slots_there(slots);
    const float* keys = rows_there_->data() + q_dim();
    device_.kernels().write_kv(
        device_, {{slots_there.data(), static_cast<int64_t>(slots.size()), shape_.type},
                  kLayer,
                  shape_.n_kv_heads,
                  shape_.head_dim,
                  keys,
                  keys + kv_dim(),
                  ld()});
    EXPECT_TRUE(device_.Wait().ok());
  }

  // Closes the pages before token `end`, a multiple of 64.
  void Close(int64_t end) {
    const int64_t head_bytes = ClosedTileBytes(shape_.head_dim, shape_.closed_bits);
    std::vector<ClosePageTask> tasks;
    for (int64_t page = 0; page < end / kTokensInPage; ++page) {
      closed_.emplace_back(
          std::vector<std::byte>(kLayers * shape_.n_kv_heads * head_bytes, std::byte{0xff}));
      tasks.push_back(
          {memory_[page].data(), closed_.back().data(), static_cast<int32_t>(shape_.closed_bits)});
    }
    tasks.push_back({});
    const DeviceArray<ClosePageTask> there(tasks);
    device_.kernels().close_pages(device_, {there.data(), there.size(), shape_.type, kLayer,
                                            shape_.n_kv_heads, shape_.head_dim});
    for (const DeviceArray<std::byte>& page : closed_) {
      pages_.push_back(page.data());
      read_.push_back(ReadClosed(page.Read()));
    }
  }

  // Returns how far the farthest closed number is from the cached number.
  double MaxClosedError() const {
    double worst = 0;
    for (int64_t t = 0; t < static_cast<int64_t>(closed_.size()) * kTokensInPage; ++t) {
      for (int64_t j = 0; j < 2 * kv_dim(); ++j) {
        worst = std::max(worst, std::fabs(Number(t, j, true) - Number(t, j, false)));
      }
    }
    return worst;
  }

  // Returns outputs [tokens, q_dim]; keys and values up to tokens.end are written already. With
  // closed pages the tokens are those of one page.
  std::vector<float> Attend(Rows tokens, RowTile size, Spans spans,
                            Results results = Results::kFloat, Way way = Way::kChosen) {
    tasks_.clear();
    joins_.clear();
    n_part_rows_ = 0;
    const int64_t n_rows = (tokens.end - tokens.first) * shape_.group;
    const int64_t max_rows = MaxTileRows(size, shape_.type, shape_.head_dim);
    for (int64_t row = 0, n = 0; row < n_rows; row += n) {
      n = std::min(max_rows, n_rows - row);
      while (SpanPagesOf(tokens, row + n - 1) != SpanPagesOf(tokens, row)) --n;
      AppendTile(tokens, row, n, spans);
    }
    tasks_.push_back({});  // no rows
    tasks_.back().n_rows = 0;
    const DeviceArray<RowTileTask> tasks(tasks_);
    const DeviceArray<JoinTask> joins(joins_);
    const DeviceArray<const std::byte*> pages(pages_);
    DeviceArray<float> out(
        std::vector<float>((tokens.end - tokens.first) * q_dim(), std::nanf("")));
    DeviceArray<uint16_t> rounded(out.size());
    DeviceArray<float> parts(n_part_rows_ * kv_dim()), states(n_part_rows_ * shape_.n_kv_heads * 2);
    const AttendArgs args{
        size,
        tasks.data(),
        tasks.size(),
        joins.data(),
        joins.size(),
        pages.data(),
        shape_.type,
        kLayer,
        shape_.n_kv_heads,
        shape_.group,
        shape_.head_dim,
        shape_.n_before(),
        rows_there_->data(),
        ld(),
        out.data() - tokens.first * q_dim(),
        q_dim(),
        results == Results::kFloat ? nullptr : rounded.data() - tokens.first * q_dim(),
        parts.data(),
        states.data(),
        shape_.closed_bits};
    (way == Way::kChosen ? device_.kernels().attend : AttendWithWarpgroups)(device_, args);
    device_.kernels().join_parts(device_, args);
    EXPECT_TRUE(device_.Wait().ok());
    if (results == Results::kFloat) return out.Read();
    std::vector<float> widened;
    for (const uint16_t bits : rounded.Read()) widened.push_back(ToFloat(BFloat16{bits}));
    return widened;
  }

  // Computes the reference in double, over keys and values as they are cached.
  std::vector<double> Reference(Rows tokens) const {
    std::vector<double> out;
    for (int64_t t = tokens.first; t < tokens.end; ++t) {
      for (int64_t h = 0; h < shape_.n_kv_heads * shape_.group; ++h) AppendHead(t, h, out);
    }
    return out;
  }

 private:
  int64_t SpanPagesOf(Rows tokens, int64_t row) const {
    return SpanPages(std::min(tokens.first + row / shape_.group, shape_.n_before()));
  }

  void AppendTile(Rows tokens, int64_t row, int64_t n_rows, Spans spans) {
    const int64_t span_pages = SpanPagesOf(tokens, row);
    RowTileTask task;
    task.span_pages = static_cast<int32_t>(span_pages);
    task.first_position = task.first_step_row = static_cast<int32_t>(tokens.first);
    task.end_position = static_cast<int32_t>(tokens.end);
    task.closed_pages = static_cast<int64_t>(memory_.size());
    task.first = static_cast<int32_t>(row);
    task.n_rows = static_cast<int32_t>(n_rows);
    const int64_t first = tokens.first + row / shape_.group;
    const int64_t last = tokens.first + (row + n_rows - 1) / shape_.group;
    const int64_t begin_page = std::max<int64_t>(0, first - shape_.n_before()) / kTokensInPage;
    const int64_t end_page = last / kTokensInPage + 1;
    const int64_t first_span = begin_page / span_pages, last_span = (end_page - 1) / span_pages;
    task.begin_page = static_cast<int32_t>(begin_page);
    task.end_page = static_cast<int32_t>(end_page);
    if (spans == Spans::kTogether || first_span == last_span) {
      tasks_.push_back(task);
      return;
    }
    task.n_parts = static_cast<int32_t>(last_span - first_span + 1);
    joins_.push_back({task.first_step_row, task.first, task.n_rows, task.n_parts, n_part_rows_});
    for (int64_t span = first_span; span <= last_span; ++span) {
      task.begin_page = static_cast<int32_t>(std::max(begin_page, span * span_pages));
      task.end_page = static_cast<int32_t>(std::min(end_page, (span + 1) * span_pages));
      task.part = n_part_rows_;
      n_part_rows_ += task.n_rows;
      tasks_.push_back(task);
    }
  }

  double AsCached(float x) const {
    return shape_.type == StorageType::kFloat32 ? x : ToFloat(ToBFloat16(x));
  }

  // Returns a closed page's keys and values, [64, 2 * kv_dim].
  std::vector<float> ReadClosed(const std::vector<std::byte>& page) const {
    const int64_t d = shape_.head_dim, bits = shape_.closed_bits, groups = (d + 31) / 32;
    const int64_t plane_bytes = kTokensInPage * d * bits / 8;
    std::vector<float> out(kTokensInPage * 2 * kv_dim());
    for (int64_t h = 0; h < shape_.n_kv_heads; ++h) {
      const auto* codes = reinterpret_cast<const uint8_t*>(page.data()) +
                          (kLayer * shape_.n_kv_heads + h) * ClosedTileBytes(d, bits);
      std::vector<uint16_t> numbers(4 * d + 2 * kTokensInPage * groups);
      std::memcpy(numbers.data(), codes + 2 * plane_bytes, numbers.size() * sizeof(uint16_t));
      for (int64_t i = 0; i < 2 * kTokensInPage * d; ++i) {
        const int64_t t = i / d % kTokensInPage, j = i % d;
        const bool is_key = i < kTokensInPage * d;
        const int64_t at = is_key ? t / 32 * d + j : 2 * d + t * groups + j / 32;
        const int code = bits == 8 ? codes[i] - 128 : (codes[i / 2] >> (i % 2 * 4) & 15) - 8;
        out[t * 2 * kv_dim() + (is_key ? 0 : kv_dim()) + h * d + j] =
            ToFloat(BFloat16{numbers[2 * at + 1]}) + ToFloat(BFloat16{numbers[2 * at]}) * code;
      }
    }
    return out;
  }

  // Returns key and value, [2 * kv_dim], of a token.
  double Number(int64_t token, int64_t j, bool is_closed) const {
    if (!is_closed) return AsCached(k(token)[j]);
    return read_[token / kTokensInPage][token % kTokensInPage * 2 * kv_dim() + j];
  }

  void AppendHead(int64_t token, int64_t head, std::vector<double>& out) const {
    const int64_t d = shape_.head_dim, kv = head / shape_.group * d;
    const int64_t first = std::max<int64_t>(0, token - shape_.n_before());
    const auto is_closed = [&](int64_t t) {
      return shape_.closed_bits > 0 && t / kTokensInPage < token / kTokensInPage;
    };
    std::vector<double> scores;
    for (int64_t t = first; t <= token; ++t) {
      double dot = 0;
      for (int64_t j = 0; j < d; ++j) {
        dot += q(token)[head * d + j] * Number(t, kv + j, is_closed(t));
      }
      scores.push_back(dot / std::sqrt(static_cast<double>(d)));
    }
    const double top = *std::max_element(scores.begin(), scores.end());
    std::vector<double> values(d);
    double sum = 0;
    for (int64_t t = first; t <= token; ++t) {
      const double weight = std::exp(scores[t - first] - top);
      sum += weight;
      for (int64_t j = 0; j < d; ++j) {
        values[j] += weight * Number(t, kv_dim() + kv + j, is_closed(t));
      }
    }
    for (double x : values) out.push_back(x / sum);
  }

  const Shape shape_;
  std::vector<float> rows_;
  std::optional<DeviceArray<float>> rows_there_;
  std::vector<DeviceArray<std::byte>> memory_, closed_;
  std::vector<std::vector<float>> read_;  // by closed page
  std::vector<const std::byte*> pages_;   // of memory_, then of closed_
  std::vector<RowTileTask> tasks_;
  std::vector<JoinTask> joins_;
  int32_t n_part_rows_ = 0;
  Device& device_ = KernelTestDevice();
};

inline bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

inline std::vector<float> Joined(std::vector<float> a, const std::vector<float>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

}  // namespace lowkey

#endif  // LOWKEY_TESTS_ENGINE_KERNELS_CUDA_ATTENTION_ATTENTION_SEQUENCE_H_
