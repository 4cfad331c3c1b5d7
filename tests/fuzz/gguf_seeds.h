#ifndef LOWKEY_TESTS_FUZZ_GGUF_SEEDS_H_
#define LOWKEY_TESTS_FUZZ_GGUF_SEEDS_H_

#include <string>
#include <vector>

namespace lowkey {

// Small well-formed GGUF files, whose mutations are worth trying: every type of value and of tensor
// that we read, each architecture, both versions.
std::vector<std::string> GgufSeeds();

}  // namespace lowkey

#endif  // LOWKEY_TESTS_FUZZ_GGUF_SEEDS_H_
