#ifndef LOWKEY_SERVER_API_KSERVE_ANSWERS_H_
#define LOWKEY_SERVER_API_KSERVE_ANSWERS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "inference/grpc_service.pb.h"
#include "lowkey/v1/generation.pb.h"
#include "server/api/kserve/infer_request.h"
#include "tokenizer/tokenizer.h"

namespace lowkey {

// Makes the answers to one request of a ModelInfer or ModelStreamInfer call. Every answer has one
// raw content for each output. Not thread-safe.
class AnswerMaker {
 public:
  // The tokenizer must outlive this.
  AnswerMaker(AnswerOptions options, std::string model, const Tokenizer& tokenizer)
      : options_(std::move(options)),
        model_(std::move(model)),
        tokenizer_(tokenizer),
        cumulative_logprobs_(static_cast<size_t>(options_.n_choices)) {}

  const AnswerOptions& options() const { return options_; }

  // The whole of a request's results.
  inference::ModelInferResponse Whole(const v1::GenerateResponse& response);

  // Returns what one choice of a stream gained; the other choices' elements are empty.
  inference::ModelInferResponse Delta(const v1::ChoiceDelta& delta);

  // The end of a stream: the outputs that are known only then, and an empty text.
  inference::ModelInferResponse End(const v1::FinalEvent& final_event);
  // Returns whether End has outputs that the deltas have not.
  bool HasEndOutputs() const { return options_.finish_reason || options_.num_input_tokens; }

  // An answer without tensors, but with the report on how the request ran.
  inference::ModelInferResponse Empty(const v1::FinalEvent& final_event) const;

 private:
  inference::ModelInferResponse Begin() const;
  // Adds the outputs that deltas have. One delta per choice; null: nothing new.
  void AddDeltas(const std::vector<const v1::ChoiceDelta*>& deltas, const std::string& prompt,
                 inference::ModelInferResponse& response);
  void AddEnd(const v1::FinalEvent& final_event, inference::ModelInferResponse& response) const;
  std::string LogprobsJson(const v1::ChoiceDelta& delta) const;

  const AnswerOptions options_;
  const std::string model_;
  const Tokenizer& tokenizer_;
  std::vector<double> cumulative_logprobs_;  // by choice
};

// Return a stream's message: an answer, which says whether it is its request's last one, or an
// error, which always is.
std::string StreamAnswer(inference::ModelInferResponse answer, bool is_final);
std::string StreamError(const std::string& id, const absl::Status& status);

}  // namespace lowkey

#endif  // LOWKEY_SERVER_API_KSERVE_ANSWERS_H_
