#ifndef LOWKEY_SERVER_API_HTTP_BROWSER_RULES_H_
#define LOWKEY_SERVER_API_HTTP_BROWSER_RULES_H_

#include <string>
#include <vector>

namespace lowkey {

// BrowserRules says which pages of other sites may call the server from a browser.
struct BrowserRules {
  std::vector<std::string> origins = {};  // "https://app.example"; "*": every one
  std::vector<std::string> hosts = {};    // names of this server, beside localhost and addresses
  // Says whether the name that the client called the server by must be known. A name that a
  // stranger owns may lead to this machine: his page could then call a server that asks for no
  // token.
  bool checks_host = false;
};

}  // namespace lowkey

#endif  // LOWKEY_SERVER_API_HTTP_BROWSER_RULES_H_
