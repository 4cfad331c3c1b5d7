#ifndef LOWKEY_ENGINE_LOADER_GGUF_H_
#define LOWKEY_ENGINE_LOADER_GGUF_H_

#include <cstddef>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "engine/base/load_account.h"
#include "engine/base/tensor.h"
#include "engine/loader/gguf_metadata.h"

namespace lowkey {

// The contents of one GGUF file.
struct GgufIndex {
  GgufMetadata metadata;
  // Views into the file's bytes, row-major: a matrix's shape is [out, in], the reverse of the
  // file's order.
  absl::flat_hash_map<std::string, TensorView> tensors;
  // Tensors of a type that we do not read (such as IQ2_XS): name -> type.
  absl::flat_hash_map<std::string, std::string> foreign_dtypes;
};

// Reads GGUF of version 2 or 3 (little-endian). Nothing in the bytes is trusted: counts, lengths,
// types, dimensions and offsets are checked before use. Unused gaps are allowed; a file without
// tensors (a vocabulary alone) is too. `name` begins every message. Views live as long as the
// bytes.
//   INVALID_ARGUMENT naming key or tensor, actual and expected
//   UNIMPLEMENTED    another version, or an array of arrays
// Parsing charges what it reads to the account; the account's error is returned too.
absl::StatusOr<GgufIndex> ParseGguf(absl::Span<const std::byte> bytes, const std::string& name,
                                    LoadAccount& account);
// The same for a file that is loaded by itself.
absl::StatusOr<GgufIndex> ParseGguf(absl::Span<const std::byte> bytes, const std::string& name);

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_LOADER_GGUF_H_
