#ifndef LOWKEY_SERVER_HUB_MODEL_REFERENCE_H_
#define LOWKEY_SERVER_HUB_MODEL_REFERENCE_H_

#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace lowkey {

// A repository of a model hub, as --model names it: hf:OWNER/NAME[@REVISION][:QUANT].
struct ModelReference {
  std::string owner, name;
  std::string revision = "main";  // a branch, a tag, or a commit of 40 hexadecimal digits
  std::string quant;              // a part of GGUF files' names; empty: not given

  std::string Repository() const { return owner + "/" + name; }
  // Returns the reference without its QUANT, and with its REVISION unless that is "main".
  std::string Text() const;
};

// Returns whether a model's path is a reference to a hub.
bool IsModelReference(std::string_view path);

// Returns whether the text is a commit's name: 40 lower-case hexadecimal digits.
bool IsCommit(std::string_view text);

// INVALID_ARGUMENT: the text is no reference. Owners, names and QUANTs consist of letters, digits,
// and - _ . inside of them; a REVISION may have slashes. None of them can leave a folder.
absl::StatusOr<ModelReference> ParseModelReference(std::string_view text);

}  // namespace lowkey

#endif  // LOWKEY_SERVER_HUB_MODEL_REFERENCE_H_
