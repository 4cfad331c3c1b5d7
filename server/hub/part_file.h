#ifndef LOWKEY_SERVER_HUB_PART_FILE_H_
#define LOWKEY_SERVER_HUB_PART_FILE_H_

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/hub/digest.h"
#include "server/hub/listing.h"

namespace lowkey {

// A file that is being downloaded: its first bytes, on disk, and their digest. What was written
// stays when the process ends. Not thread-safe; one process at a time, under the cache's lock.
class PartFile {
 public:
  // Opens the part, or makes an empty one, and digests what it holds. A part that is longer than
  // the file begins anew. CANCELLED: `is_stopped` said so; FAILED_PRECONDITION: it is no regular
  // file; FileError's errors.
  static absl::StatusOr<PartFile> Open(const std::string& path, const HubFile& file,
                                       const std::function<bool()>& is_stopped);
  ~PartFile();
  PartFile(PartFile&& other) noexcept;
  PartFile& operator=(PartFile&&) = delete;

  int64_t n_bytes() const { return n_bytes_; }
  bool IsWhole() const { return n_bytes_ == file_.n_bytes; }
  const HubFile& file() const { return file_; }

  // Drops all bytes.
  absl::Status Restart();
  // DATA_LOSS: more bytes than the file has; nothing of `bytes` is written then.
  absl::Status Append(std::string_view bytes);
  // Checks the digest of the whole file, and moves it to `path`. DATA_LOSS: the digest is another
  // one; then the part is empty again.
  absl::Status Finish(const std::string& path);

 private:
  PartFile(std::string path, const HubFile& file, int descriptor)
      : path_(std::move(path)), file_(file), descriptor_(descriptor), digest_(file) {}
  absl::Status ReadWhatIsThere(const std::function<bool()>& is_stopped);

  std::string path_;
  HubFile file_;
  int descriptor_;
  Digest digest_;
  int64_t n_bytes_ = 0;
};

}  // namespace lowkey

#endif  // LOWKEY_SERVER_HUB_PART_FILE_H_
