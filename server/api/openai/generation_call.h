#ifndef LOWKEY_SERVER_API_OPENAI_GENERATION_CALL_H_
#define LOWKEY_SERVER_API_OPENAI_GENERATION_CALL_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "lowkey/v1/generation.pb.h"
#include "server/api/calls/calls.h"
#include "server/api/http/http_call.h"
#include "server/api/openai/error_names.h"
#include "server/request/request.h"

namespace lowkey {

// Writes the answer to one call, which may stand for several prompts. Is used on the call's loop,
// one call at a time. All methods may throw std::bad_alloc, which ends the call.
class AnswerWriter {
 public:
  virtual ~AnswerWriter() = default;

  // Returns the bytes of a prompt's next event in a stream; nothing is sent where they are empty.
  virtual std::string Write(size_t prompt, const v1::GenerateEvent& event) = 0;
  // Returns what Write kept back (see GenerationCodec::Flush).
  virtual std::string Flush(size_t prompt) = 0;
  // Returns the bytes of a stream after all prompts' events.
  virtual std::string End() = 0;
  // Returns the event that ends a stream with an error, whatever came before it.
  virtual std::string Error(const absl::Status& status);

  // Takes a prompt's result for an answer that is not streamed.
  virtual void Add(size_t prompt, const v1::GenerateResponse& response) = 0;
  // Returns how long the results that were added are, where there may be many.
  virtual size_t n_added_bytes() const { return 0; }
  // Returns the whole answer, once every prompt's result was added.
  virtual std::string Whole() = 0;
};

// Generations holds what a body asks for.
struct Generations {
  bool is_stream = false;
  std::string id;                                // becomes the answer's header field x-request-id
  std::vector<GenerationRequest> requests = {};  // one per prompt, without their caller
  absl::Time deadline = absl::InfiniteFuture();
  std::shared_ptr<AnswerWriter> writer = nullptr;
  FieldNames names = FieldNames::kChat;  // of the engine's errors
};

// Reads a body, on a worker. `call` is asked whether somebody still waits.
using ReadGenerations = std::function<absl::StatusOr<Generations>(
    const RpcContext& context, const CallState& call, const std::string& body)>;

// Makes handlers that read the body, submit a request per prompt and join their results; the first
// error ends all of them. `method` names the calls in the log. The context must outlive them.
MakeHttpHandler GenerationHandler(const GenerationContext& context, std::string method,
                                  ReadGenerations read);

}  // namespace lowkey

#endif  // LOWKEY_SERVER_API_OPENAI_GENERATION_CALL_H_
