#ifndef LOWKEY_SERVER_HUB_SELECTION_H_
#define LOWKEY_SERVER_HUB_SELECTION_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/hub/listing.h"
#include "server/hub/model_reference.h"

namespace lowkey {

// The files of a repository that a model needs.
struct FileSelection {
  std::vector<HubFile> files;
  std::string main;  // the path of the GGUF file, of several the first; empty: the whole folder
};

// Chooses the files. Without a QUANT a repository with config.json and safetensors is taken as
// a Hugging Face directory: its weights (model.safetensors or the shards beside the index), its
// configuration, tokenizer and chat templates, and the weights of a bundle (lowkey.json). Else the
// GGUF file or the parts of the split one whose path has QUANT in it, whatever the case; where
// several have, the ones in which QUANT is a word of its own (Q4_K is none of Q4_K_M). Projectors
// (mmproj) and importance matrices are no models.
// NOT_FOUND: no such file, or several, or a shard that is missing; the message lists what there is.
absl::StatusOr<FileSelection> SelectFiles(const ModelReference& reference,
                                          const std::vector<HubFile>& files);

}  // namespace lowkey

#endif  // LOWKEY_SERVER_HUB_SELECTION_H_
