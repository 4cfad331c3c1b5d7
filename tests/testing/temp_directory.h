#ifndef LOWKEY_TESTS_TESTING_TEMP_DIRECTORY_H_
#define LOWKEY_TESTS_TESTING_TEMP_DIRECTORY_H_

#include <string>

namespace lowkey {

// A directory of its own under the system's temporary one, removed with everything in it at the
// end.
class TempDirectory {
 public:
  TempDirectory();
  ~TempDirectory();
  TempDirectory(const TempDirectory&) = delete;
  TempDirectory& operator=(const TempDirectory&) = delete;

  const std::string& path() const { return path_; }
  // Path of `name` inside.
  std::string File(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

// Whole files as bytes. Abort when they cannot be read or written.
std::string ReadFileOrDie(const std::string& path);
void WriteFileOrDie(const std::string& path, const std::string& bytes);

}  // namespace lowkey

#endif  // LOWKEY_TESTS_TESTING_TEMP_DIRECTORY_H_
