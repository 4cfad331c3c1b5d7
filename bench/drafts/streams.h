#ifndef LOWKEY_BENCH_DRAFTS_STREAMS_H_
#define LOWKEY_BENCH_DRAFTS_STREAMS_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/runtime/engine.h"

namespace lowkey {

struct StreamOutcome {
  std::vector<int32_t> tokens;
  FinalEvent event;
};

// Submits the request n_streams times, each with a seed of its own, and waits for all. Errors are
// those of Engine::Submit and of the first failed stream.
absl::StatusOr<std::vector<StreamOutcome>> RunStreams(Engine& engine, const EngineRequest& request,
                                                      int n_streams);

}  // namespace lowkey

#endif  // LOWKEY_BENCH_DRAFTS_STREAMS_H_
