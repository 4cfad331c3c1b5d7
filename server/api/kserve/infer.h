#ifndef LOWKEY_SERVER_API_KSERVE_INFER_H_
#define LOWKEY_SERVER_API_KSERVE_INFER_H_

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/base/clock.h"
#include "server/api/calls/calls.h"
#include "server/api/kserve/answers.h"
#include "server/api/kserve/open_streams.h"
#include "server/api/kserve/statistics.h"

namespace lowkey {

// InferContext holds what the two infer methods' calls share. It must outlive them.
struct InferContext {
  const GenerationContext& generation;
  std::shared_ptr<InferCounters> counters = std::make_shared<InferCounters>();
  std::shared_ptr<OpenStreams> streams = std::make_shared<OpenStreams>();
};

// InferResults holds what the codec of a request leaves for the request's stream.
struct InferResults {
  std::string id = {};                         // the client's, as far as it is known
  std::vector<std::string> last_answers = {};  // to be sent if the request ends well
  v1::Timings timings = {};                    // of a request that ended well
};

// Counts one request, once: as failed unless End said otherwise.
class CountedRequest {
 public:
  explicit CountedRequest(std::shared_ptr<InferCounters> counters)
      : counters_(std::move(counters)) {}
  ~CountedRequest() { End(absl::CancelledError(), {}); }
  CountedRequest(const CountedRequest&) = delete;
  CountedRequest& operator=(const CountedRequest&) = delete;

  void End(const absl::Status& status, const v1::Timings& timings) {
    if (std::exchange(has_ended_, true)) return;
    if (status.ok()) return counters_->AddSuccess(SteadyNow() - start_, timings);
    counters_->AddFailure(SteadyNow() - start_);
  }

 private:
  const std::shared_ptr<InferCounters> counters_;
  const absl::Time start_ = SteadyNow();
  bool has_ended_ = false;
};

// Reads requests of either method, and writes their results.
class InferCodec final : public GenerationCodec {
 public:
  InferCodec(const TextService& service, InferMethod method, std::shared_ptr<InferResults> results)
      : service_(service), method_(method), results_(std::move(results)) {}

  absl::StatusOr<GenerationRequest> Read(const std::string& message) override;
  // Serves ModelStreamInfer: leaves the last answers in the results.
  std::string Write(const v1::GenerateEvent& event) override;
  size_t n_kept_bytes() const override { return n_kept_bytes_; }
  // Serves ModelInfer.
  std::string Write(const v1::GenerateResponse& response) override;

 private:
  std::vector<std::string> LastAnswers(const v1::FinalEvent& final_event);

  const TextService& service_;
  const InferMethod method_;
  const std::shared_ptr<InferResults> results_;
  std::optional<AnswerMaker> answers_;  // set by Read
  v1::GenerateResponse whole_;          // of a request on a stream that wants one answer
  size_t n_kept_bytes_ = 0;             // of whole_
};

// Make the handlers of a method's calls. The context must outlive them.
MakeRpcHandler InferHandler(const InferContext& context);
MakeRpcHandler StreamInferHandler(const InferContext& context);

}  // namespace lowkey

#endif  // LOWKEY_SERVER_API_KSERVE_INFER_H_
