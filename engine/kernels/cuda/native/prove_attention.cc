#include "engine/kernels/cuda/native/prove_attention.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <vector>

#include "engine/base/dtype.h"
#include "engine/base/round_up.h"
#include "engine/base/status_macros.h"
#include "engine/kernels/cuda/launches.h"

namespace lowkey {
namespace {

constexpr int64_t kPages = 5, kTokens = 300, kKvHeads = 2, kGroup = 3;

// One sequence whose rows are all computed at once.
class Sequence {
 public:
  Sequence(Device& device, int64_t head_dim) : device_(device), head_dim_(head_dim) {}

  absl::Status Upload() {
    std::minstd_rand engine(1);
    std::normal_distribution<float> normal;
    std::vector<uint16_t> cache(kPages * page_numbers());
    for (uint16_t& x : cache) x = ToBFloat16(normal(engine)).bits;
    for (int64_t plane = 0; plane < kKvHeads * 2; ++plane) {  // what no token has is NaN
      const int64_t page = (kPages - 1) * page_numbers() + plane * kPageTokens * head_dim_;
      std::fill(cache.begin() + page + kTokens % kPageTokens * head_dim_,
                cache.begin() + page + kPageTokens * head_dim_, uint16_t{0x7fc0});
    }
    std::vector<float> q(kTokens * row_numbers());
    for (float& x : q) x = normal(engine);
    LK_ASSIGN_OR_RETURN(cache_, Uploaded(cache, device_));
    LK_ASSIGN_OR_RETURN(q_, Uploaded(q, device_));
    std::vector<const std::byte*> pages;
    for (int64_t i = 0; i < kPages; ++i) pages.push_back(cache_.data() + i * page_numbers() * 2);
    LK_ASSIGN_OR_RETURN(pages_, Uploaded(pages, device_));
    return absl::OkStatus();
  }

  // Returns the results of rows that see n_before tokens before their own.
  absl::StatusOr<std::vector<float>> Attend(void (*attend)(Device&, const AttendArgs&),
                                            int64_t n_before) {
    const std::vector<RowTileTask> tasks = TasksFor(n_before);
    LK_ASSIGN_OR_RETURN(const Buffer tasks_there, Uploaded(tasks, device_));
    std::vector<float> out(kTokens * row_numbers());
    LK_ASSIGN_OR_RETURN(Buffer out_there, Uploaded(out, device_));
    attend(device_, {.tile = RowTile::kMany,
                     .tasks = tasks_there.as<RowTileTask>(),
                     .n_tasks = static_cast<int64_t>(tasks.size()),
                     .pages = pages_.as<const std::byte*>(),
                     .cache_type = StorageType::kBFloat16,
                     .n_kv_heads = kKvHeads,
                     .group = kGroup,
                     .head_dim = head_dim_,
                     .n_before = n_before,
                     .q = q_.as<float>(),
                     .ld_q = row_numbers(),
                     .out = out_there.as<float>(),
                     .ld_out = row_numbers()});
    LK_RETURN_IF_ERROR(device_.Download(out_there.data(), out.data(),
                                        static_cast<int64_t>(out.size() * sizeof(float))));
    return out;
  }

 private:
  int64_t page_numbers() const { return kKvHeads * 2 * kPageTokens * head_dim_; }
  int64_t row_numbers() const { return kKvHeads * kGroup * head_dim_; }

  static std::vector<RowTileTask> TasksFor(int64_t n_before) {
    std::vector<RowTileTask> tasks;
    constexpr int64_t kTileRows = 128;
    for (int64_t row = 0; row < kTokens * kGroup; row += kTileRows) {
      const int64_t n = std::min(kTileRows, kTokens * kGroup - row);
      const int64_t first = row / kGroup, last = (row + n - 1) / kGroup;
      RowTileTask& task = tasks.emplace_back();
      task.end_position = static_cast<int32_t>(kTokens);
      task.first = static_cast<int32_t>(row);
      task.n_rows = static_cast<int32_t>(n);
      task.begin_page = static_cast<int32_t>(std::max<int64_t>(0, first - n_before) / kPageTokens);
      task.end_page = static_cast<int32_t>(last / kPageTokens + 1);
      task.span_pages = static_cast<int32_t>(SpanPages(0));
    }
    return tasks;
  }

  Device& device_;
  const int64_t head_dim_;
  Buffer cache_, q_, pages_;
};

}  // namespace

absl::StatusOr<bool> WarpgroupsAttendAsTilesDo(Device& device, int64_t head_dim) {
  Sequence sequence(device, head_dim);
  LK_RETURN_IF_ERROR(sequence.Upload());
  for (const int64_t n_before : {kTokens, int64_t{70}}) {
    LK_ASSIGN_OR_RETURN(const auto expected, sequence.Attend(AttendWithTensorTiles, n_before));
    LK_ASSIGN_OR_RETURN(const auto got, sequence.Attend(AttendWithWarpgroups, n_before));
    const bool is_finite =
        std::all_of(expected.begin(), expected.end(), [](float x) { return std::isfinite(x); });
    if (!is_finite || std::memcmp(got.data(), expected.data(), got.size() * sizeof(float)) != 0) {
      return false;
    }
  }
  return true;
}

}  // namespace lowkey
