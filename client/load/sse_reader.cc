#include "client/load/sse_reader.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"

namespace lowkey {
namespace {

constexpr size_t kMaxBytes = size_t{16} << 20;
constexpr std::string_view kData = "data: ";

}  // namespace

absl::Status SseReader::ReadHead() {
  const size_t end = buffer_.find("\r\n\r\n");
  if (end == std::string::npos) return absl::OkStatus();
  const std::string head = absl::AsciiStrToLower(buffer_.substr(0, end + 2));
  if (head.rfind("http/1.1 ", 0) != 0 || !absl::SimpleAtoi(head.substr(9, 3), &http_status_)) {
    return absl::InternalError(absl::StrCat("not HTTP: ", head.substr(0, 64)));
  }
  const size_t length = head.find("\r\ncontent-length:");
  if (length != std::string::npos) {
    const size_t begin = length + 17;
    size_t n = 0;
    if (!absl::SimpleAtoi(head.substr(begin, head.find('\r', begin) - begin), &n)) {
      return absl::InternalError("content-length: not a number");
    }
    n_left_ = n;
  } else if (head.find("\r\ntransfer-encoding: chunked\r\n") == std::string::npos) {
    return absl::InternalError("neither content-length nor chunks");
  }
  buffer_.erase(0, end + 4);
  return absl::OkStatus();
}

bool SseReader::TakeChunk() {
  const size_t line = buffer_.find("\r\n");
  if (line == std::string::npos) return false;
  uint32_t n = 0;
  if (!absl::SimpleHexAtoi(buffer_.substr(0, line), &n) || n > kMaxBytes) {
    is_broken_ = true;
    return false;
  }
  if (buffer_.size() < line + 2 + n + 2) return false;
  TakeBody(std::string_view(buffer_).substr(line + 2, n));
  buffer_.erase(0, line + 2 + n + 2);
  is_done_ = n == 0;
  return !is_done_;
}

void SseReader::TakeBody(std::string_view bytes) {
  if (http_status_ != 200) {
    document_.append(bytes);
    return;
  }
  events_.append(bytes);
  size_t begin = 0;
  for (size_t end; (end = events_.find("\n\n", begin)) != std::string::npos; begin = end + 2) {
    const std::string_view event = std::string_view(events_).substr(begin, end - begin);
    if (event.substr(0, kData.size()) == kData) on_event_(event.substr(kData.size()));
  }
  events_.erase(0, begin);
}

absl::Status SseReader::Add(std::string_view bytes) {
  buffer_.append(bytes);
  if (http_status_ == 0) LK_RETURN_IF_ERROR(ReadHead());
  if (http_status_ != 0 && n_left_.has_value()) {
    const size_t n = std::min(*n_left_, buffer_.size());
    TakeBody(std::string_view(buffer_).substr(0, n));
    buffer_.erase(0, n);
    *n_left_ -= n;
    is_done_ = *n_left_ == 0;
  } else if (http_status_ != 0) {
    while (TakeChunk()) {
    }
  }
  if (is_broken_) return absl::InternalError("a chunk without its length");
  if (buffer_.size() + events_.size() + document_.size() <= kMaxBytes) return absl::OkStatus();
  return absl::InternalError("an event or answer of over 16 MiB");
}

}  // namespace lowkey
