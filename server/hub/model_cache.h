#ifndef LOWKEY_SERVER_HUB_MODEL_CACHE_H_
#define LOWKEY_SERVER_HUB_MODEL_CACHE_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/hub/listing.h"
#include "server/hub/model_reference.h"

namespace lowkey {

// The lock of a repository's folder, held by one process until destruction. The kernel frees it
// when the process ends, however that happens.
class CacheLock {
 public:
  explicit CacheLock(int descriptor) : descriptor_(descriptor) {}
  CacheLock(CacheLock&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  CacheLock& operator=(CacheLock&&) = delete;
  ~CacheLock();

 private:
  int descriptor_;
};

// The files of one repository in the cache, laid out as huggingface_hub does, so that both find
// each other's:
//   models--OWNER--NAME/blobs/DIGEST             a file's bytes; DIGEST.part while it comes
//   models--OWNER--NAME/snapshots/COMMIT/PATH    a link to the blob
//   models--OWNER--NAME/refs/REVISION            the commit that the revision was
//   models--OWNER--NAME/lowkey/COMMIT.json       the hub's list of files
//   .locks/models--OWNER--NAME/lowkey.lock
// Reading takes no lock: files appear whole. Errors are FileError's, unless noted.
class ModelCache {
 public:
  ModelCache(const std::string& root, const ModelReference& reference);

  std::string SnapshotPath(const std::string& commit) const;
  std::string BlobPath(const HubFile& file) const;
  std::string PartPath(const HubFile& file) const { return BlobPath(file) + ".part"; }

  // Returns whether the snapshot has the file, and in its listed size.
  bool HasFile(const std::string& commit, const HubFile& file) const;
  bool HasBlob(const HubFile& file) const;

  // The commit that a revision was when it was last fetched; nullopt: never, or not readable.
  std::optional<std::string> ReadRevision(const std::string& revision) const;
  // The files of a commit: as the hub listed them, else those that another program fetched, without
  // digests. Empty: nothing is known of the commit.
  std::vector<HubFile> ReadListing(const std::string& commit) const;
  bool HasListing(const std::string& commit) const;

  // These change the cache, and are called under its lock.
  absl::Status MakeFolders(const std::string& commit) const;
  absl::Status WriteRevision(const std::string& revision, const std::string& commit) const;
  absl::Status WriteListing(const std::string& commit, const std::vector<HubFile>& files) const;
  absl::Status LinkFile(const std::string& commit, const HubFile& file) const;

  // Waits for the lock; calls `on_wait` once if another process has it. CANCELLED: `is_stopped`
  // said so.
  absl::StatusOr<CacheLock> Lock(const std::function<bool()>& is_stopped,
                                 const std::function<void()>& on_wait) const;
  // RESOURCE_EXHAUSTED: fewer bytes than `n_bytes` are free for this user.
  absl::Status CheckSpace(int64_t n_bytes) const;

 private:
  std::string ListingPath(const std::string& commit) const;

  const std::string folder_, lock_folder_;
};

}  // namespace lowkey

#endif  // LOWKEY_SERVER_HUB_MODEL_CACHE_H_
