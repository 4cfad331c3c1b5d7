#ifndef LOWKEY_CLIENT_REPORT_BUILD_H_
#define LOWKEY_CLIENT_REPORT_BUILD_H_

// Texts that the build writes (client/report/write_build.cmake).

namespace lowkey {

extern const char kBuildCommit[];   // the commit, short; empty outside a git checkout
extern const char kPageTemplate[];  // client/report/page.html

}  // namespace lowkey

#endif  // LOWKEY_CLIENT_REPORT_BUILD_H_
