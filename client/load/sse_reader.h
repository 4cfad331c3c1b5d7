#ifndef LOWKEY_CLIENT_LOAD_SSE_READER_H_
#define LOWKEY_CLIENT_LOAD_SSE_READER_H_

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace lowkey {

// Reads one answer over HTTP/1.1 piece by piece: a stream of server-sent events in chunks, or a
// document of known length.
class SseReader {
 public:
  // Called with the data of each event of an answer of status 200.
  using OnEvent = std::function<void(std::string_view data)>;

  explicit SseReader(OnEvent on_event) : on_event_(std::move(on_event)) {}

  // INTERNAL for what is no such answer, or is longer than 16 MiB between two events.
  absl::Status Add(std::string_view bytes);

  // Whether the answer is whole; the connection can take another request then.
  bool is_done() const { return is_done_; }
  // 0 before the head.
  int http_status() const { return http_status_; }
  // The body of an answer of another status than 200.
  const std::string& document() const { return document_; }

 private:
  absl::Status ReadHead();
  // Takes what has come of the body. Returns false when more must come first.
  bool TakeChunk();
  void TakeBody(std::string_view bytes);

  const OnEvent on_event_;
  std::string buffer_;  // bytes that wait for the rest of their unit
  std::string events_;  // the beginning of an event
  std::string document_;
  int http_status_ = 0;
  std::optional<size_t> n_left_;  // of a body of known length
  bool is_broken_ = false, is_done_ = false;
};

}  // namespace lowkey

#endif  // LOWKEY_CLIENT_LOAD_SSE_READER_H_
