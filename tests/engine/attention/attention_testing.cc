#include "tests/engine/attention/attention_testing.h"

#include <lapacke.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <random>

#include "engine/base/dtype.h"
#include "engine/lowrank/principal_basis.h"

namespace lowkey {
namespace {

using Matrix = std::vector<double>;  // row-major

float Cached(const AttentionGeometry& g, float x) {
  return g.cache_type == StorageType::kFloat32 ? x : ToFloat(ToBFloat16(x));
}

// Keys and values of one KV head as the cache holds them, [n, head_dim] each.
struct HeadKv {
  Matrix k, v;
};

HeadKv CachedKv(const AttentionRows& rows, int64_t layer, int64_t kv_head) {
  const AttentionGeometry& g = rows.geometry;
  HeadKv out;
  for (int64_t i = 0; i < rows.n_tokens; ++i) {
    const float* k = rows.row(layer, i) + (g.n_heads + kv_head) * g.head_dim;
    for (int64_t j = 0; j < g.head_dim; ++j) {
      out.k.push_back(Cached(g, k[j]));
      out.v.push_back(Cached(g, k[g.n_kv_heads * g.head_dim + j]));
    }
  }
  return out;
}

// Tokens and what stands for them: the approximated keys and values of all that a row sees.
struct Seen {
  const double* k;
  const double* v;
};

void AttendTo(const std::vector<Seen>& seen, const float* q, int64_t d, double* out) {
  std::vector<double> scores;
  for (const Seen& s : seen) {
    double dot = 0;
    for (int64_t j = 0; j < d; ++j) dot += static_cast<double>(q[j]) * s.k[j];
    scores.push_back(dot / std::sqrt(static_cast<double>(d)));
  }
  const double top = *std::max_element(scores.begin(), scores.end());
  double sum = 0;
  for (double& s : scores) sum += s = std::exp(s - top);
  std::fill_n(out, d, 0.0);
  for (size_t t = 0; t < seen.size(); ++t) {
    for (int64_t j = 0; j < d; ++j) out[j] += scores[t] / sum * seen[t].v[j];
  }
}

// Columns of rows [begin, end) of m [.., d], centred.
Matrix Centerd(const Matrix& m, int64_t begin, int64_t end, int64_t d, Matrix* mean) {
  mean->assign(d, 0.0);
  for (int64_t i = begin; i < end; ++i) {
    for (int64_t j = 0; j < d; ++j) (*mean)[j] += m[i * d + j] / static_cast<double>(end - begin);
  }
  Matrix out;
  for (int64_t i = begin; i < end; ++i) {
    for (int64_t j = 0; j < d; ++j) out.push_back(m[i * d + j] - (*mean)[j]);
  }
  return out;
}

// Left singular vectors of m [n, c], as LAPACK finds them: [n, min(n, c)].
Matrix LeftVectors(Matrix m, int64_t n, int64_t c) {
  const int64_t s = std::min(n, c);
  Matrix sigma(s), u(n * s), vt(s * c);
  EXPECT_EQ(LAPACKE_dgesdd(LAPACK_ROW_MAJOR, 'S', static_cast<int>(n), static_cast<int>(c),
                           m.data(), static_cast<int>(c), sigma.data(), u.data(),
                           static_cast<int>(s), vt.data(), static_cast<int>(c)),
            0);
  return u;
}

// u [n, s] cut or filled with zeros: [n, rank].
Matrix FirstColumns(const Matrix& u, int64_t n, int64_t s, int64_t rank) {
  Matrix out(n * rank, 0.0);
  for (int64_t i = 0; i < n; ++i) {
    std::copy_n(u.data() + i * s, std::min(rank, s), out.data() + i * rank);
  }
  return out;
}

// The basis of tokens [begin, end) over the given heads: [n, rank] of the centred keys and values,
// each scaled to unit norm.
Matrix Basis(const std::vector<HeadKv>& heads, int64_t begin, int64_t end, int64_t d,
             int64_t rank) {
  const int64_t n = end - begin, c = 2 * d * static_cast<int64_t>(heads.size());
  Matrix columns(n * c);
  for (size_t p = 0; p < 2 * heads.size(); ++p) {
    Matrix mean;
    const HeadKv& head = heads[p / 2];
    const Matrix part = Centerd(p % 2 == 0 ? head.k : head.v, begin, end, d, &mean);
    double energy = 0;
    for (double x : part) energy += x * x;
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t j = 0; j < d; ++j) {
        columns[i * c + static_cast<int64_t>(p) * d + j] =
            part[i * d + j] / std::max(std::sqrt(energy), 1e-12);
      }
    }
  }
  return FirstColumns(LeftVectors(columns, n, c), n, std::min(n, c), rank);
}

