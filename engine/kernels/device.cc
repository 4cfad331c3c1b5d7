#include "engine/kernels/device.h"

#include "absl/strings/str_cat.h"

namespace lowkey {

absl::StatusOr<std::unique_ptr<Device>> OpenDevice(const std::string& name) {
  return absl::FailedPreconditionError(absl::StrCat(name, ": this build has no CUDA"));
}

}  // namespace lowkey
