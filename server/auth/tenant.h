#ifndef LOWKEY_SERVER_AUTH_TENANT_H_
#define LOWKEY_SERVER_AUTH_TENANT_H_

#include <cstdint>
#include <optional>
#include <string>

namespace lowkey {

// Whose requests they are; the caller's token names it. The one without a name is whoever calls a
// server that asks for no token: without limits.
struct Tenant {
  std::string name = {};
  double weight = 1;                              // share of the machine, beside the others'
  std::optional<int64_t> max_live_requests = {};  // running and waiting
  std::optional<int64_t> tokens_per_minute = {};  // of prompts and output together
};

}  // namespace lowkey

#endif  // LOWKEY_SERVER_AUTH_TENANT_H_
