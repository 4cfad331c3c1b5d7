// One input is a file of tokens. Whoever is let in must have a name, and limits within bounds.

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "engine/base/status_macros.h"
#include "server/auth/token_table.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto table = lowkey::TokenTable::Parse(text, "tokens.json");
  LK_CHECK(table.ok() || !table.status().message().empty());
  if (!table.ok()) return 0;
  LK_CHECK(table->n_tokens() >= 1 && table->n_tokens() <= lowkey::kMaxTokens);
  const lowkey::TokenGrant* grant = table->Find("first-token-0000000000");
  if (grant == nullptr) return 0;
  const lowkey::Tenant& tenant = *grant->tenant;
  LK_CHECK(!tenant.name.empty() && tenant.name.size() <= 64 && grant->rights.any());
  LK_CHECK(tenant.weight > 0 && tenant.weight <= 1000);
  LK_CHECK(tenant.max_live_requests.value_or(1) >= 1 && tenant.tokens_per_minute.value_or(1) >= 1);
  return 0;
}
