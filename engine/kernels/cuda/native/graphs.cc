#include "engine/kernels/cuda/native/graphs.h"

namespace lowkey {
namespace {

// A graph takes some kilobytes of host and device memory for each of its kernels.
constexpr size_t kMostGraphs = 64;

}  // namespace

Graphs::~Graphs() {
  for (const auto& [key, kept] : kept_) {
    if (kept.graph != nullptr) (void)cudaGraphExecDestroy(kept.graph);
  }
}

bool Graphs::Launch(uint64_t key, cudaError_t& error) {
  const auto found = kept_.find(key);
  if (found == kept_.end()) return false;
  uses_.splice(uses_.begin(), uses_, found->second.use);
  if (found->second.graph == nullptr) return false;
  error = cudaGraphLaunch(found->second.graph, stream_);
  return true;
}

void Graphs::Capture(uint64_t key, absl::FunctionRef<bool()> queue) {
  if (kept_.size() == kMostGraphs) Forget(uses_.back());
  const cudaGraphExec_t graph = Instantiate(queue);
  uses_.push_front(key);
  kept_[key] = {graph, uses_.begin()};
}

void Graphs::Forget(uint64_t key) {
  const auto found = kept_.find(key);
  if (found->second.graph != nullptr) {
    (void)cudaStreamSynchronize(stream_);  // the graph may be running
    (void)cudaGraphExecDestroy(found->second.graph);
  }
  uses_.erase(found->second.use);
  kept_.erase(found);
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
