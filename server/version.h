#ifndef LOWKEY_SERVER_VERSION_H_
#define LOWKEY_SERVER_VERSION_H_

namespace lowkey {

// The version of the build: "0.1.0".
extern const char kVersion[];

// The commit that was built, with "-dirty" after changes: "31b6fc3d2a10-dirty"; "unknown" where
// there was no repository.
extern const char kCommit[];

}  // namespace lowkey

#endif  // LOWKEY_SERVER_VERSION_H_
