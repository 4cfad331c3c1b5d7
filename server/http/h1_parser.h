#ifndef LOWKEY_SERVER_HTTP_H1_PARSER_H_
#define LOWKEY_SERVER_HTTP_H1_PARSER_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "server/http/exchange.h"
#include "server/http/limits.h"

namespace lowkey {

// A request that breaks a rule: the status that answers it, and the rule. The text is static.
struct Http1Error {
  int status = 0;
  std::string_view reason = {};
};

// Parses a connection's requests (RFC 9112), strictly: what two servers could read in two ways is
// refused. The result does not depend on how the bytes are cut into pieces. It holds one line and
// one head at most.
class Http1Parser {
 public:
  enum class Event {
    kNone,   // needs more bytes, or to be allowed more of the body
    kHead,   // a head is whole: TakeHead
    kBody,   // more of the body: body
    kEnd,    // the body is whole; follows kHead at once if there is none
    kError,  // a rule is broken: error. The parser takes nothing more.
  };

  // `limits` must outlive the parser.
  explicit Http1Parser(const HttpLimits& limits) : limits_(limits) {}

  // Takes bytes off the front of `bytes` until there is an event. kNone leaves bytes only when
  // they are a body's and max_body_bytes is 0.
  Event Next(std::string_view& bytes, size_t max_body_bytes);

  // After kHead, once.
  HttpHead TakeHead() { return std::move(head_); }
  // After kBody: a part of Next's bytes, at most max_body_bytes of them.
  std::string_view body() const { return body_; }
  // After kError.
  const Http1Error& error() const { return error_; }

  // Returns whether a head has begun and is not whole.
  bool is_in_head() const;
  // Returns whether kHead was given, and kEnd was not.
  bool is_in_body() const;
  // Returns whether the next byte is one of the body's and not of its framing.
  bool is_in_body_data() const { return state_ == State::kLength || state_ == State::kChunk; }
  // Bytes of the body that are left, if its length is known. Within a body.
  std::optional<uint64_t> body_left() const;

  // These describe the last head.
  bool is_http_1_0() const { return is_http_1_0_; }
  bool keeps_alive() const { return keeps_alive_; }  // the client can send another request
  bool expects_continue() const { return expects_continue_; }

 private:
  enum class State {
    kRequestLine,
    kField,
    kLength,  // within a body of a known length
    kChunkSize,
    kChunk,
    kChunkEnd,  // the line's end after a chunk
    kTrailer,
    kEnd,
    kError,
  };
  // Framing says how a body is framed, by the fields of a head.
  struct Framing {
    std::optional<uint64_t> length = std::nullopt;
    bool is_chunked = false;
  };

  // Takes a line's bytes into line_. True when the line is whole; line_ is without its end then.
  bool TakeLine(std::string_view& bytes);
  size_t MaxLineBytes() const;
  Http1Error LineTooLong() const;
  // Handles line_. Only kHead, kNone and kError are returned; kNone means to go on.
  Event OnLine();
  void OnRequestLine();
  void OnTarget(std::string_view target);
  std::string_view TakeAuthority(std::string_view target);
  void OnField();
  Event OnHeadEnd();
  // The checks of a whole head. All return false after Fail.
  bool CheckHost();
  bool CheckFraming(Framing& framing);
  bool CheckExpectations();
  void OnChunkSize();
  void OnTrailer();
  Event TakeBody(std::string_view& bytes, size_t max_body_bytes);
  Event Finish();
  bool Fail(int status, std::string_view reason);

  const HttpLimits& limits_;
  State state_ = State::kRequestLine;
  std::string line_;
  bool has_carriage_return_ = false;  // the line's last byte was one
  bool has_empty_line_ = false;       // one came before the request line
  HttpHead head_;
  size_t head_bytes_ = 0;  // as the limit counts them
  bool is_http_1_0_ = false;
  bool keeps_alive_ = false;
  bool expects_continue_ = false;
  uint64_t left_ = 0;  // of the body or the chunk
  uint64_t body_bytes_ = 0;
  uint64_t framing_bytes_ = 0;  // of chunks' sizes, ends and trailers
  size_t trailer_bytes_ = 0;
  std::string_view body_;
  Http1Error error_;
};

}  // namespace lowkey

#endif  // LOWKEY_SERVER_HTTP_H1_PARSER_H_
