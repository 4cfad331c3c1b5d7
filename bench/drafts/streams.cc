#include "bench/drafts/streams.h"

#include <memory>
#include <utility>

#include "absl/synchronization/blocking_counter.h"
#include "engine/base/status_macros.h"

namespace lowkey {
namespace {

class OutcomeSink : public Sink {
 public:
  OutcomeSink(StreamOutcome* outcome, absl::BlockingCounter* done)
      : outcome_(outcome), done_(done) {}
  SinkAnswer OnToken(int32_t, const SampledToken& token) override {
    outcome_->tokens.push_back(token.token);
    return SinkAnswer::kContinue;
  }
  void OnDone(const FinalEvent& event) override {
    outcome_->event = event;
    done_->DecrementCount();
  }

 private:
  StreamOutcome* const outcome_;
  absl::BlockingCounter* const done_;
};

}  // namespace

absl::StatusOr<std::vector<StreamOutcome>> RunStreams(Engine& engine, const EngineRequest& request,
                                                      int n_streams) {
  std::vector<StreamOutcome> outcomes(n_streams);
  absl::BlockingCounter done(n_streams);
  for (int i = 0; i < n_streams; ++i) {
    EngineRequest one = request;
    one.sampling.seed += static_cast<uint64_t>(i);
    auto sink = std::make_unique<OutcomeSink>(&outcomes[i], &done);
    LK_RETURN_IF_ERROR(engine.Submit(std::move(one), std::move(sink)).status());
  }
  done.Wait();
  for (const StreamOutcome& o : outcomes) LK_RETURN_IF_ERROR(o.event.status);
  return outcomes;
}

}  // namespace lowkey
