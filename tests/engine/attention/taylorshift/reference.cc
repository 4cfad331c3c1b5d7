#include "tests/engine/attention/taylorshift/reference.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/base/dtype.h"

namespace lowkey {
namespace {

constexpr int64_t kChunk = 64;

// One query head: its scaled queries, and keys and values as the cache holds them.
struct Head {
  int64_t n = 0, e = 0, d = 0;
  std::vector<double> far_q, near_q, k;  // [n, e]
  std::vector<double> v;                 // [n, d]

  const double* value(int64_t t) const { return v.data() + t * d; }
  double Score(const std::vector<double>& q, int64_t i, int64_t t) const {
    double s = 0;
    for (int64_t j = 0; j < e; ++j) s += q[i * e + j] * k[t * e + j];
    return s;
  }
};

double Cached(const AttentionGeometry& g, float x) {
  return g.cache_type == StorageType::kFloat32 ? x : ToFloat(ToBFloat16(x));
}

double Norm(const float* x, int64_t n) {
  double sum = 0;
  for (int64_t j = 0; j < n; ++j) sum += static_cast<double>(x[j]) * x[j];
  return std::max(std::sqrt(sum), 1e-12);
}

Head HeadOf(const AttentionRows& rows, int64_t layer, int64_t h, const TaylorModel& model) {
  const AttentionGeometry& g = rows.geometry;
  Head head{rows.n_tokens, g.key_dim(), g.head_dim, {}, {}, {}, {}};
  const bool plain = model.variant == TaylorVariant::kPlain;
  const std::vector<float>& near = model.near.empty() ? model.far : model.near;
  const int64_t kv_head = h / g.group();
  for (int64_t i = 0; i < head.n; ++i) {
    const float* q = rows.row(layer, i) + h * head.e;
    const float* k = rows.row(layer, i) + g.q_dim() + kv_head * head.e;
    const float* v = rows.row(layer, i) + g.q_dim() + g.k_dim() + kv_head * head.d;
    const double unit = plain ? 1 / std::sqrt(static_cast<double>(head.e)) : 1 / Norm(q, head.e);
    const double far_scale = plain ? unit : unit * model.far[layer * g.n_heads + h];
    const double near_scale = plain ? unit : unit * near[layer * g.n_heads + h];
    const double length = plain ? 1 : Norm(k, head.e);
    for (int64_t j = 0; j < head.e; ++j) {
      head.far_q.push_back(far_scale * q[j]);
      head.near_q.push_back(near_scale * q[j]);
      head.k.push_back(Cached(g, static_cast<float>(k[j] / length)));
    }
    for (int64_t j = 0; j < head.d; ++j) head.v.push_back(Cached(g, v[j]));
  }
  return head;
}

// Sums of weights and of weighted values, both times exp(-top).
struct Sums {
  std::vector<double> values;
  double weights = 0;
  double top = -std::numeric_limits<double>::infinity();
};

// Adds (values, weight) times exp(scale).
void Add(const double* values, double weight, double scale, Sums& sums) {
  if (scale > sums.top) {
    const double factor = std::exp(sums.top - scale);
    for (double& x : sums.values) x *= factor;
    sums.weights *= factor;
    sums.top = scale;
  }
  const double factor = std::exp(scale - sums.top);
  for (size_t j = 0; j < sums.values.size(); ++j) sums.values[j] += factor * values[j];
  sums.weights += factor * weight;
}

void AddTaylor(const Head& head, int64_t i, int64_t t, Sums& sums) {
  const double s = head.Score(head.far_q, i, t), w = 1 + s + s * s / 2;
  std::vector<double> values(head.value(t), head.value(t) + head.d);
  for (double& x : values) x *= w;
  Add(values.data(), w, 0, sums);
}

std::vector<double> Features(const double* x, int64_t e) {
  std::vector<double> phi = {1};
  phi.insert(phi.end(), x, x + e);
  for (int64_t i = 0; i < e; ++i) {
    for (int64_t j = i; j < e; ++j) phi.push_back(x[i] * x[j] * (i == j ? std::sqrt(0.5) : 1));
  }
  return phi;
}

// S of all tokens that were added so far: [F, d + 1], the weights last.
class State {
 public:
  explicit State(const Head& head)
      : head_(head), sums_((1 + head.e + head.e * (head.e + 1) / 2) * (head.d + 1)) {}

  void AddUntil(int64_t end) {
    for (; n_tokens_ < end; ++n_tokens_) {
      const std::vector<double> phi = Features(head_.k.data() + n_tokens_ * head_.e, head_.e);
      for (size_t f = 0; f < phi.size(); ++f) {
        double* to = sums_.data() + static_cast<int64_t>(f) * (head_.d + 1);
        for (int64_t j = 0; j < head_.d; ++j) to[j] += phi[f] * head_.value(n_tokens_)[j];
        to[head_.d] += phi[f];
      }
    }
  }
  // Adds what row i reads.
  void Read(int64_t i, Sums& sums) const {
    if (n_tokens_ == 0) return;
    const std::vector<double> phi = Features(head_.far_q.data() + i * head_.e, head_.e);
    std::vector<double> read(head_.d + 1);
    for (size_t f = 0; f < phi.size(); ++f) {
      for (size_t j = 0; j < read.size(); ++j) read[j] += phi[f] * sums_[f * read.size() + j];
    }
    Add(read.data(), read.back(), 0, sums);
  }

 private:
  const Head& head_;
  std::vector<double> sums_;
  int64_t n_tokens_ = 0;
};

enum class Form { kDirect, kByState };

std::vector<double> AttendAll(const AttentionRows& rows, int64_t layer, const TaylorModel& model,
                              Form form) {
  const AttentionGeometry& g = rows.geometry;
  const int64_t d = g.head_dim;
  const bool has_window = model.window_tokens > 0;
  std::vector<double> out(rows.n_tokens * g.n_heads * d);
  for (int64_t h = 0; h < g.n_heads; ++h) {
    const Head head = HeadOf(rows, layer, h, model);
    State state(head);
    for (int64_t i = 0; i < rows.n_tokens; ++i) {
      // Whole chunks before the row's own one, and before the window.
      const int64_t n_far = std::max<int64_t>(0, i / kChunk * kChunk - model.window_tokens);
      Sums sums{std::vector<double>(d)};
      if (form == Form::kByState) {
        state.AddUntil(n_far);
        state.Read(i, sums);
      } else {
        for (int64_t t = 0; t < n_far; ++t) AddTaylor(head, i, t, sums);
      }
      for (int64_t t = n_far; t <= i; ++t) {
        if (has_window) {
          Add(head.value(t), 1, head.Score(head.near_q, i, t), sums);
        } else {
          AddTaylor(head, i, t, sums);
        }
      }
      const bool is_scaled = model.variant == TaylorVariant::kNormalized && !has_window;
      const double scale = is_scaled ? std::sqrt(static_cast<double>(i + 1) / d) : 1;
      for (int64_t j = 0; j < d; ++j) {
        out[(i * g.n_heads + h) * d + j] = sums.values[j] / sums.weights * scale;
      }
    }
  }
  return out;
}

}  // namespace

std::vector<double> ReferenceTaylorShift(const AttentionRows& rows, int64_t layer,
                                         const TaylorModel& model) {
  return AttendAll(rows, layer, model, Form::kDirect);
}

std::vector<double> ReferenceTaylorShiftByState(const AttentionRows& rows, int64_t layer,
                                                const TaylorModel& model) {
  return AttendAll(rows, layer, model, Form::kByState);
}

}  // namespace lowkey
