#include "tests/integration/terminal_process.h"

#include <poll.h>
#include <pty.h>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>

#include "engine/base/status_macros.h"

namespace lowkey {

TerminalProcess::TerminalProcess(std::vector<std::string> arguments, unsigned short columns) {
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  winsize size{.ws_row = 24, .ws_col = columns, .ws_xpixel = 0, .ws_ypixel = 0};
  pid_ = forkpty(&terminal_fd_, nullptr, nullptr, &size);
  LK_CHECK(pid_ >= 0);
  if (pid_ == 0) {
    execv(argv[0], argv.data());
    _exit(127);
  }
}

TerminalProcess::~TerminalProcess() {
  if (pid_ > 0) {
    kill(pid_, SIGKILL);
    Wait();
  }
}

void TerminalProcess::Type(const std::string& keys) const {
  LK_CHECK(write(terminal_fd_, keys.data(), keys.size()) == static_cast<ssize_t>(keys.size()));
}

bool TerminalProcess::Read() {
  // Longer than any answer takes; shorter than a test may.
  constexpr int kTimeoutMs = 60000;
  pollfd waiting{.fd = terminal_fd_, .events = POLLIN, .revents = 0};
  if (poll(&waiting, 1, kTimeoutMs) <= 0) return false;
  std::array<char, 4096> chunk;
  const ssize_t n = read(terminal_fd_, chunk.data(), chunk.size());
  if (n <= 0) return false;
  screen_.append(chunk.data(), static_cast<size_t>(n));
  return true;
}

bool TerminalProcess::WaitForText(const std::string& text) {
  size_t at;
  while ((at = screen_.find(text, seen_)) == std::string::npos) {
    if (!Read()) return false;
  }
  seen_ = at + text.size();
  return true;
}

int TerminalProcess::Wait() {
  while (Read()) {
  }
  int status = 0;
  waitpid(pid_, &status, 0);
  pid_ = -1;
  close(terminal_fd_);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace lowkey
