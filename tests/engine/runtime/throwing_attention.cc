// Stands before MakeMechanism: the linker's --wrap sends calls of it here (CMakeLists.txt).
#include "tests/engine/runtime/throwing_attention.h"

#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "engine/attention/place/forwarded_attention.h"

namespace lowkey {
namespace {

using Where = AttentionFault::Where;

class ThrowingAttention : public ForwardedAttention {
 public:
  ThrowingAttention(std::unique_ptr<AttentionMechanism> real, ThreadPool* pool)
      : ForwardedAttention(std::move(real)), pool_(*pool) {}

  absl::Status Plan(absl::Span<const Segment> segments) override {
    segments_ = segments;
    absl::Status status = real().Plan(segments);
    for (const Segment& s : segments) MaybeThrow(Where::kPlan, *s.sequence, EndOf(s));
    return status;
  }

  bool OnlyQueues(const AttentionOptions& options) const override {
    return real().OnlyQueues(options);
  }

  // In the last layer, when everything else of the step has been written.
  void Attend(const LayerRows& rows) override {
    real().Attend(rows);
    if (rows.layer == 0) return;
    for (const Segment& s : segments_) {
      MaybeThrow(Where::kAttend, *s.sequence, EndOf(s));
      if (!IsMeant(Where::kWorker, *s.sequence, EndOf(s))) continue;
      // Every thread takes one of these, so that one is a worker's.
      std::atomic<int> n_begun{0};
      pool_.ParallelFor(pool_.n_threads(), [&](int64_t, int thread) {
        for (++n_begun; n_begun < pool_.n_threads();) std::this_thread::yield();
        if (thread == pool_.n_threads() - 1) MaybeThrow(Where::kWorker, *s.sequence, EndOf(s));
      });
    }
  }

  void Advance(SequenceCache& sequence, int64_t n_rows) override {
    MaybeThrow(Where::kAdvance, sequence, sequence.n_tokens + n_rows);
    real().Advance(sequence, n_rows);
  }

  std::optional<SequenceCache> Prefix(const SequenceCache& sequence, int64_t n_computed,
                                      int64_t n_tokens) const override {
    MaybeThrow(Where::kPrefix, sequence, n_computed);
    return real().Prefix(sequence, n_computed, n_tokens);
  }

  SequenceReport Report(absl::Span<const SequenceCache* const> sequences) const override {
    MaybeThrow(Where::kReport, *sequences[0], sequences[0]->n_tokens);
    return real().Report(sequences);
  }

 private:
  static int64_t EndOf(const Segment& s) { return s.first_position + s.n_rows; }

  static bool IsMeant(Where where, const SequenceCache& sequence, int64_t end) {
    const AttentionFault& fault = TheFault();
    return fault.where == where && sequence.n_prompt_tokens == fault.n_prompt_tokens &&
           end > fault.from_token && fault.n_thrown < fault.n_times;
  }

  void MaybeThrow(Where where, const SequenceCache& sequence, int64_t end) const {
    if (!IsMeant(where, sequence, end)) return;
    ++TheFault().n_thrown;
    TheFault().throws();
  }

  ThreadPool& pool_;
  absl::Span<const Segment> segments_;
};

}  // namespace

std::unique_ptr<AttentionMechanism> RealMechanism(Mechanism, const AttentionContext&) asm(
    "__real__ZN6lowkey13MakeMechanismENS_9MechanismERKNS_16AttentionContextE");
std::unique_ptr<AttentionMechanism> ThrowingMechanism(Mechanism, const AttentionContext&) asm(
    "__wrap__ZN6lowkey13MakeMechanismENS_9MechanismERKNS_16AttentionContextE");

std::unique_ptr<AttentionMechanism> ThrowingMechanism(Mechanism id,
                                                      const AttentionContext& context) {
  auto real = RealMechanism(id, context);
  if (real == nullptr) return nullptr;
  return std::make_unique<ThrowingAttention>(std::move(real), context.pool);
}

AttentionFault& TheFault() {
  static AttentionFault fault;
  return fault;
}

}  // namespace lowkey
