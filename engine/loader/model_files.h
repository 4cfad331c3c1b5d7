#ifndef LOWKEY_ENGINE_LOADER_MODEL_FILES_H_
#define LOWKEY_ENGINE_LOADER_MODEL_FILES_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "engine/loader/gguf_files.h"

namespace lowkey {

// The files behind a model's path, found and, for GGUF, parsed once: the checkpoint, the tokenizer
// and the chat templates are read from here. Immutable; copies share the mapped file.
struct ModelFiles {
  std::string path;                  // as it was given
  std::string weights;               // the .gguf file (the first of a split one), or the directory
  std::string directory;             // the path, or the directory of the file that it names
  std::shared_ptr<const Gguf> gguf;  // nullptr: a Hugging Face directory
};

// NOT_FOUND or PERMISSION_DENIED when the path is neither a .gguf file nor a directory; the errors
// of FindGguf and OpenGguf.
absl::StatusOr<ModelFiles> OpenModelFiles(const std::string& path);

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_LOADER_MODEL_FILES_H_
