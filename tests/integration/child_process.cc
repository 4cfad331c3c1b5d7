#include "tests/integration/child_process.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <csignal>
#include <cstdlib>
#include <filesystem>

#include "engine/base/status_macros.h"
#include "tests/testing/temp_directory.h"

extern char** environ;

namespace lowkey {
namespace {

// A new temporary file holding `content`; the caller removes it.
std::string TemporaryFile(const std::string& content) {
  std::string path = (std::filesystem::temp_directory_path() / "lowkey-test-XXXXXX").string();
  const int descriptor = mkstemp(path.data());
  LK_CHECK(descriptor >= 0);
  LK_CHECK(write(descriptor, content.data(), content.size()) ==
           static_cast<ssize_t>(content.size()));
  close(descriptor);
  return path;
}

std::vector<char*> Pointers(std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  for (std::string& text : texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

}  // namespace

ChildProcess::ChildProcess(const std::vector<std::string>& arguments,
                           const std::vector<std::string>& environment, const std::string& input) {
  std::array<int, 2> pipe_fds;
  LK_CHECK(pipe2(pipe_fds.data(), O_CLOEXEC) == 0);
  const std::string input_path = TemporaryFile(input);
  error_path_ = TemporaryFile("");
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, 0, input_path.c_str(), O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, pipe_fds[1], 1);
  posix_spawn_file_actions_addopen(&actions, 2, error_path_.c_str(), O_WRONLY, 0);
  std::vector<std::string> argv = arguments, envp = environment;
  for (char** entry = environ; *entry != nullptr; ++entry) envp.emplace_back(*entry);
  LK_CHECK(posix_spawn(&pid_, argv[0].c_str(), &actions, nullptr, Pointers(argv).data(),
                       Pointers(envp).data()) == 0);
  posix_spawn_file_actions_destroy(&actions);
  close(pipe_fds[1]);
  output_fd_ = pipe_fds[0];
  // The child has opened it by now: posix_spawn returns after the exec.
  unlink(input_path.c_str());
}

ChildProcess::~ChildProcess() {
  if (pid_ > 0) {
    kill(pid_, SIGKILL);
    Wait();
  }
}

bool ChildProcess::WaitForOutput(const std::string& text) {
  std::array<char, 4096> chunk;
  while (output_.find(text) == std::string::npos) {
    const ssize_t n = read(output_fd_, chunk.data(), chunk.size());
    if (n <= 0) return false;
    output_.append(chunk.data(), static_cast<size_t>(n));
  }
  return true;
}

void ChildProcess::Signal(int number) const { kill(pid_, number); }

int ChildProcess::Wait() {
  std::array<char, 4096> chunk;
  for (ssize_t n; (n = read(output_fd_, chunk.data(), chunk.size())) > 0;) {
    output_.append(chunk.data(), static_cast<size_t>(n));
  }
  int status = 0;
  waitpid(pid_, &status, 0);
  pid_ = -1;
  close(output_fd_);
  errors_ = ReadFileOrDie(error_path_);
  unlink(error_path_.c_str());
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace lowkey
