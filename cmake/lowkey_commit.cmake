# Run at build time: writes OUTPUT, the source that defines kVersion and kCommit, where it would
# change.
#   cmake -DSOURCE_DIR=... -DOUTPUT=... -DVERSION=... [-DCOMMIT=...] -P lowkey_commit.cmake
# COMMIT is for builds without a repository, such as packages; else git is asked, and "unknown" is
# what a tarball says.
if(NOT COMMIT AND EXISTS ${SOURCE_DIR}/.git)
  execute_process(
    COMMAND git -C ${SOURCE_DIR} describe --always --dirty --abbrev=12 --exclude=*
    OUTPUT_VARIABLE COMMIT OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
endif()
if(NOT COMMIT)
  set(COMMIT unknown)
endif()
file(CONFIGURE OUTPUT ${OUTPUT} @ONLY CONTENT
[[#include "server/version.h"

namespace lowkey {
const char kVersion[] = "@VERSION@";
const char kCommit[] = "@COMMIT@";
}  // namespace lowkey
]])
