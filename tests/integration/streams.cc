#include "tests/integration/streams.h"

namespace lowkey {

Streamed Stream(const RunningServer& server, const v1::GenerateRequest& request) {
  grpc::ClientContext context;
  auto reader = server.generation->GenerateStream(&context, request);
  Streamed streamed;
  v1::GenerateEvent event;
  while (reader->Read(&event)) {
    streamed.text += event.delta().text();
    for (const v1::Token& token : event.delta().tokens()) {
      streamed.tokens.push_back(token.token_id());
      streamed.logprobs.push_back(token.logprob());
    }
    streamed.n_final += event.has_final();
  }
  streamed.status = reader->Finish();
  return streamed;
}

v1::GenerateRequest MixedRequest(int i) {
  v1::GenerateRequest request;
  for (int t = 0; t < 5 + 37 * (i % 8); ++t) {
    request.mutable_token_ids()->add_ids(3 + (i * 131 + t * 17) % 4000);
  }
  request.set_max_new_tokens(24 + i);
  request.set_ignore_eos(true);
  request.set_logprobs(0);
  request.mutable_sampling()->set_temperature(i % 3 == 0 ? 0.0f : 0.9f);
  request.mutable_sampling()->set_seed(static_cast<uint64_t>(100 + i));
  if (i % 4 == 2) {
    request.mutable_attention()->set_mechanism("taylorshift");
    request.mutable_attention()->set_form(i % 8 == 2 ? "recurrent" : "auto");
    request.mutable_attention()->set_variant(i % 16 < 8 ? "normalized" : "plain");
  }
  constexpr const char* kBundled[] = {"efficient", "optimised", "super", "lasso"};
  if (i % 8 == 4) request.mutable_attention()->set_mechanism(kBundled[i / 8 % 4]);
  if (i % 2 == 0) return request;
  request.mutable_attention()->set_mechanism("atp");
  request.mutable_attention()->set_block_tokens(64);
  request.mutable_attention()->set_window_blocks(i % 4 == 1 ? 0 : 1);
  request.mutable_attention()->set_rank(i % 4 == 1 ? "8" : "1/2");
  request.mutable_attention()->set_basis(i % 8 < 4 ? "layer" : "kv");
  request.mutable_attention()->set_prefill(i % 8 == 1 ? "compressed" : "exact");
  return request;
}

}  // namespace lowkey
