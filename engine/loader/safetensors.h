#ifndef LOWKEY_ENGINE_LOADER_SAFETENSORS_H_
#define LOWKEY_ENGINE_LOADER_SAFETENSORS_H_

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "engine/base/load_account.h"
#include "engine/base/tensor.h"
#include "engine/loader/mapped_file.h"

namespace lowkey {

// The tensors of one .safetensors file.
struct SafetensorsIndex {
  // Views into the file's bytes; possibly misaligned.
  absl::flat_hash_map<std::string, TensorView> tensors;
  // Tensors of a dtype of the format that we do not read (such as U8, F8_E4M3): name -> dtype.
  absl::flat_hash_map<std::string, std::string> foreign_dtypes;
};

// Reads the header of a safetensors file's bytes. Nothing in them is trusted: the header's length
// (at most 100 MB) is checked against the file, each shape's product for overflow and against its
// offsets, and offsets against the data section. Misaligned data and unused gaps are allowed;
// `__metadata__` is ignored. `name` begins every message. The views live as long as the bytes.
// INVALID_ARGUMENT naming tensor, actual and expected.
// Tensors have names of at most kMaxTensorNameBytes. The header and its tensors are charged to the
// account, whose error is returned too.
inline constexpr size_t kMaxTensorNameBytes = 1024;
absl::StatusOr<SafetensorsIndex> ParseSafetensors(absl::Span<const std::byte> bytes,
                                                  const std::string& name, LoadAccount& account);
// The same for a file that is loaded by itself.
absl::StatusOr<SafetensorsIndex> ParseSafetensors(absl::Span<const std::byte> bytes,
                                                  const std::string& name);

// A mapped file and its tensors.
struct Safetensors {
  std::shared_ptr<const MappedFile> file;
  SafetensorsIndex index;
};

// MappedFile::Open's errors and ParseSafetensors'.
absl::StatusOr<Safetensors> OpenSafetensors(const std::string& path, LoadAccount& account);
absl::StatusOr<Safetensors> OpenSafetensors(const std::string& path);

struct TensorSpec {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
};

// Writes a safetensors file tensor by tensor, so that it need not fit in memory. Not thread-safe.
class SafetensorsWriter {
 public:
  // Creates or replaces the file and writes the header. Data is then appended in the order of
  // specs. INVALID_ARGUMENT for a repeated name, a negative dimension or a dtype of blocks;
  // UNAVAILABLE when the file cannot be written (from the other calls too).
  static absl::StatusOr<SafetensorsWriter> Create(const std::string& path,
                                                  absl::Span<const TensorSpec> specs);

  absl::Status Append(absl::Span<const std::byte> bytes);

  // Flushes and closes. FAILED_PRECONDITION unless exactly the announced bytes were appended.
  absl::Status Finish();

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  std::string path_;
  std::unique_ptr<std::FILE, Close> file_;
  uint64_t n_left_bytes_ = 0;
};

// Writes all tensors at once. SafetensorsWriter's errors.
absl::Status WriteSafetensors(const std::string& path,
                              absl::Span<const std::pair<std::string, TensorView>> tensors);

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_LOADER_SAFETENSORS_H_
