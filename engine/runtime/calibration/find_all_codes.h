#ifndef LOWKEY_ENGINE_RUNTIME_CALIBRATION_FIND_ALL_CODES_H_
#define LOWKEY_ENGINE_RUNTIME_CALIBRATION_FIND_ALL_CODES_H_

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/base/status_macros.h"
#include "engine/base/threads/thread_pool.h"
#include "engine/lowrank/principal_basis.h"

namespace lowkey {

// Returns find(0) .. find(n - 1), which run in parallel, or the first error. progress(found) comes
// from the calling thread.
template <typename Find>
absl::StatusOr<std::vector<PrincipalCode>> FindAllCodes(
    int64_t n, ThreadPool& pool, const Find& find, const std::function<void(int64_t)>& progress) {
  std::vector<std::optional<absl::StatusOr<PrincipalCode>>> found(n);
  for (int64_t at = 0; at < n; at += pool.n_threads()) {
    const int64_t n_now = std::min<int64_t>(pool.n_threads(), n - at);
    pool.ParallelFor(n_now, [&](int64_t i, int) { found[at + i] = find(at + i); });
    if (progress) progress(at + n_now);
  }
  std::vector<PrincipalCode> codes;
  for (auto& code : found) {
    LK_RETURN_IF_ERROR(code->status());
    codes.push_back(**std::move(code));
  }
  return codes;
}

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_RUNTIME_CALIBRATION_FIND_ALL_CODES_H_