// The same of the layer's input.
Matrix InputBasis(const AttentionRows& rows, int64_t layer, int64_t begin, int64_t end,
                  int64_t rank) {
  const AttentionGeometry& g = rows.geometry;
  const int64_t dim = g.input_dim();
  Matrix x, mean;
  for (int64_t i = 0; i < rows.n_tokens; ++i) {
    const float* from = rows.row(layer, i) + (g.n_heads + 2 * g.n_kv_heads) * g.head_dim;
    for (int64_t j = 0; j < dim; ++j) x.push_back(Cached(g, from[j]));
  }
  const Matrix m = Centerd(x, begin, end, dim, &mean);
  return FirstColumns(LeftVectors(m, end - begin, dim), end - begin, std::min(end - begin, dim),
                      rank);
}

// Replaces rows [begin, end) of m by mean + U U^T (m - mean).
void Project(const Matrix& u, int64_t begin, int64_t end, int64_t d, Matrix& m) {
  const int64_t n = end - begin, rank = static_cast<int64_t>(u.size()) / n;
  Matrix mean;
  const Matrix centred = Centerd(m, begin, end, d, &mean);
  Matrix low(rank * d, 0.0);
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t r = 0; r < rank; ++r) {
      for (int64_t j = 0; j < d; ++j) low[r * d + j] += u[i * rank + r] * centred[i * d + j];
    }
  }
  for (int64_t i = 0; i < n; ++i) {
    for (int64_t j = 0; j < d; ++j) {
      double x = mean[j];
      for (int64_t r = 0; r < rank; ++r) x += u[i * rank + r] * low[r * d + j];
      m[(begin + i) * d + j] = x;
    }
  }
}

// Every head's keys and values with each closed block replaced by its principal approximation.
std::vector<HeadKv> Approximated(const std::vector<HeadKv>& exact, const AtpOptions& o,
                                 const AttentionRows& rows, int64_t layer, int64_t rank) {
  const int64_t d = rows.geometry.head_dim;
  std::vector<HeadKv> out = exact;
  for (int64_t b = 0; b < rows.n_tokens / o.block_tokens; ++b) {
    const int64_t begin = std::max<int64_t>(b * o.block_tokens, o.sinks);
    const int64_t end = (b + 1) * o.block_tokens;
    Matrix u;
    if (o.basis == AtpBasis::kLayer) u = Basis(exact, begin, end, d, rank);
    if (o.basis == AtpBasis::kInput) u = InputBasis(rows, layer, begin, end, rank);
    for (size_t h = 0; h < exact.size(); ++h) {
      if (o.basis == AtpBasis::kKv) u = Basis({exact[h]}, begin, end, d, rank);
      Project(u, begin, end, d, out[h].k);
      Project(u, begin, end, d, out[h].v);
    }
  }
  return out;
}

std::vector<HeadKv> AllCachedKv(const AttentionRows& rows, int64_t layer) {
  std::vector<HeadKv> out;
  for (int64_t h = 0; h < rows.geometry.n_kv_heads; ++h) out.push_back(CachedKv(rows, layer, h));
  return out;
}

