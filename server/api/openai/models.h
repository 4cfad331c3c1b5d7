#ifndef LOWKEY_SERVER_API_OPENAI_MODELS_H_
#define LOWKEY_SERVER_API_OPENAI_MODELS_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"
#include "server/text/text_service.h"

namespace lowkey {

// The answer of GET /v1/models. `created` is when the server started, in seconds since 1970.
std::string ListModelsJson(const TextService& service, int64_t created);

// The answer of GET /v1/models/ID; `path` may be percent-encoded. NOT_FOUND for an id that
// ListModelsJson does not list.
absl::StatusOr<std::string> ModelJson(const TextService& service, int64_t created,
                                      const std::string& path);

}  // namespace lowkey

#endif  // LOWKEY_SERVER_API_OPENAI_MODELS_H_
