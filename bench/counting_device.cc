#include "bench/counting_device.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "engine/kernels/device/kernels.h"

namespace lowkey {
namespace {

constexpr double kFloat = sizeof(float);
// Uploads of this size are weights.
constexpr int64_t kWeightBytes = int64_t{1} << 20;

void Add(Device& device, const std::string& kind, double bytes, double flops = 0) {
  static_cast<CountingDevice&>(device).Count(kind, bytes, flops);
}

double Bytes(StorageType type) { return static_cast<double>(StorageBytes(type)); }
double Times(int64_t a, int64_t b) { return static_cast<double>(a) * static_cast<double>(b); }

void Embed(Device& device, const EmbedArgs& a) {
  Add(device, "embed", Times(a.n_rows, a.dim) * (Bytes(a.table_type) + kFloat));
}

void Norm(Device& device, const DeviceNormArgs& a) {
  const double also = a.also_floats == nullptr ? 0 : kFloat;
  Add(device, "norm", Times(a.n_rows, a.dim) * (kFloat + Bytes(a.out_type) + also));
}

void Angles(Device& device, const AnglesArgs& a) {
  Add(device, "angles", Times(a.n_rows, a.half) * 2 * kFloat);
}

int64_t UsedSlots(const CacheSlots& pages) {
  return std::count_if(pages.slots, pages.slots + pages.n_slots,
                       [](const CacheSlot& slot) { return slot.page != nullptr; });
}

void Rotate(Device& device, const RotateArgs& a) {
  const double from = a.rounded == nullptr ? kFloat : Bytes(StorageType::kBFloat16);
  if (a.pages.slots == nullptr) {
    const int64_t n_moved = a.rounded == nullptr ? 0 : a.n_values;
    const double n = Times(a.n_rows, (a.n_heads + a.n_kv_heads) * a.head_dim + n_moved);
    return Add(device, "rotate", n * (from + kFloat));
  }
  const double n = Times(UsedSlots(a.pages), a.head_dim);
  Add(device, "rotate into pages",
      n * (static_cast<double>(a.n_heads) * (from + kFloat) +
           static_cast<double>(a.n_kv_heads) * 2 * (from + Bytes(a.pages.cache_type))));
}

void Round(Device& device, const RoundArgs& a) {
  Add(device, "round", static_cast<double>(a.n) * (kFloat + Bytes(a.out_type)));
}

void WriteKv(Device& device, const WriteKvArgs& a) {
  Add(device, "write keys, values",
      2 * Times(UsedSlots(a.pages), a.n_kv_heads * a.head_dim) *
          (kFloat + Bytes(a.pages.cache_type)));
}

void Attend(Device& device, const AttendArgs& a) {
  constexpr int64_t kPage = 64;
  std::set<const std::byte*> pages;
  double n_rows = 0, n_scores = 0, n_part_rows = 0;
  for (const RowTileTask& task : std::vector(a.tasks, a.tasks + a.n_tasks)) {
    if (task.n_rows == 0) continue;
    const int64_t n_pages = task.end_page - task.begin_page;
    for (int64_t i = 0; i < n_pages; ++i) pages.insert(a.pages[task.pages + task.begin_page + i]);
    (task.n_parts > 1 ? n_part_rows : n_rows) += task.n_rows;
    n_scores += Times(task.n_rows, n_pages * kPage);
  }
  const double heads = static_cast<double>(a.n_kv_heads), dim = static_cast<double>(a.head_dim);
  const double cache = 2.0 * kPage * static_cast<double>(pages.size()) * Bytes(a.cache_type);
  const double result = a.rounded == nullptr ? kFloat : 2;
  Add(device, "attend",
      heads * dim * (cache + n_rows * (kFloat + result) + n_part_rows * 2 * kFloat),
      heads * dim * 4 * n_scores);
}

void JoinParts(Device& device, const AttendArgs& a) {
  const double result = a.rounded == nullptr ? kFloat : 2;
  double bytes = 0;
  for (int64_t i = 0; i < a.n_joins; ++i) {
    const JoinTask& join = a.joins[i];
    bytes +=
        static_cast<double>(join.n_rows) * (static_cast<double>(join.n_parts) * kFloat + result);
  }
  Add(device, "join parts", bytes * Times(a.n_kv_heads, a.head_dim));
}

}  // namespace

const DeviceKernels& CountingDevice::kernels() const {
  static constexpr DeviceKernels kKernels = {.embed = Embed,
                                             .rms_norm = Norm,
                                             .angles = Angles,
                                             .rotate = Rotate,
                                             .round = Round,
                                             .write_kv = WriteKv,
                                             .attend = Attend,
                                             .join_parts = JoinParts};
  return kKernels;
}

void CountingDevice::Count(const std::string& kind, double bytes, double flops) {
  auto at = std::find_if(counts_.begin(), counts_.end(),
                         [&](const auto& entry) { return entry.first == kind; });
  if (at == counts_.end()) at = counts_.insert(counts_.end(), {kind, {}});
  at->second.launches += 1;
  at->second.bytes += bytes;
  at->second.flops += flops;
}

absl::StatusOr<std::byte*> CountingDevice::Allocate(int64_t size_bytes) {
  LK_ASSIGN_OR_RETURN(Buffer memory, Buffer::Allocate(static_cast<size_t>(size_bytes)));
  std::byte* p = memory.data();
  taken_.emplace(p, std::move(memory));
  return p;
}

void CountingDevice::Upload(const void* from, void* to, int64_t size_bytes) {
  if (size_bytes < kWeightBytes) std::memcpy(to, from, static_cast<size_t>(size_bytes));
}

void CountingDevice::CountProduct(const std::string& kind, const ProductArgs& a, double out_bytes) {
  const DeviceWeight& w = *a.weight;
  const double in_bytes = Times(a.n_rows, w.n_in()) * Bytes(RowTypeOf(w.type()));
  Count(kind, static_cast<double>(w.size_bytes()) + in_bytes + out_bytes,
        2 * Times(a.n_rows, w.n_in()) * static_cast<double>(w.n_out()));
}

void CountingDevice::Multiply(const ProductArgs& a) {
  const int64_t n_out = a.weight->n_out();
  const double bytes = a.rounded != nullptr                    ? Bytes(StorageType::kBFloat16)
                       : a.into == GemmArgs::Into::kAccumulate ? 2 * kFloat
                                                               : kFloat;
  CountProduct(absl::StrCat("product to ", n_out), a, Times(a.n_rows, n_out) * bytes);
}

// Counts the one launch of the tiles.
void CountingDevice::MultiplyGated(const GatedProductArgs& a) {
  CountProduct(absl::StrCat("gated product to ", a.n_channels), a.product,
               Times(a.product.n_rows, a.n_channels) * Bytes(RowTypeOf(a.product.weight->type())));
}

}  // namespace lowkey
