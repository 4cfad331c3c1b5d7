#ifndef LOWKEY_ENGINE_LOADER_GGUF_FILES_H_
#define LOWKEY_ENGINE_LOADER_GGUF_FILES_H_

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "engine/loader/gguf.h"
#include "engine/loader/mapped_file.h"

namespace lowkey {

// A model in GGUF: one mapped file, or all parts of a split one.
struct Gguf {
  std::shared_ptr<const MappedFile> file;  // the first part
  // The first part's metadata, and the tensors of all parts.
  GgufIndex index;
  // Parts 2, 3, ... of a split model, and for each of their tensors the index of its part here.
  std::vector<std::shared_ptr<const MappedFile>> other_files;
  absl::flat_hash_map<std::string, size_t> part_of;
};

// The most parts that a model may be split into.
inline constexpr int64_t kMaxGgufParts = 1024;

// Maps and parses a file and, when its split.count is over 1, all its parts:
// NAME-00001-of-00003.gguf is the first of three in one directory. MappedFile::Open's errors and
// ParseGguf's, and:
//   NOT_FOUND         a part is missing
//   INVALID_ARGUMENT  the path is another part than the first; a part whose split.no or split.count
//                     is not what its name says; a tensor in two parts; a split.tensors.count that
//                     is not the number of tensors
absl::StatusOr<Gguf> OpenGguf(const std::string& path);

// Finds the GGUF file that a model's path stands for: the path itself when it names a .gguf file;
// of a directory without config.json, its only .gguf file, or the first part of the only split
// model. nullopt for any other path. INVALID_ARGUMENT when such a directory holds several models,
// NOT_FOUND when the first part is missing.
absl::StatusOr<std::optional<std::string>> FindGguf(const std::string& model_path);

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_LOADER_GGUF_FILES_H_
