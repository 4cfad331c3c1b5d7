#ifndef LOWKEY_SERVER_API_OPENAI_ROUTES_H_
#define LOWKEY_SERVER_API_OPENAI_ROUTES_H_

#include <string_view>

#include "absl/status/status.h"
#include "server/api/calls/calls.h"
#include "server/api/http/http_call.h"
#include "server/api/http/routes.h"
#include "server/api/openai/options.h"

namespace lowkey {

// Adds OpenAI's HTTP API, /tokenize and its kin, and /lowkey/v1/score. The context and the services
// must outlive the routes.
void AddOpenAiRoutes(HttpRoutes& routes, const GenerationContext& context,
                     const HttpServices& services, OpenAiOptions options);

// NOT_FOUND for a path under /v1/ that nothing answers: code unsupported_endpoint for those of
// OpenAI's that are left out.
absl::Status UnknownApiPath(std::string_view path);

}  // namespace lowkey

#endif  // LOWKEY_SERVER_API_OPENAI_ROUTES_H_
