#ifndef LOWKEY_SERVER_API_LOWKEY_CONVERT_RESPONSE_H_
#define LOWKEY_SERVER_API_LOWKEY_CONVERT_RESPONSE_H_

#include <vector>

#include "lowkey/v1/admin.pb.h"
#include "lowkey/v1/generation.pb.h"
#include "lowkey/v1/models.pb.h"
#include "server/request/generation.h"
#include "server/text/text_service.h"
#include "tokenizer/tokenizer.h"

namespace lowkey {

// Convert the server's results to lowkey.v1 messages.
v1::ChoiceDelta ToProto(const ChoiceDelta& delta, const Tokenizer& tokenizer);
v1::PromptLogprobs ToProto(const std::vector<PromptLogprob>& logprobs, const Tokenizer& tokenizer);
v1::FinalEvent ToProto(const GenerationResult& result);
v1::ScoreResponse ToProto(const ScoreResult& result);
v1::Model DescribeModel(const TextService& service);
// Sets all fields but version and uptime_s.
void FillStats(const EngineStats& stats, v1::StatsResponse& response);

}  // namespace lowkey

#endif  // LOWKEY_SERVER_API_LOWKEY_CONVERT_RESPONSE_H_
