#ifndef LOWKEY_ENGINE_ATTENTION_TAYLORSHIFT_HOST_H_
#define LOWKEY_ENGINE_ATTENTION_TAYLORSHIFT_HOST_H_

#include <vector>

#include "engine/attention/attention.h"
#include "engine/attention/taylorshift/policy.h"
#include "engine/attention/taylorshift/rows.h"
#include "engine/attention/taylorshift/state.h"

namespace lowkey {

// TaylorShift on the host.
class HostTaylorShift : public TaylorShiftPolicy {
 public:
  explicit HostTaylorShift(const AttentionContext& context);

  absl::Status Plan(absl::Span<const Segment> segments) override;
  void Attend(const LayerRows& rows) override;

 private:
  struct FoldTask {
    int32_t kv_head = 0;
    int64_t tile = 0;
    FoldRange range;
  };
  struct RoundTasks {
    std::vector<FoldTask> folds;
    std::vector<TaylorRowsTask> reads;
  };

  void AppendFolds(RoundTasks& round, const FoldRange& range) const;
  void AppendReads(RoundTasks& round, const ReadRange& range) const;
  void Fold(int64_t layer, const FoldTask& task, TaylorFolder& folder) const;
  void Read(const LayerRows& rows, const TaylorRowsTask& task, TaylorRows& block) const;

  std::vector<RoundTasks> tasks_;      // by round
  std::vector<TaylorRows> blocks_;     // by thread
  std::vector<TaylorFolder> folders_;  // by thread
};

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_ATTENTION_TAYLORSHIFT_HOST_H_
