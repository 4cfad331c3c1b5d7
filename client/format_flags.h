#ifndef LOWKEY_CLIENT_FORMAT_FLAGS_H_
#define LOWKEY_CLIENT_FORMAT_FLAGS_H_

#include <optional>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "server/config/flags.h"
#include "server/request/response_format.h"

namespace lowkey {

absl::Span<const Flag> FormatFlags();  // --json-object --json-schema --regex --choice --grammar

// Reads the form of the answer; nullopt if no flag asks for one. INVALID_ARGUMENT: two of the
// flags, or a text that is not UTF-8; ReadTextFile's errors.
absl::StatusOr<std::optional<ResponseFormat>> ReadFormat(const FlagValues& flags);

}  // namespace lowkey

#endif  // LOWKEY_CLIENT_FORMAT_FLAGS_H_
