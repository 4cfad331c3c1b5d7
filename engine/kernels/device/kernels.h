#ifndef LOWKEY_ENGINE_KERNELS_DEVICE_KERNELS_H_
#define LOWKEY_ENGINE_KERNELS_DEVICE_KERNELS_H_

#include <cstdint>

#include "engine/kernels/device/atp.h"
#include "engine/kernels/device/attention.h"
#include "engine/kernels/device/device.h"
#include "engine/kernels/device/sampling.h"
#include "engine/kernels/device/slices.h"
#include "engine/kernels/device/taylorshift.h"

namespace lowkey {

// The numeric primitives of a device, one table for each kind of device. All pointers are the
// device's; rows are fp32 unless a type stands beside them. No function waits; Device::status shows
// a fault. A row's bits depend on the row alone.

// x [n_rows, dim] = rows tokens[i] of the table.
struct EmbedArgs {
  const int32_t* tokens = nullptr;
  const void* table = nullptr;  // [vocab, dim]
  StorageType table_type = StorageType::kFloat32;
  int64_t dim = 0;
  float* x = nullptr;
  int64_t n_rows = 0;
};

// out row i = x / sqrt(mean(x^2) + eps) * weight, where x is row i, or row rows[i].
struct DeviceNormArgs {
  const float* x = nullptr;  // row i is at x + i * dim
  const int32_t* rows = nullptr;
  const float* weight = nullptr;  // [dim]
  float eps = 0;
  int64_t dim = 0;
  int64_t n_rows = 0;
  void* out = nullptr;  // [n_rows, dim]
  StorageType out_type = StorageType::kFloat32;
  float* also_floats = nullptr;  // out in fp32 as well, unless nullptr
};

// cos, sin [n_rows, half] of positions[i] * inverse_frequencies[j], computed in double.
struct AnglesArgs {
  const int32_t* positions = nullptr;
  const double* inverse_frequencies = nullptr;  // [half]
  int64_t half = 0;
  int64_t n_rows = 0;
  float* cos = nullptr;
  float* sin = nullptr;
};

// Norms the heads (where there is a norm), then rotates pairs (j, j + head_dim / 2). A row
// of qkv begins with n_heads queries, then n_kv_heads keys, then n_values numbers of values; any of
// these may be 0.
//
// Where there are pages, the rows of their slots alone are taken, and keys go there, rotated, as do
// the values, head_dim for each key; the places of both in qkv are not written.
struct RotateArgs {
  float* qkv = nullptr;  // row i at qkv + i * ld
  // Kernels read this instead of qkv where it is set; values then go to qkv, unless there are
  // pages.
  const uint16_t* rounded = nullptr;
  int64_t ld = 0;
  int64_t n_rows = 0;
  int64_t n_heads = 0, n_kv_heads = 0, head_dim = 0;
  int64_t n_values = 0;
  const float* q_norm = nullptr;  // [head_dim]; nullptr: no norm
  const float* k_norm = nullptr;
  float eps = 0;
  const float* cos = nullptr;  // [n_rows, head_dim / 2]
  const float* sin = nullptr;
  // Slices of a layer's input, row i at + i * ld_slices: keys and values that are taken from there,
  // and go to qkv; nullptr: none.
  const float* key_slices = nullptr;
  const float* value_slices = nullptr;
  int64_t ld_slices = 0;
  CacheSlots pages = {};  // none where there are slices
  int64_t layer = 0;
};

// out [n_rows, n] = silu(gate) * up. Row i of both is number i * ld of gate_up and the following,
// in groups as in GatedProductArgs. In bf16, ld is a multiple of 8 and gate_up is aligned to 16
// bytes.
struct GatedArgs {
  const void* gate_up = nullptr;
  StorageType gate_up_type = StorageType::kFloat32;  // or bf16, where out is bf16 too
  int64_t ld = 0;
  int64_t n = 0;
  int64_t n_rows = 0;
  void* out = nullptr;
  StorageType out_type = StorageType::kFloat32;
};

// out [n] = x rounded to out_type.
struct RoundArgs {
  const float* x = nullptr;
  int64_t n = 0;
  void* out = nullptr;
  StorageType out_type = StorageType::kBFloat16;
};

struct DeviceKernels {
  void (*embed)(Device&, const EmbedArgs&) = nullptr;
  void (*rms_norm)(Device&, const DeviceNormArgs&) = nullptr;
  void (*angles)(Device&, const AnglesArgs&) = nullptr;
  void (*rotate)(Device&, const RotateArgs&) = nullptr;
  void (*gated)(Device&, const GatedArgs&) = nullptr;
  void (*round)(Device&, const RoundArgs&) = nullptr;

  void (*taylor_write)(Device&, const TaylorWriteArgs&) = nullptr;
  void (*taylor_fold)(Device&, const TaylorFoldArgs&) = nullptr;
  void (*taylor_read_state)(Device&, const TaylorReadArgs&) = nullptr;
  void (*taylor_read_pages)(Device&, const TaylorReadArgs&) = nullptr;
  void (*taylor_finish)(Device&, const TaylorFinishArgs&) = nullptr;

  void (*write_kv)(Device&, const WriteKvArgs&) = nullptr;
  void (*close_pages)(Device&, const ClosePagesArgs&) = nullptr;
  void (*attend)(Device&, const AttendArgs&) = nullptr;      // the tasks
  void (*join_parts)(Device&, const AttendArgs&) = nullptr;  // the joins

  void (*slice_write)(Device&, const SliceWriteArgs&) = nullptr;
  void (*slice_align)(Device&, const SliceAlignArgs&) = nullptr;
  void (*slice_attend)(Device&, const SliceAttendArgs&) = nullptr;

  void (*atp_compress)(Device&, const AtpCompressArgs&) = nullptr;
  void (*atp_merge)(Device&, const AtpCompressArgs&) = nullptr;
  void (*atp_attend)(Device&, const AtpAttendArgs&) = nullptr;
  void (*atp_score)(Device&, const AtpScoreArgs&) = nullptr;
  void (*atp_choose)(Device&, const AtpChooseArgs&) = nullptr;
  void (*atp_combine)(Device&, const AtpCombineArgs&) = nullptr;

  void (*sample)(Device&, const SamplingArgs&) = nullptr;
  void (*take_drawn)(Device&, const TakeDrawnArgs&) = nullptr;
  void (*count_drawn)(Device&, const CountDrawnArgs&) = nullptr;
};

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_KERNELS_DEVICE_KERNELS_H_
