#ifndef LOWKEY_SERVER_HUB_FETCH_MODEL_H_
#define LOWKEY_SERVER_HUB_FETCH_MODEL_H_

#include <string>

#include "absl/status/statusor.h"
#include "server/hub/hub_client.h"
#include "server/hub/hub_settings.h"
#include "server/hub/model_reference.h"

namespace lowkey {

// Brings the files that a model needs into the cache, unless they are there, and returns the path
// of the snapshot's folder or of the GGUF file in it. Every byte is checked against the digest that
// the hub lists before a file gets its name. Whatever ends this early leaves parts from which the
// next call goes on. Without network, or when the hub cannot be reached, the cache's last commit of
// the revision serves, if it is complete.
// Messages begin with the reference:
//   NOT_FOUND            no such model, revision or file; what SelectFiles says; not in the cache
//   UNAUTHENTICATED, PERMISSION_DENIED  what a token would help with
//   UNAVAILABLE          the hub cannot be reached, after all attempts
//   DATA_LOSS            what comes is not what the hub lists, or the list is no list
//   RESOURCE_EXHAUSTED   the disk has no room
//   FAILED_PRECONDITION  the hub or a file of the cache does something else wrong
//   CANCELLED            hooks.is_stopped said so
absl::StatusOr<std::string> FetchModel(const ModelReference& reference, const HubSettings& settings,
                                       const HubHooks& hooks);

}  // namespace lowkey

#endif  // LOWKEY_SERVER_HUB_FETCH_MODEL_H_
