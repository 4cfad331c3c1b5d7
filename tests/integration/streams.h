#ifndef LOWKEY_TESTS_INTEGRATION_STREAMS_H_
#define LOWKEY_TESTS_INTEGRATION_STREAMS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "tests/integration/running_server.h"

namespace lowkey {

struct Streamed {
  std::string text;
  std::vector<int32_t> tokens;
  std::vector<float> logprobs;
  int n_final = 0;
  grpc::Status status;
  bool operator==(const Streamed& other) const {
    return text == other.text && tokens == other.tokens && logprobs == other.logprobs;
  }
};

Streamed Stream(const RunningServer& server, const v1::GenerateRequest& request);

// Prompts of different lengths, mechanisms and ways of sampling.
v1::GenerateRequest MixedRequest(int i);

}  // namespace lowkey

#endif  // LOWKEY_TESTS_INTEGRATION_STREAMS_H_