// Row i sees tokens first(i) .. i; token t through the exact keys and values where exact(i, head,
// t).
template <class First, class Exact>
std::vector<double> AttendAll(const AttentionRows& rows, int64_t layer,
                              const std::vector<HeadKv>& exact_kv,
                              const std::vector<HeadKv>& far_kv, First first, Exact exact) {
  const AttentionGeometry& g = rows.geometry;
  const int64_t d = g.head_dim;
  std::vector<double> out(rows.n_tokens * g.n_heads * d);
  for (int64_t i = 0; i < rows.n_tokens; ++i) {
    for (int64_t h = 0; h < g.n_heads; ++h) {
      std::vector<Seen> seen;
      for (int64_t t = first(i); t <= i; ++t) {
        const HeadKv& kv = (exact(i, h, t) ? exact_kv : far_kv)[h / g.group()];
        seen.push_back({kv.k.data() + t * d, kv.v.data() + t * d});
      }
      AttendTo(seen, rows.row(layer, i) + h * d, d, out.data() + (i * g.n_heads + h) * d);
    }
  }
  return out;
}

// Of the far tokens (exact(i, t) false) that row i sees, the o.refine_tokens of highest approximate
// weight, summed over the query heads of a KV head.
template <class Exact>
std::vector<bool> Refined(const AttentionGeometry& g, const AtpOptions& o, const HeadKv& exact_kv,
                          const HeadKv& far_kv, const float* q, int64_t i, Exact exact) {
  std::vector<std::pair<double, int64_t>> far;
  for (int64_t t = 0; t <= i; ++t) {
    if (!exact(i, t)) far.push_back({0.0, t});
  }
  for (int64_t h = 0; h < g.group(); ++h) {
    std::vector<double> weights;
    for (int64_t t = 0; t <= i; ++t) {
      const double* k = (exact(i, t) ? exact_kv : far_kv).k.data() + t * g.head_dim;
      double dot = 0;
      for (int64_t j = 0; j < g.head_dim; ++j) dot += q[h * g.head_dim + j] * k[j];
      weights.push_back(dot / std::sqrt(static_cast<double>(g.head_dim)));
    }
    const double top = *std::max_element(weights.begin(), weights.end());
    double sum = 0;
    for (double& w : weights) sum += w = std::exp(w - top);
    for (auto& [weight, t] : far) weight -= weights[t] / sum;  // ascending: the highest come first
  }
  std::sort(far.begin(), far.end());
  std::vector<bool> chosen(i + 1, false);
  for (size_t f = 0; f < std::min<size_t>(far.size(), o.refine_tokens); ++f) {
    chosen[far[f].second] = true;
  }
  return chosen;
}

}  // namespace

PrincipalCodes TestCodes(const AttentionGeometry& g) {
  constexpr int64_t kRows = 200;
  std::mt19937 rng(11);
  std::normal_distribution<float> normal;
  ThreadPool pool(1);
  MomentsScratch scratch;
  // Numbers of different sizes, around a mean.
  const auto moments = [&](int64_t dim) {
    std::vector<float> x(kRows * dim);
    for (size_t i = 0; i < x.size(); ++i) {
      const auto j = static_cast<float>(i % static_cast<size_t>(dim));
      x[i] = 0.3f + normal(rng) * (0.5f + 1.5f / (1.0f + j));
    }
    Moments m(dim);
    m.Add(x.data(), kRows, pool, scratch);
    return m;
  };
  PrincipalCodes codes;
  codes.heads.n_layers = g.n_layers;
  codes.heads.n_kv_heads = g.n_kv_heads;
  for (int64_t i = 0; i < g.key_dim() / 2; ++i) {
    codes.heads.inverse_frequencies.push_back(std::pow(1000.0, -static_cast<double>(i)));
  }
  for (int64_t i = 0; i < g.n_layers * g.n_kv_heads; ++i) {
    const Moments keys = moments(g.key_dim()), queries = moments(g.key_dim()),
                  values = moments(g.head_dim);
    codes.heads.keys.push_back(*FindPrincipalCode({1, g.key_dim(), 0}, keys, {&queries, 1}));
    codes.heads.values.push_back(*FindPrincipalCode({1, 0, g.head_dim}, values, {}));
  }
  return codes;
}

std::vector<double> TurnedMean(const HeadCodes& codes, const float* mean, int64_t position) {
  const auto half = static_cast<int64_t>(codes.inverse_frequencies.size());
  std::vector<double> out(2 * half);
  for (int64_t i = 0; i < half; ++i) {
    const double angle = static_cast<double>(position) * codes.inverse_frequencies[i];
    out[i] = mean[i] * std::cos(angle) - mean[half + i] * std::sin(angle);
    out[half + i] = mean[i] * std::sin(angle) + mean[half + i] * std::cos(angle);
  }
  return out;
}

