// Writes the model that benchmarks use, with random weights for every mechanism (lowkey.json):
//   random_110m DIRECTORY      an existing one; then `lowkey crossover --model DIRECTORY` and so on
#include <cstdio>

#include "bench/random_bundle.h"
#include "bench/random_model.h"

int main(int argc, char** argv) {
  if (argc != 2) {
    std::fprintf(stderr, "usage: random_110m DIRECTORY\n");
    return 2;
  }
  const lowkey::RandomModelOptions model = lowkey::Random110m();
  lowkey::RandomBundleOptions bundle;
  bundle.config = model.config;
  for (const lowkey::Mechanism m : {lowkey::Mechanism::kOptimised, lowkey::Mechanism::kEfficient,
                                    lowkey::Mechanism::kTaylorShift, lowkey::Mechanism::kLasso}) {
    bundle.mechanisms.emplace_back().mechanism = m;
  }
  absl::Status status = lowkey::WriteRandomModel(argv[1], model);
  if (status.ok()) status = lowkey::WriteRandomBundle(argv[1], bundle);
  if (status.ok()) return 0;
  std::fprintf(stderr, "random_110m: %s\n", status.ToString().c_str());
  return 1;
}
