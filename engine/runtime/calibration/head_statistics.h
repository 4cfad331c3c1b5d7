#ifndef LOWKEY_ENGINE_RUNTIME_CALIBRATION_HEAD_STATISTICS_H_
#define LOWKEY_ENGINE_RUNTIME_CALIBRATION_HEAD_STATISTICS_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "engine/attention/atp/calibrated/token_index.h"
#include "engine/attention/attention.h"
#include "engine/base/threads/thread_pool.h"
#include "engine/lowrank/moments.h"
#include "engine/lowrank/principal_basis.h"

namespace lowkey {

// Statistics of each KV head's keys before RoPE, of its queries after RoPE and of its values. The
// calibration's texts are short, so queries are turned from their own positions to positions all
// over the model's context, and so is what the found codes say of keys. One thread calls.
class HeadStatistics {
 public:
  // key_dim of the geometry is even. inverse_frequencies [key_dim / 2]: angle a position.
  HeadStatistics(const AttentionGeometry& geometry, std::vector<double> inverse_frequencies,
                 int64_t context_tokens);

  // Adds the rows of a step at one layer. The first tokens of a text do not count.
  void Add(const LayerRows& rows, absl::Span<const Segment> segments, ThreadPool& pool);

  int64_t n_codes() const { return static_cast<int64_t>(keys_.size() + values_.size()); }
  // Finds the codes; progress(codes found) comes from the calling thread. FindPrincipalCode's
  // errors.
  absl::StatusOr<HeadCodes> FindCodes(ThreadPool& pool,
                                      const std::function<void(int64_t)>& progress) const;

 private:
  // The means over positions of products of cosines and sines of the angles of two frequencies.
  struct PairMeans {
    double cos_cos = 0, cos_sin = 0, sin_cos = 0, sin_sin = 0;
  };
  std::vector<PairMeans> FindPairMeans() const;
  // Rows of a segment that count, and how far each is turned: [n_rows][key_dim / 2].
  struct Turned {
    int64_t first_row = 0, n_rows = 0;
    std::vector<float> cos, sin;
  };
  // Turns rows to positions all over the context, or to position 0 unless to_far.
  Turned Turn(const Segment& segment, bool to_far) const;
  // Adds n_heads heads of `dim` numbers of every row to moments; `from` is where row 0 has them.
  void AddHeads(const Turned& turned, const float* from, int64_t ld, int64_t n_heads, int64_t dim,
                bool turns, Moments& moments, ThreadPool& pool);
  // Returns what the moments of keys before RoPE say of keys after it, without the mean's part,
  // which turns with the position: the mean of the result is that before RoPE.
  VectorStatistics AfterRope(const Moments& keys, const std::vector<PairMeans>& pairs) const;

  const AttentionGeometry geometry_;
  const std::vector<double> inverse_frequencies_;
  const int64_t context_tokens_;
  std::vector<Moments> keys_, queries_, values_;  // [n_layers][n_kv_heads]
  std::vector<float> gathered_;
  MomentsScratch scratch_;
};

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_RUNTIME_CALIBRATION_HEAD_STATISTICS_H_
