#include "engine/kernels/cuda/native/graphs.h"

#include <utility>

namespace lowkey {
namespace {

// The driver frees a graph that still runs when it has run.
void Destroy(cudaGraphExec_t graph) {
  if (graph != nullptr) (void)cudaGraphExecDestroy(graph);
}

}  // namespace

Graphs::~Graphs() { work_.Each(Destroy); }

bool Graphs::Launch(uint64_t key, cudaError_t& error) {
  cudaGraphExec_t* const graph = work_.Find(key);
  if (graph == nullptr || *graph == nullptr) return false;
  error = cudaGraphLaunch(*graph, stream_);
  if (error != cudaErrorMemoryAllocation) return true;
  Destroy(std::exchange(*graph, nullptr));
  (void)cudaGetLastError();
  error = cudaSuccess;
  return false;
}

void Graphs::Capture(uint64_t key, absl::FunctionRef<bool()> queue) {
  const std::optional<cudaGraphExec_t> forgotten = work_.Keep(key, Instantiate(queue));
  if (forgotten.has_value()) Destroy(*forgotten);
}

cudaGraphExec_t Graphs::Instantiate(absl::FunctionRef<bool()> queue) {
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t made = nullptr;
  // Thread-local mode leaves the process's other threads alone.
  if (cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal) == cudaSuccess) {
    const bool queued = queue();
    const bool captured = cudaStreamEndCapture(stream_, &graph) == cudaSuccess;
    if (queued && captured && cudaGraphInstantiate(&made, graph, 0) != cudaSuccess) made = nullptr;
    if (graph != nullptr) (void)cudaGraphDestroy(graph);
  }
  (void)cudaGetLastError();  // clears the error of a failed capture
  return made;
}

}  // namespace lowkey
