#ifndef LOWKEY_SERVER_API_OPENAI_MODEL_NAMES_H_
#define LOWKEY_SERVER_API_OPENAI_MODEL_NAMES_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/text/text_service.h"

namespace lowkey {

// ModelChoice is what a model's id in a request stands for.
struct ModelChoice {
  std::optional<std::string> mechanism = std::nullopt;  // of NAME@MECHANISM
};

// Resolves an id: the served model's name or an alias of it, alone or with @ and a mechanism that
// the model has weights for, or "auto". NOT_FOUND otherwise.
absl::StatusOr<ModelChoice> ResolveModel(const TextService& service, const std::string& id);

// The ids that /v1/models lists, the plain names first.
std::vector<std::string> ListModelIds(const TextService& service);

}  // namespace lowkey

#endif  // LOWKEY_SERVER_API_OPENAI_MODEL_NAMES_H_
