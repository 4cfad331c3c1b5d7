#ifndef LOWKEY_TESTS_TESTING_SOURCE_PATH_H_
#define LOWKEY_TESTS_TESTING_SOURCE_PATH_H_

#include <string>
#include <string_view>

namespace lowkey {

// The path of a file of the repository, named from its root: SourcePath("models/tales"). The root
// itself for "". The environment variable LOWKEY_SOURCE_DIR names another root, where tests run
// away from the tree that they were built in.
std::string SourcePath(std::string_view file);

}  // namespace lowkey

#endif  // LOWKEY_TESTS_TESTING_SOURCE_PATH_H_
