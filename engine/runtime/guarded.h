#ifndef LOWKEY_ENGINE_RUNTIME_GUARDED_H_
#define LOWKEY_ENGINE_RUNTIME_GUARDED_H_

#include <exception>
#include <new>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace lowkey {

// Runs work that belongs to one request alone. An exception becomes RESOURCE_EXHAUSTED (no memory)
// or INTERNAL (a sink's fault), so that the engine's thread goes on to serve the other requests.
template <typename Work>
absl::Status Guarded(const Work& work) {
  try {
    work();
    return absl::OkStatus();
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError("no memory left");
  } catch (const std::exception& e) {
    return absl::InternalError(absl::StrCat("exception: ", e.what()));
  } catch (...) {
    return absl::InternalError("exception of an unknown type");
  }
}

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_RUNTIME_GUARDED_H_
