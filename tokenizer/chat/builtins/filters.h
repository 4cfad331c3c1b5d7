#ifndef LOWKEY_TOKENIZER_CHAT_BUILTINS_FILTERS_H_
#define LOWKEY_TOKENIZER_CHAT_BUILTINS_FILTERS_H_

#include <string_view>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "tokenizer/chat/builtins/arguments.h"

namespace lowkey::jinja {

using Filter = absl::StatusOr<Value> (*)(const Value& input, const Arguments& arguments,
                                         Arena& arena);
using FilterTable = absl::flat_hash_map<std::string_view, Filter>;

// The filter of that name, as jinja2 and transformers define it; null when there is none here.
// Filters return INVALID_ARGUMENT for arguments or inputs they do not take, and the arena's errors.
Filter FindFilter(std::string_view name);

// Its parts.
void AddTextFilters(FilterTable& table);
void AddNumberFilters(FilterTable& table);
void AddSequenceFilters(FilterTable& table);

}  // namespace lowkey::jinja

#endif  // LOWKEY_TOKENIZER_CHAT_BUILTINS_FILTERS_H_
