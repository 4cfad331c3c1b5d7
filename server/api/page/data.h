#ifndef LOWKEY_SERVER_API_PAGE_DATA_H_
#define LOWKEY_SERVER_API_PAGE_DATA_H_

#include <atomic>
#include <functional>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "server/api/http/http_call.h"
#include "server/api/http/routes.h"
#include "server/rpc/single_request.h"
#include "server/text/text_service.h"

namespace lowkey {

// The figures that the page shows, as JSON for GET and HEAD (docs/page.md has the fields):
//   /lowkey/v1/model      GetModel's message and the options of every mechanism, with their ranges
//   /lowkey/v1/crossover  predicted times and bytes by mechanism and length, and what auto takes;
//                         `?new_tokens=N` sets the length of answers. 503 while this machine's
//                         rates are measured or another client's answer is computed, 404 if the
//                         rates are not going to be measured
//   /lowkey/v1/cache      bytes that a sequence holds by length, for `?mechanism=NAME` and options
//                         by the names of lowkey.v1.AttentionOptions, such as `&rank=1/4`
//   /lowkey/v1/stats      Admin.Stats
// Errors are those of the HTTP APIs.
class PageData {
 public:
  // Both must outlive the routes. `is_measuring` says whether rates are on their way; null: they
  // are not.
  PageData(const TextService& service, const RpcWorkers& workers,
           std::function<bool()> is_measuring);

  // Has workers answer on the paths. The services and this must outlive the routes.
  void AddRoutes(HttpRoutes& routes, const HttpServices& services) const;

  // Returns the JSON of a path with a query, as a worker does.
  absl::StatusOr<std::string> Answer(std::string_view path, std::string_view query) const;

 private:
  absl::StatusOr<std::string> Crossover(std::string_view query) const;

  const TextService& service_;
  const RpcWorkers& workers_;
  const std::function<bool()> is_measuring_;
  const absl::Time start_;
  // Says whether a worker computes crossovers. In a context of 100,000 tokens that takes a second,
  // and the other workers stay free.
  mutable std::atomic<bool> computes_crossover_{false};
};

}  // namespace lowkey

#endif  // LOWKEY_SERVER_API_PAGE_DATA_H_
