#ifndef LOWKEY_ENGINE_BASE_FILES_H_
#define LOWKEY_ENGINE_BASE_FILES_H_

#include <cerrno>
#include <cstddef>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace lowkey {

// Returns the error of a file operation, `path: what: reason of error`: NOT_FOUND where there is no
// such file, RESOURCE_EXHAUSTED for a full disk or quota, else FAILED_PRECONDITION.
absl::Status FileError(const std::string& path, const char* what, int error = errno);

// Reads a regular file whole. FileError's errors; INVALID_ARGUMENT, beginning with the path, for
// another kind of file or one longer than max_bytes.
absl::StatusOr<std::string> ReadWholeFile(const std::string& path, size_t max_bytes);

// Reads a file that a user names, which may also be a pipe; "-" is standard input. Waits for who
// writes to a pipe. The errors are ReadWholeFile's.
absl::StatusOr<std::string> ReadTextFile(const std::string& path, size_t max_bytes);

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_BASE_FILES_H_
