#include <string>
#include <vector>

#include "server/commands/command.h"

int main(int argc, char** argv) {
  return lowkey::RunCommandLine(std::vector<std::string>(argv + 1, argv + argc),
                                lowkey::FlagSources::Process());
}
