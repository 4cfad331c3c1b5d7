#ifndef LOWKEY_SERVER_API_OPENAI_SCORE_H_
#define LOWKEY_SERVER_API_OPENAI_SCORE_H_

#include "server/api/calls/calls.h"
#include "server/api/http/http_call.h"

namespace lowkey {

// Makes the handlers of POST /lowkey/v1/score: lowkey.v1.ScoreRequest as JSON in, ScoreResponse as
// JSON out (see server/api/http/proto_json.h). The context must outlive them.
MakeHttpHandler ScoreJsonHandler(const GenerationContext& context);

}  // namespace lowkey

#endif  // LOWKEY_SERVER_API_OPENAI_SCORE_H_
