#include "server/http/h1_writer.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace lowkey {
namespace {

constexpr size_t kKeptBytes = 4 << 10;  // of memory that an empty buffer keeps

std::string_view ReasonPhrase(int status) {
  struct Phrase {
    int status;
    std::string_view text;
  };
  static constexpr Phrase kPhrases[] = {
      {200, "OK"},
      {201, "Created"},
      {202, "Accepted"},
      {204, "No Content"},
      {206, "Partial Content"},
      {301, "Moved Permanently"},
      {302, "Found"},
      {303, "See Other"},
      {304, "Not Modified"},
      {307, "Temporary Redirect"},
      {308, "Permanent Redirect"},
      {400, "Bad Request"},
      {401, "Unauthorized"},
      {403, "Forbidden"},
      {404, "Not Found"},
      {405, "Method Not Allowed"},
      {406, "Not Acceptable"},
      {408, "Request Timeout"},
      {409, "Conflict"},
      {410, "Gone"},
      {411, "Length Required"},
      {412, "Precondition Failed"},
      {413, "Content Too Large"},
      {414, "URI Too Long"},
      {415, "Unsupported Media Type"},
      {417, "Expectation Failed"},
      {422, "Unprocessable Content"},
      {429, "Too Many Requests"},
      {431, "Request Header Fields Too Large"},
      {499, "Client Closed Request"},
      {500, "Internal Server Error"},
      {501, "Not Implemented"},
      {502, "Bad Gateway"},
      {503, "Service Unavailable"},
      {504, "Gateway Timeout"},
      {505, "HTTP Version Not Supported"},
      {507, "Insufficient Storage"},
  };
  for (const Phrase& phrase : kPhrases) {
    if (phrase.status == status) return phrase.text;
  }
  return "Status";
}

// Whether the session writes this field itself.
bool IsOwnField(std::string_view name) {
  return name == "date" || name == "content-length" || name == "transfer-encoding" ||
         name == "connection" || name == "keep-alive";
}

// Appends a value; what could end its line becomes a space.
void AppendValue(std::string_view value, std::string& out) {
  for (const char c : value) out += c == '\r' || c == '\n' || c == '\0' ? ' ' : c;
}

}  // namespace

std::string Http1AnswerHead(int status, const HttpFields& fields, std::string_view date,
                            std::string_view own_fields) {
  std::string head = absl::StrCat("HTTP/1.1 ", status, " ");
  head.append(ReasonPhrase(status)).append("\r\nDate: ").append(date).append("\r\n");
  for (const HttpField& field : fields) {
    if (IsOwnField(field.name)) continue;
    AppendValue(field.name, head);
    head += ": ";
    AppendValue(field.value, head);
    head += "\r\n";
  }
  return head.append(own_fields).append("\r\n");
}

bool AnswerBuffer::Append(std::initializer_list<std::string_view> pieces) {
  size_t n_bytes = 0;
  for (const std::string_view piece : pieces) n_bytes += piece.size();
  if (n_bytes > max_bytes_ || size() > max_bytes_ - n_bytes) return false;
  bytes_.reserve(bytes_.size() + n_bytes);  // first what may throw
  if (!budget_.Take(static_cast<int64_t>(n_bytes))) return false;
  for (const std::string_view piece : pieces) bytes_ += piece;
  return true;
}

void AnswerBuffer::Take(size_t n_bytes, std::string& out) {
  const size_t n_taken = std::min(n_bytes, size());
  out.append(bytes_, begin_, n_taken);
  begin_ += n_taken;
  budget_.Give(static_cast<int64_t>(n_taken));
  if (empty()) {
    Clear();
  } else if (begin_ > kKeptBytes && begin_ >= bytes_.size() / 2) {
    bytes_.erase(0, begin_);
    begin_ = 0;
  }
}

void AnswerBuffer::Clear() {
  budget_.Give(static_cast<int64_t>(size()));
  bytes_.clear();
  if (bytes_.capacity() > kKeptBytes) std::string().swap(bytes_);
  begin_ = 0;
}

}  // namespace lowkey
