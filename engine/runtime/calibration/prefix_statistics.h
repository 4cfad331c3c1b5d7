#ifndef LOWKEY_ENGINE_RUNTIME_CALIBRATION_PREFIX_STATISTICS_H_
#define LOWKEY_ENGINE_RUNTIME_CALIBRATION_PREFIX_STATISTICS_H_

#include <functional>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/attention/attention.h"
#include "engine/attention/standard/prefix_codes.h"
#include "engine/base/threads/thread_pool.h"
#include "engine/lowrank/moments.h"

namespace lowkey {

// Statistics of a model's keys and queries before RoPE and of its values, by layer and group of KV
// heads. Takes 8 dim^2 bytes for each group of each layer. One thread calls.
class PrefixStatistics {
 public:
  // The first tokens of a text, which attract attention whatever they say, are left out.
  static constexpr int64_t kSkippedTokens = 4;

  // key_dim of the geometry is even. inverse_frequencies [key_dim / 2]: angle a position.
  PrefixStatistics(const AttentionGeometry& geometry, std::vector<double> inverse_frequencies);

  // Adds the rows of a step at one layer.
  void Add(const LayerRows& rows, absl::Span<const Segment> segments, ThreadPool& pool);

  int64_t n_tokens() const { return x_[0].n_rows(); }
  int64_t n_codes() const { return static_cast<int64_t>(x_.size()); }
  // Finds the codes; progress(codes found) comes from the calling thread. FindPrincipalCode's
  // errors.
  absl::StatusOr<PrefixCodes> FindCodes(ThreadPool& pool,
                                        const std::function<void(int64_t)>& progress) const;

 private:
  // The rows of a segment that count.
  struct Counted {
    const LayerRows& rows;
    int64_t first_row = 0, first_position = 0, n_rows = 0;
  };
  void AddKeysAndValues(const Counted& counted, int64_t group, ThreadPool& pool);
  void AddQueries(const Counted& counted, int64_t kv_head, ThreadPool& pool);
  // Turns a row's heads back to position 0.
  void TurnBack(int64_t row, int64_t n_heads, float* heads) const;

  AttentionGeometry geometry_;
  PrefixCodes shape_;                   // without codes
  std::vector<Moments> x_;              // [n_layers][n_groups]
  std::vector<Moments> queries_;        // [n_layers][n_kv_heads]
  std::vector<float> cos_, minus_sin_;  // of the counted rows: [n_rows][key_dim / 2]
  std::vector<float> gathered_;
  MomentsScratch scratch_;
};

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_RUNTIME_CALIBRATION_PREFIX_STATISTICS_H_
