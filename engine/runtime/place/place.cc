#include "engine/runtime/place/place.h"

#include <utility>

#include "engine/base/status_macros.h"

namespace lowkey {

std::unique_ptr<Place> Place::Make(std::shared_ptr<Device> device) {
  return device == nullptr ? MakeHostPlace() : MakeDevicePlace(std::move(device));
}

int64_t Place::used_cache_bytes() const {
  int64_t total = 0;
  for (const auto& cache : caches_) total += cache->used_bytes();
  return total;
}

void Place::SetReclaimer(const std::function<bool(size_t cache)>& reclaim) {
  for (size_t i = 0; i < caches_.size(); ++i) {
    caches_[i]->SetReclaimer([reclaim, i] { return reclaim(i); });
  }
}

absl::Status EachLogits(Decoder& decoder, absl::Span<const int64_t> rows,
                        absl::FunctionRef<void(size_t, absl::Span<const float>)> consume) {
  const auto max_rows = static_cast<size_t>(decoder.max_logit_rows());
  for (size_t begin = 0; begin < rows.size(); begin += max_rows) {
    const auto part = rows.subspan(begin, max_rows);
    LK_RETURN_IF_ERROR(decoder.Logits(part));
    for (size_t i = 0; i < part.size(); ++i) {
      consume(begin + i, decoder.logits_row(static_cast<int64_t>(i)));
    }
  }
  return absl::OkStatus();
}

}  // namespace lowkey