std::vector<double> IndexedPage::Half::Restored(const TokenIndex::Half& half, int64_t dim) const {
  std::vector<double> x(dim * kPageTokens);
  for (int64_t i = 0; i < dim * kPageTokens; ++i) {
    for (int64_t j = 0; j < half.n(); ++j) {
      x[i] += components[j * kPageTokens + i % kPageTokens] *
              half.rows[j * half.width + i / kPageTokens];
    }
  }
  return x;
}

IndexedPage ReadIndex(const AttentionGeometry& g, const TokenIndex& index, int64_t layer,
                      int64_t kv_head, const std::vector<std::byte>& page) {
  const TokenIndex::Page at = TokenIndex::PageAt(g, page.data());
  const LevelBook& book = index.book();
  const auto read = [&](const LevelBands& bands, const uint8_t* gains, const auto& byte_of) {
    IndexedPage::Half half;
    for (int64_t t = 0; t < kPageTokens; ++t) {
      half.gains.push_back(book.gains[gains[t / 4] >> (2 * (t % 4)) & 3]);
    }
    int64_t first = 0;
    for (int band = 0; band < LevelBands::kBands; ++band) {
      const int64_t n = bands.nibbles(band);
      for (int64_t i = 0; i < bands.n[band] * kPageTokens; ++i) {
        const int64_t t = i % kPageTokens, j = i / kPageTokens;
        const int nibble = byte_of(first + j % n, t) >> (t < 32 ? 0 : 4) & 15;
        const auto& levels = book.levels[LevelBook::TableOf(band) + j / n];
        half.components.push_back(half.gains[t] * levels[nibble]);
      }
      first += n;
    }
    return half;
  };
  const int64_t ld = index.values(layer, kv_head).bands.n_nibbles();
  return {read(index.keys(layer, kv_head).bands, at.key_gains,
               [&](int64_t j, int64_t t) { return at.keys[j / 4 * 128 + t % 32 * 4 + j % 4]; }),
          read(index.values(layer, kv_head).bands, at.value_gains,
               [&](int64_t j, int64_t t) { return at.values[(t % 32 / 4 * ld + j) * 4 + t % 4]; })};
}

AttentionRows RandomRows(const AttentionGeometry& geometry, int64_t n_tokens, uint32_t seed) {
  AttentionRows rows{geometry, n_tokens, {}};
  rows.data.resize(geometry.n_layers * n_tokens * rows.ld());
  std::mt19937 rng(seed);
  std::normal_distribution<float> normal;
  for (float& x : rows.data) x = normal(rng);
  return rows;
}

AttentionRows FactorRows(const AttentionGeometry& g, int64_t n_tokens,
                         const std::vector<float>& weights, uint32_t seed) {
  AttentionRows rows = RandomRows(g, n_tokens, seed);
  const auto s = static_cast<int64_t>(weights.size());
  const int64_t kv_dim = 2 * g.n_kv_heads * g.head_dim, q_dim = g.n_heads * g.head_dim;
  const std::pair<int64_t, int64_t> columns[] = {{q_dim, kv_dim}, {q_dim + kv_dim, q_dim}};
  float energy = 0;
  for (float w : weights) energy += w * w;
  std::mt19937 rng(seed + 1);
  std::normal_distribution<float> normal;
  for (int64_t layer = 0; layer < g.n_layers; ++layer) {
    for (const auto& [first, n_cols] : columns) {
      std::vector<float> right(s * n_cols);
      for (float& x : right) x = normal(rng) / std::sqrt(energy);
      for (int64_t i = 0; i < n_tokens; ++i) {
        float* out = rows.row(layer, i) + first;
        std::fill_n(out, n_cols, 0.5f);
        for (int64_t f = 0; f < s; ++f) {
          const float left = normal(rng) * weights[f];
          for (int64_t j = 0; j < n_cols; ++j) out[j] += left * right[f * n_cols + j];
        }
      }
    }
  }
  return rows;
}

