#ifndef LOWKEY_TESTS_INTEGRATION_TERMINAL_PROCESS_H_
#define LOWKEY_TESTS_INTEGRATION_TERMINAL_PROCESS_H_

#include <sys/types.h>

#include <string>
#include <vector>

namespace lowkey {

// A program that runs in a terminal of its own, where the test types. Killed when this goes out of
// scope.
class TerminalProcess {
 public:
  explicit TerminalProcess(std::vector<std::string> arguments, unsigned short columns = 80);
  ~TerminalProcess();
  TerminalProcess(const TerminalProcess&) = delete;
  TerminalProcess& operator=(const TerminalProcess&) = delete;

  // Types on the keyboard: "\n" is enter, "\x03" ctrl-C, "\x04" ctrl-D.
  void Type(const std::string& keys) const;

  // Reads the screen until `text` came after what was read before, or the program ended. True when
  // it came.
  bool WaitForText(const std::string& text);

  // Waits for the end. The exit code, or 128 plus the signal that ended it.
  int Wait();

  // All that came to the screen, as far as it was read.
  const std::string& screen() const { return screen_; }

 private:
  bool Read();

  pid_t pid_ = -1;
  int terminal_fd_ = -1;
  std::string screen_;
  size_t seen_ = 0;
};

}  // namespace lowkey

#endif  // LOWKEY_TESTS_INTEGRATION_TERMINAL_PROCESS_H_
