#ifndef LOWKEY_TESTS_ARCH_RULES_H_
#define LOWKEY_TESTS_ARCH_RULES_H_

#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace lowkey::arch {

// The modules that each module may include itself, before skipping downwards. A module is a top
// folder ("tokenizer"), a folder of engine ("engine/base") or a room inside of one
// ("server/config").
using Edges = std::map<std::string, std::set<std::string>, std::less<>>;

// Returns the arrows of this repository.
const Edges& DirectEdges();

// Returns for each module all modules that it reaches by `edges`, itself included.
Edges Closure(const Edges& edges);

// Returns the module of a path relative to the root, known or not: "engine/base" for
// "engine/base/buffer.h", "server/text" for "server/text/chat.h".
std::string ModuleOf(std::string_view path);

// Returns one line per broken rule, by file name: "engine/base/a.cc:3: includes ...". The rules are
// broken by
//   - an #include against the direction of the modules, or not by its path from the root
//   - CUDA, gRPC, protobuf or JSON headers outside the folders that may know them
//   - a line over 100 columns, in tests too: clang-format does not break comments and texts
//   - a file over 500 lines, a function over 60, a folder over 27 files or named common or utils
//   - a module of engine, or a top-level folder, that is not in the plan; hidden folders and
//     build* are nobody's business
// `root` must be a folder.
std::vector<std::string> CheckTree(const std::filesystem::path& root);

}  // namespace lowkey::arch

#endif  // LOWKEY_TESTS_ARCH_RULES_H_
