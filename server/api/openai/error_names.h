#ifndef LOWKEY_SERVER_API_OPENAI_ERROR_NAMES_H_
#define LOWKEY_SERVER_API_OPENAI_ERROR_NAMES_H_

#include "absl/status/status.h"

namespace lowkey {

// The same error with the field's name as OpenAI's API has it: TextService names the fields of
// lowkey.v1 ("sampling: temperature", "chat.messages[2].role", "max_new_tokens").
absl::Status WithApiNames(const absl::Status& status);

}  // namespace lowkey

#endif  // LOWKEY_SERVER_API_OPENAI_ERROR_NAMES_H_
