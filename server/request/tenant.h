#ifndef LOWKEY_SERVER_REQUEST_TENANT_H_
#define LOWKEY_SERVER_REQUEST_TENANT_H_

#include <cstdint>
#include <optional>
#include <string>

namespace lowkey {

// The owner of requests, which the caller's token names. The tenant without a name calls a server
// that asks for no token, and has no limits.
struct Tenant {
  std::string name = {};
  double weight = 1;                              // share of the machine, relative to others
  std::optional<int64_t> max_live_requests = {};  // running and waiting
  std::optional<int64_t> tokens_per_minute = {};  // of prompts and output together
};

}  // namespace lowkey

#endif  // LOWKEY_SERVER_REQUEST_TENANT_H_
