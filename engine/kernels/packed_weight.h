#ifndef LOWKEY_ENGINE_KERNELS_PACKED_WEIGHT_H_
#define LOWKEY_ENGINE_KERNELS_PACKED_WEIGHT_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "engine/base/buffer.h"
#include "engine/base/tensor.h"
#include "engine/base/threads/thread_pool.h"
#include "engine/kernels/coded_weight.h"
#include "engine/kernels/kernels.h"

namespace lowkey {

// WeightStorage says how weights are held in memory.
struct WeightStorage {
  StorageType type = StorageType::kFloat32;
  // Says whether a tensor whose type has a CodeFormat keeps its codes and scales; the others get
  // `type`.
  bool keeps_codes = false;
};

// The form of a tensor in memory: codes, or numbers of a type, which is kFloat32 or kBFloat16.
struct WeightForm {
  std::optional<CodeFormat> codes = {};
  StorageType type = StorageType::kFloat32;

  bool operator==(const WeightForm&) const = default;
};
WeightForm FormOf(const TensorView& matrix, const WeightStorage& storage);

// Returns the bytes that a matrix [n_out, n_in] takes in panels of panel_columns outputs.
int64_t PackedBytes(const WeightForm& form, int64_t n_out, int64_t n_in, int64_t panel_columns);

// Some successive outputs of a weight, all of one form, packed: a sequence of panels of
// panel_columns outputs, the last one padded with zeros. A panel is
//   fp32   [n_in][panel]
//   bf16   [n_in / 2][panel][2], n_in padded with zeros to whole kPairSteps
//   codes  see coded_weight.h; for int8 n_in is padded with zeros to whole blocks
struct PackedPart {
  WeightForm form;
  int64_t first_out = 0, n_out = 0;
  int64_t n_in_padded = 0;
  int64_t panel_bytes = 0;
  int64_t n_panels = 0;
  Buffer data = {};
};

// A weight [n_out, n_in] (row-major in the checkpoint) packed for products with fp32 rows (Linear).
// Move-only; immutable after Pack, so any thread may read it.
class PackedWeight {
 public:
  PackedWeight() = default;

  // Stacks `tensors` ([n_out_i, n_in] each, same n_in, any dtype that LoadRow reads) along n_out
  // and packs them; storage.type is not kFloat8. RESOURCE_EXHAUSTED when the memory cannot be had.
  static absl::StatusOr<PackedWeight> Pack(absl::Span<const TensorView> tensors,
                                           const WeightStorage& storage, ThreadPool& pool,
                                           const KernelTable& kernels = Kernels());

  int64_t n_in() const { return n_in_; }
  int64_t n_out() const { return n_out_; }
  // The number of columns that Linear writes: n_out rounded up to whole panels.
  int64_t n_out_padded() const { return n_out_padded_; }
  int64_t size_bytes() const;
  absl::Span<const PackedPart> parts() const { return parts_; }
  const KernelTable& kernels() const { return *kernels_; }

 private:
  absl::Status AddPart(const WeightForm& form, absl::Span<const TensorView> tensors,
                       ThreadPool& pool);

  const KernelTable* kernels_ = nullptr;
  int64_t n_in_ = 0, n_out_ = 0, n_out_padded_ = 0;
  std::vector<PackedPart> parts_;
};

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_KERNELS_PACKED_WEIGHT_H_
