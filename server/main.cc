#include <string>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "server/all_commands.h"

int main(int argc, char** argv) {
#ifdef NDEBUG
  // Debian's Abseil looks for deadlock cycles at every lock, under a lock of its own that all
  // threads share.
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
#endif
  return lowkey::RunCommandLine(lowkey::AllCommands(),
                                std::vector<std::string>(argv + 1, argv + argc),
                                lowkey::FlagSources::Process());
}
