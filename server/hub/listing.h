#ifndef LOWKEY_SERVER_HUB_LISTING_H_
#define LOWKEY_SERVER_HUB_LISTING_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace lowkey {

// A file of a repository, as the hub lists it.
struct HubFile {
  std::string path;       // relative, checked by IsSafePath
  int64_t n_bytes = 0;    // 0..2^50
  std::string digest;     // lower-case hexadecimal: SHA-256 or git's SHA-1; it names the blob
  bool is_sha256 = true;  // false: SHA-1 of a git blob, for small files
};

inline constexpr size_t kMaxListedFiles = 100'000;

// Returns whether a path stays inside of the folder that it is put into: relative, without empty,
// "." and ".." parts, control characters and backslashes, at most 1,024 bytes and 255 in a part.
bool IsSafePath(std::string_view path);

// Reads a page of the hub's answer to /api/models/OWNER/NAME/tree: an untrusted JSON array of at
// most the bytes that the caller allowed. Folders are passed over. INVALID_ARGUMENT, beginning with
// `name`: not such an array, or an entry with an unsafe path, a size out of range, or a digest that
// is none.
absl::StatusOr<std::vector<HubFile>> ParseListing(std::string_view text, const std::string& name);

// INVALID_ARGUMENT: a path appears twice, or the listing has more than kMaxListedFiles.
absl::Status CheckListing(const std::vector<HubFile>& files, const std::string& name);

// Writes files so that ParseListing reads them.
std::string ListingText(const std::vector<HubFile>& files);

// Reads the commit from the hub's untrusted answer about a revision. INVALID_ARGUMENT: no JSON
// object with a commit in "sha".
absl::StatusOr<std::string> ParseCommitAnswer(std::string_view text, const std::string& name);

}  // namespace lowkey

#endif  // LOWKEY_SERVER_HUB_LISTING_H_
