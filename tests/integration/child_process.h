#ifndef LOWKEY_TESTS_INTEGRATION_CHILD_PROCESS_H_
#define LOWKEY_TESTS_INTEGRATION_CHILD_PROCESS_H_

#include <sys/types.h>

#include <string>
#include <vector>

namespace lowkey {

// A program that runs beside the test; its standard input is empty unless given. Killed when this
// goes out of scope.
class ChildProcess {
 public:
  // `environment` entries ("NAME=value") are added to this process's.
  explicit ChildProcess(const std::vector<std::string>& arguments,
                        const std::vector<std::string>& environment = {},
                        const std::string& input = "");
  ~ChildProcess();
  ChildProcess(const ChildProcess&) = delete;
  ChildProcess& operator=(const ChildProcess&) = delete;

  // Reads standard output until `text` came, or the output ended. True when it came.
  bool WaitForOutput(const std::string& text);

  void Signal(int number) const;

  // Valid until Wait returns.
  pid_t pid() const { return pid_; }

  // Waits for the end. The exit code, or 128 plus the signal that ended it. Then output() and
  // errors() are complete.
  int Wait();

  const std::string& output() const { return output_; }
  const std::string& errors() const { return errors_; }

 private:
  pid_t pid_ = -1;
  int output_fd_ = -1;
  std::string error_path_;
  std::string output_, errors_;
};

}  // namespace lowkey

#endif  // LOWKEY_TESTS_INTEGRATION_CHILD_PROCESS_H_
