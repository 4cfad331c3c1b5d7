#ifndef LOWKEY_SERVER_API_LOWKEY_CONVERT_REQUEST_H_
#define LOWKEY_SERVER_API_LOWKEY_CONVERT_REQUEST_H_

#include "absl/status/statusor.h"
#include "lowkey/v1/generation.pb.h"
#include "server/request/request.h"

namespace lowkey {

// Conversions between lowkey.v1 requests and our own structs, for server and clients.

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

// INVALID_ARGUMENT if both text and chat are set.
absl::StatusOr<TokenizeRequest> FromProto(const v1::TokenizeRequest& proto);
DetokenizeRequest FromProto(const v1::DetokenizeRequest& proto);

}  // namespace lowkey

#endif  // LOWKEY_SERVER_API_LOWKEY_CONVERT_REQUEST_H_
