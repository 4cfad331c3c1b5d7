#ifndef LOWKEY_ENGINE_LOADER_GGUF_H_
#define LOWKEY_ENGINE_LOADER_GGUF_H_

#include <cstddef>
#include <memory>
#include <optional>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "engine/base/tensor.h"
#include "engine/loader/gguf_metadata.h"
#include "engine/loader/mapped_file.h"

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
absl::StatusOr<GgufIndex> ParseGguf(absl::Span<const std::byte> bytes, const std::string& name);

// A mapped file and its contents.
struct Gguf {
  std::shared_ptr<const MappedFile> file;
  GgufIndex index;
};

// Maps and parses a file. MappedFile::Open's errors and ParseGguf's.
absl::StatusOr<Gguf> OpenGguf(const std::string& path);

// Finds the GGUF file that a model's path stands for: the path itself when it names a .gguf file,
// or the only .gguf file of a directory without config.json. nullopt for any other path.
// INVALID_ARGUMENT when such a directory holds several.
absl::StatusOr<std::optional<std::string>> FindGguf(const std::string& model_path);

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_LOADER_GGUF_H_
