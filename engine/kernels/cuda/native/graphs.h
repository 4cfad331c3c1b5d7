#ifndef LOWKEY_ENGINE_KERNELS_CUDA_NATIVE_GRAPHS_H_
#define LOWKEY_ENGINE_KERNELS_CUDA_NATIVE_GRAPHS_H_

#include <cuda_runtime_api.h>

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "engine/kernels/device/repeated_work.h"

namespace lowkey {

// CUDA graphs of work that is queued again and again. The least recently used graph is forgotten.
class Graphs {
 public:
  explicit Graphs(cudaStream_t stream) : stream_(stream) {}
  ~Graphs();
  Graphs(const Graphs&) = delete;
  Graphs& operator=(const Graphs&) = delete;

  // Queues the graph of this key, if there is one, and returns whether there is; `error` is the
  // result. A graph that finds no memory is forgotten, as work that cannot be captured.
  bool Launch(uint64_t key, cudaError_t& error);
  // Returns whether Capture should be called for a key that has no graph: the key is seen for the
  // second time.
  bool IsWanted(uint64_t key) { return work_.Find(key) == nullptr && work_.IsSecond(key); }
  // Keeps the work that `queue` queues on the stream; none of it runs. `queue` returns false after
  // an error. Work that cannot be captured is remembered as such, and leaves no error behind.
  void Capture(uint64_t key, absl::FunctionRef<bool()> queue);

 private:
  cudaGraphExec_t Instantiate(absl::FunctionRef<bool()> queue);

  const cudaStream_t stream_;
  RepeatedWork<cudaGraphExec_t> work_;  // nullptr: cannot be captured
};

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_KERNELS_CUDA_NATIVE_GRAPHS_H_
