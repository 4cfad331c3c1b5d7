#ifndef LOWKEY_TESTS_ARCH_RULES_H_
#define LOWKEY_TESTS_ARCH_RULES_H_

#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

namespace lowkey::arch {

// Which modules each module may include itself, before skipping downwards. A module is "server",
// "tokenizer", "proto", "bench" or a folder of engine, such as "engine/base".
using Edges = std::map<std::string, std::set<std::string>, std::less<>>;

// The arrows of this repository.
const Edges& DirectEdges();

// Every module that one can be reached from by following `edges`, itself included.
Edges Closure(const Edges& edges);

// The module that a path relative to the root belongs to, known or not: "engine/base" for
// "engine/base/buffer.h", "server" for "client/client.h".
std::string ModuleOf(std::string_view path);

// One line per broken rule, in the order of the files' names: "engine/base/a.cc:3: includes ...".
//   - an #include against the direction of the modules, or not by its path from the root
//   - CUDA, gRPC, protobuf or JSON headers outside the folders that may know them
//   - a header that every module may include as plain data and that includes a module itself
//   - a file over 500 lines, a folder named common or utils
//   - a module of engine, or a top-level folder, that is not in the plan; hidden folders and
//     build* are nobody's business
// `root` must be a folder.
std::vector<std::string> CheckTree(const std::filesystem::path& root);

}  // namespace lowkey::arch

#endif  // LOWKEY_TESTS_ARCH_RULES_H_