std::vector<float> GapAt(int64_t n_strong) {
  std::vector<float> weights(n_strong, 1.0f);
  weights.resize(n_strong + 6, 0.05f);
  return weights;
}

std::vector<double> ReferenceStandard(const AttentionRows& rows, int64_t layer) {
  const std::vector<HeadKv> kv = AllCachedKv(rows, layer);
  const int64_t window = rows.geometry.sliding_window.value_or(rows.n_tokens);
  return AttendAll(
      rows, layer, kv, kv, [window](int64_t i) { return std::max<int64_t>(0, i - window + 1); },
      [](int64_t, int64_t, int64_t) { return true; });
}

std::vector<double> ReferenceAtp(const AttentionRows& rows, int64_t layer, const AtpOptions& o,
                                 int64_t rank, int64_t n_prompt_tokens) {
  const std::vector<HeadKv> kv = AllCachedKv(rows, layer);
  const std::vector<HeadKv> far = Approximated(kv, o, rows, layer, rank);
  const auto near = [&](int64_t i, int64_t t) {
    if (o.prefill == AtpPrefill::kExact && i < n_prompt_tokens) return true;
    return t < o.sinks || t / o.block_tokens >= i / o.block_tokens - o.window_blocks;
  };
  const AttentionGeometry& g = rows.geometry;
  std::vector<std::vector<bool>> chosen;  // [n_tokens * n_kv_heads]
  for (int64_t i = 0; i < rows.n_tokens; ++i) {
    for (int64_t h = 0; h < g.n_kv_heads; ++h) {
      const float* q = rows.row(layer, i) + h * g.group() * g.head_dim;
      chosen.push_back(Refined(g, o, kv[h], far[h], q, i, near));
    }
  }
  return AttendAll(
      rows, layer, kv, far, [](int64_t) { return int64_t{0}; },
      [&](int64_t i, int64_t h, int64_t t) {
        return near(i, t) || chosen[i * g.n_kv_heads + h / g.group()][t];
      });
}

MechanismWeights TestWeights(const AttentionGeometry& g, Mechanism over,
                             const std::vector<float>& tau) {
  constexpr int64_t kAlignmentTokens = 512;
  static const std::vector<float>* const alignment = [] {
    auto* values = new std::vector<float>;
    std::mt19937 rng(7);
    std::normal_distribution<float> normal(0, 0.3f);
    for (int64_t i = 0; i < kAlignmentTokens; ++i) {
      for (int64_t j = 0; j <= i; ++j)
        values->push_back(normal(rng) / static_cast<float>(1 + i - j));
    }
    return values;
  }();
  MechanismWeights weights;
  for (int64_t j = 0; j < g.head_dim / 2; ++j) {
    weights.inverse_frequencies.push_back(std::pow(10000.0, -2.0 * j / g.head_dim));
  }
  weights.over = over;
  weights.tau = tau;
  weights.alignment_tokens = kAlignmentTokens;
  TensorView view;
  view.shape = {static_cast<int64_t>(alignment->size())};
  view.data = reinterpret_cast<const std::byte*>(alignment->data());
  weights.alignment.assign(g.n_layers, view);
  weights.lasso.iterations = 1;
  weights.lasso.extra_tokens = 8;
  return weights;
}

AttentionOptions Standard(CacheStorage storage) {
  AttentionOptions options;
  options.standard.storage = storage;
  return options;
}

AttentionOptions Atp(const AtpOptions& options) { return {Mechanism::kAtp, options, {}}; }

AttentionOptions TaylorShift(TaylorForm form, TaylorVariant variant) {
  return {Mechanism::kTaylorShift, {}, {form, variant}};
}

testing::AssertionResult SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  if (a.size() != b.size()) {
    return testing::AssertionFailure() << a.size() << " elements and " << b.size();
  }
  if (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0) {
    return testing::AssertionSuccess();
  }
  for (size_t i = 0;; ++i) {
    if (std::memcmp(&a[i], &b[i], sizeof(float)) != 0) {
      return testing::AssertionFailure() << "element " << i << ": " << a[i] << " and " << b[i];
    }
  }
}

}  // namespace lowkey
