#ifndef LOWKEY_SERVER_GRPC_CONVERT_H_
#define LOWKEY_SERVER_GRPC_CONVERT_H_

#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "lowkey/v1/generation.pb.h"
#include "lowkey/v1/models.pb.h"
#include "server/generation.h"
#include "server/request.h"
#include "server/text_service.h"
#include "tokenizer/tokenizer.h"

namespace lowkey {

// Conversions between lowkey.v1 messages and the server's own structs, for server and client.

// INVALID_ARGUMENT if no input is set. The deadline stays infinite.
absl::StatusOr<GenerationRequest> FromProto(const v1::GenerateRequest& proto);
v1::GenerateRequest ToProto(const GenerationRequest& request);

Conversation FromProto(const v1::Chat& proto);

AttentionChoice FromProto(const v1::AttentionOptions& proto);
v1::AttentionOptions ToProto(const AttentionChoice& attention);
// Every option of every mechanism; of mechanism "auto" the rules too.
v1::AttentionOptions ToProto(const Defaults& defaults);

// INVALID_ARGUMENT if no context is set.
absl::StatusOr<ScoreRequest> FromProto(const v1::ScoreRequest& proto);

v1::ChoiceDelta ToProto(const ChoiceDelta& delta, const Tokenizer& tokenizer);
v1::PromptLogprobs ToProto(const std::vector<PromptLogprob>& logprobs, const Tokenizer& tokenizer);
v1::FinalEvent ToProto(const GenerationResult& result);
v1::ScoreResponse ToProto(const ScoreResult& result);
v1::Model DescribeModel(const TextService& service);

}  // namespace lowkey

#endif  // LOWKEY_SERVER_GRPC_CONVERT_H_
