#include <string>
#include <vector>

#include "server/all_commands.h"

int main(int argc, char** argv) {
  return lowkey::RunCommandLine(lowkey::AllCommands(),
                                std::vector<std::string>(argv + 1, argv + argc),
                                lowkey::FlagSources::Process());
}
