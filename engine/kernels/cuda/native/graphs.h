#ifndef LOWKEY_ENGINE_KERNELS_CUDA_NATIVE_GRAPHS_H_
#define LOWKEY_ENGINE_KERNELS_CUDA_NATIVE_GRAPHS_H_

#include <cuda_runtime_api.h>

#include <cstdint>
#include <list>
#include <unordered_map>

#include "absl/functional/function_ref.h"

namespace lowkey {

// CUDA graphs of work that is queued again and again. The least recently used graph is forgotten.
class Graphs {
 public:
  explicit Graphs(cudaStream_t stream) : stream_(stream) {}
  ~Graphs();
  Graphs(const Graphs&) = delete;
  Graphs& operator=(const Graphs&) = delete;

  // Queues the graph of this key, if there is one, and returns whether there is; `error` is the
  // result.
  bool Launch(uint64_t key, cudaError_t& error);

  // Keeps the work that `queue` queues on the stream; none of it runs. `queue` returns false after
  // an error. Work that cannot be captured is remembered as such, and leaves no error behind.
  void Capture(uint64_t key, absl::FunctionRef<bool()> queue);
  // Returns whether Capture has been called for the key, and the key is not forgotten.
  bool Knows(uint64_t key) const { return kept_.contains(key); }

 private:
  struct Kept {
    cudaGraphExec_t graph = nullptr;  // nullptr: cannot be captured
    std::list<uint64_t>::iterator use;
  };

  void Forget(uint64_t key);
  cudaGraphExec_t Instantiate(absl::FunctionRef<bool()> queue);

  const cudaStream_t stream_;
  std::list<uint64_t> uses_;  // the most recent first
  std::unordered_map<uint64_t, Kept> kept_;
};

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_KERNELS_CUDA_NATIVE_GRAPHS_H_
