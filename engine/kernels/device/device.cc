#include "engine/kernels/device/device.h"

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "engine/base/status_macros.h"
#include "engine/kernels/cuda/entry.h"

namespace lowkey {
namespace {

constexpr char kLibrary[] = "lib/lowkey/liblowkey_cuda.so";

// Returns the path that the variable names, or else the paths of an installed program and of one in
// a build folder.
std::vector<std::string> Places(const std::string& named) {
  if (!named.empty()) return {named};
  std::error_code ignored;
  const auto folder = std::filesystem::read_symlink("/proc/self/exe", ignored).parent_path();
  std::vector<std::string> places;
  for (const char* up : {"..", "."}) {
    places.push_back((folder / up / kLibrary).lexically_normal().string());
  }
  return places;
}

absl::StatusOr<void*> LoadLibrary() {
  const char* variable = std::getenv("LOWKEY_CUDA_LIBRARY");
  const std::string named = variable == nullptr ? "" : variable;
  const std::vector<std::string> places = Places(named);
  for (const std::string& place : places) {
    if (!std::filesystem::exists(place)) continue;
    // The library's names stay its own, and it is never unloaded.
    void* library = dlopen(place.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (library != nullptr) return library;
    return absl::FailedPreconditionError(dlerror());
  }
  if (!LOWKEY_HAS_CUDA && named.empty()) {
    return absl::FailedPreconditionError("this build has no CUDA (cmake -DLOWKEY_CUDA=ON)");
  }
  return absl::FailedPreconditionError(absl::StrCat("no CUDA library at ",
                                                    absl::StrJoin(places, " or "),
                                                    " (LOWKEY_CUDA_LIBRARY names another place)"));
}

absl::StatusOr<CudaOpenFunction> LoadEntry() {
  LK_ASSIGN_OR_RETURN(void* library, LoadLibrary());
  const auto interface =
      reinterpret_cast<CudaInterfaceFunction>(dlsym(library, "lowkey_cuda_interface"));
  const auto open = reinterpret_cast<CudaOpenFunction>(dlsym(library, "lowkey_cuda_open"));
  if (interface == nullptr || open == nullptr ||
      interface() != std::string(LOWKEY_DEVICE_INTERFACE)) {
    return absl::FailedPreconditionError(
        "the CUDA library is of another build, expected this program's own");
  }
  return open;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Device>> OpenDevice(const std::string& name) {
  const auto named = [&](const absl::Status& status) {
    return absl::Status(status.code(), absl::StrCat(name, ": ", status.message()));
  };
  absl::string_view number = name;
  int64_t index = 0;
  if (!absl::ConsumePrefix(&number, "cuda:") || number.empty() || number.size() > 4 ||
      number.find_first_not_of("0123456789") != absl::string_view::npos ||
      !absl::SimpleAtoi(number, &index)) {
    return absl::InvalidArgumentError(
        absl::StrCat("device \"", name, "\", expected cuda:N, such as cuda:0"));
  }
  const absl::StatusOr<CudaOpenFunction> open = LoadEntry();
  if (!open.ok()) return named(open.status());
  OpenedDevice opened = absl::UnknownError("not opened");
  (*open)(index, &opened);
  if (!opened.ok()) return named(opened.status());
  return opened;
}

}  // namespace lowkey
