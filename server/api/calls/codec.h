#ifndef LOWKEY_SERVER_API_CALLS_CODEC_H_
#define LOWKEY_SERVER_API_CALLS_CODEC_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "lowkey/v1/generation.pb.h"
#include "server/request/request.h"

namespace lowkey {

// Longer answers, and longer events of a stream, are not sent: an HTTP connection holds little more
// of what waits for its reader.
inline constexpr size_t kMaxAnswerBytes = size_t{12} << 20;

// INVALID_ARGUMENT: the call asked for too much; trying again does not help.
absl::Status AnswerTooLong(size_t n_bytes);

// GenerationCodec says how one protocol writes requests and results. Every protocol's requests
// become the same structs, and its results are made from lowkey.v1's. A codec belongs to one call:
// it may keep what it has read of the request for its results. Read runs first, on a worker, or on
// the call's loop where a message is small; the others run on the loop. All may throw
// std::bad_alloc, which ends the call.
class GenerationCodec {
 public:
  virtual ~GenerationCodec() = default;

  // Returns the request without its caller (tenant, cancellation, the call's deadline).
  // INVALID_ARGUMENT names the field.
  virtual absl::StatusOr<GenerationRequest> Read(const std::string& message) = 0;

  // Returns the bytes of a stream's next event; empty: nothing is sent. Neighboring deltas of one
  // choice come joined when the reader is slow.
  virtual std::string Write(const v1::GenerateEvent& event) = 0;
  // Returns the bytes that Write kept back to join them with the next event. Is called when no
  // event waits; the next one may be long in coming.
  virtual std::string Flush() { return ""; }

  // Returns the size of the events that Write keeps for an answer at the end.
  virtual size_t n_kept_bytes() const { return 0; }

  // Returns the whole answer of a call without a stream.
  virtual std::string Write(const v1::GenerateResponse& response) = 0;
};
using MakeGenerationCodec = std::function<std::unique_ptr<GenerationCodec>()>;

class ScoreCodec {
 public:
  virtual ~ScoreCodec() = default;
  virtual absl::StatusOr<ScoreRequest> Read(const std::string& message) = 0;
  virtual std::string Write(const v1::ScoreResponse& response) = 0;
};
using MakeScoreCodec = std::function<std::unique_ptr<ScoreCodec>()>;

}  // namespace lowkey

#endif  // LOWKEY_SERVER_API_CALLS_CODEC_H_
