#include "tokenizer/chat/builtins/filters.h"

namespace lowkey::jinja {

Filter FindFilter(std::string_view name) {
  static const auto* const table = [] {
    auto* filters = new FilterTable();
    AddTextFilters(*filters);
    AddNumberFilters(*filters);
    AddSequenceFilters(*filters);
    return filters;
  }();
  const auto it = table->find(name);
  return it == table->end() ? nullptr : it->second;
}

}  // namespace lowkey::jinja
