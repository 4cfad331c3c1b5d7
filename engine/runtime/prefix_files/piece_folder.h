#ifndef LOWKEY_ENGINE_RUNTIME_PREFIX_FILES_PIECE_FOLDER_H_
#define LOWKEY_ENGINE_RUNTIME_PREFIX_FILES_PIECE_FOLDER_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "engine/base/buffer.h"
#include "engine/runtime/prefix_files/piece_chain.h"

namespace lowkey {

// Pieces in a folder, each in a file of its own that is named by the piece's key and begins with a
// SHA-256 of key and bytes. A file appears whole or not at all, and one whose digest is wrong
// counts as missing. The bytes are a stranger's all the same: who may write to the folder can make
// up both.
//
// Callers say when a piece is used: for the pieces of one prefix a little earlier from one to the
// next, so that the last ones are removed first, which nobody finds without the first.
//
// Several processes may share a folder. One thread writes and another one reads.
class PieceFolder {
 public:
  // Makes the folder, for its owner alone, where there is none, and measures what is in it.
  // FileError's errors; FAILED_PRECONDITION when it is no folder.
  static absl::StatusOr<PieceFolder> Open(std::string path, int64_t max_bytes);

  // Returns the piece; nullopt where there is none. DATA_LOSS when the file is
  // not as it was written or has more than max_bytes; it is removed. RESOURCE_EXHAUSTED without
  // memory.
  absl::StatusOr<std::optional<Buffer>> Read(const PieceKey& key, absl::Time used,
                                             int64_t max_bytes) const;

  // Says whether there is such a file.
  bool Touch(const PieceKey& key, absl::Time used) const;
  // Writes a file, and removes the files that were used longest ago while all together have more
  // than max_bytes. FileError's errors.
  absl::Status Write(const PieceKey& key, absl::Time used, absl::Span<const std::byte> bytes);

  int64_t max_bytes() const { return max_bytes_; }

 private:
  PieceFolder(std::string path, int64_t max_bytes)
      : path_(std::move(path)), max_bytes_(max_bytes) {}

  std::string PathOf(const PieceKey& key) const;
  // Makes a file of its own, and returns its path.
  absl::StatusOr<std::string> WriteAside(const PieceKey& key, absl::Time used,
                                         absl::Span<const std::byte> bytes) const;
  // Measures all files, of every process, and makes room.
  absl::Status Trim();

  std::string path_;
  int64_t max_bytes_;
  int64_t n_bytes_ = 0;    // at the last Trim, and what was written since
  int64_t n_written_ = 0;  // since then
};

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_RUNTIME_PREFIX_FILES_PIECE_FOLDER_H_
