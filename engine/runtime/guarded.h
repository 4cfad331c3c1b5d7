#ifndef LOWKEY_ENGINE_RUNTIME_GUARDED_H_
#define LOWKEY_ENGINE_RUNTIME_GUARDED_H_

#include <exception>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace lowkey {

// Runs what belongs to one request alone. An exception that comes out of it, be it that memory
// could not be had or a fault of a sink's, becomes INTERNAL: the engine's thread serves the others.
template <typename Work>
absl::Status Guarded(const Work& work) {
  try {
    work();
    return absl::OkStatus();
  } catch (const std::exception& e) {
    return absl::InternalError(absl::StrCat("exception: ", e.what()));
  } catch (...) {
    return absl::InternalError("exception of an unknown type");
  }
}

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_RUNTIME_GUARDED_H_
