#include "server/http/h1_parser.h"

#include <algorithm>
#include <array>
#include <vector>

#include "absl/strings/ascii.h"

namespace lowkey {
namespace {

constexpr size_t kMaxMethodAndVersionBytes = 32;
constexpr size_t kMaxColonAndSpaceBytes = 64;  // of a field's line
constexpr size_t kMaxChunkDigits = 8;
constexpr size_t kMaxExtensionBytes = 256;  // of a chunk; of all trailers, too
// A body's framing may have so many bytes more than the body itself: chunks of one byte are no
// cheap way to keep a server busy.
constexpr uint64_t kMaxFramingBytes = 64 << 10;

constexpr std::array<std::string_view, 7> kMethods = {"GET",    "HEAD",    "POST", "PUT",
                                                      "DELETE", "OPTIONS", "PATCH"};

bool IsTokenByte(char c) {
  constexpr std::string_view kOthers = "!#$%&'*+-.^_`|~";
  return absl::ascii_isalnum(static_cast<unsigned char>(c)) ||
         kOthers.find(c) != std::string_view::npos;
}

bool IsToken(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), IsTokenByte);
}

// Bytes of an authority's host and port, without "@" and the comma.
bool IsHostByte(char c) {
  constexpr std::string_view kOthers = "-._~%!$&'()*+;=:[]";
  return absl::ascii_isalnum(static_cast<unsigned char>(c)) ||
         kOthers.find(c) != std::string_view::npos;
}

bool IsTargetByte(char c) { return c > ' ' && c < '\x7f' && c != '#'; }

bool IsControl(char c) { return absl::ascii_iscntrl(static_cast<unsigned char>(c)) && c != '\t'; }

bool IsDigit(char c) { return c >= '0' && c <= '9'; }

// Nullopt unless `text` is digits alone, at most 18 of them.
std::optional<uint64_t> ParseLength(std::string_view text) {
  if (text.empty() || text.size() > 18) return std::nullopt;
  uint64_t value = 0;
  for (const char c : text) {
    if (!IsDigit(c)) return std::nullopt;
    value = value * 10 + static_cast<uint64_t>(c - '0');
  }
  return value;
}

std::string_view Trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t") - begin + 1);
}

std::string Lowered(std::string_view text) {
  std::string lowered(text);
  absl::AsciiStrToLower(&lowered);
  return lowered;
}

// Whether a field that is a list of tokens has this one.
bool HasToken(const HttpHead& head, std::string_view name, std::string_view token) {
  for (std::string_view rest : head.All(name)) {
    while (!rest.empty()) {
      const size_t comma = std::min(rest.find(','), rest.size());
      if (Lowered(Trimmed(rest.substr(0, comma))) == token) return true;
      rest.remove_prefix(std::min(comma + 1, rest.size()));
    }
  }
  return false;
}

}  // namespace

Http1Parser::Event Http1Parser::Next(std::string_view& bytes, size_t max_body_bytes) {
  while (true) {
    if (state_ == State::kError) return Event::kError;
    if (state_ == State::kEnd) return Finish();
    if (is_in_body_data()) return TakeBody(bytes, max_body_bytes);
    if (!TakeLine(bytes)) return state_ == State::kError ? Event::kError : Event::kNone;
    const Event event = OnLine();
    line_.clear();
    if (event != Event::kNone) return event;
  }
}

bool Http1Parser::is_in_head() const {
  if (state_ == State::kRequestLine) {
    return !line_.empty() || has_carriage_return_ || has_empty_line_;
  }
  return state_ == State::kField;
}

bool Http1Parser::is_in_body() const {
  return state_ != State::kRequestLine && state_ != State::kField && state_ != State::kError;
}

std::optional<uint64_t> Http1Parser::body_left() const {
  if (state_ == State::kLength) return left_;
  if (state_ == State::kEnd) return 0;
  return std::nullopt;
}

bool Http1Parser::TakeLine(std::string_view& bytes) {
  const size_t max_bytes = MaxLineBytes();
  for (size_t i = 0; i < bytes.size(); ++i) {
    const char c = bytes[i];
    if (has_carriage_return_) {
      if (c != '\n') return Fail(400, "a carriage return without a line feed");
      has_carriage_return_ = false;
      bytes.remove_prefix(i + 1);
      return true;
    }
    if (c == '\r') {
      has_carriage_return_ = true;
      continue;
    }
    if (c == '\n') return Fail(400, "a line feed without a carriage return");
    if (IsControl(c)) return Fail(400, "a control character");
    if (line_.size() >= max_bytes) {
      const Http1Error error = LineTooLong();
      return Fail(error.status, error.reason);
    }
    line_.push_back(c);
  }
  bytes = {};
  return false;
}

size_t Http1Parser::MaxLineBytes() const {
  switch (state_) {
    case State::kRequestLine:
      return limits_.max_target_bytes + kMaxMethodAndVersionBytes;
    case State::kField:
      return limits_.max_head_bytes - head_bytes_ + kMaxColonAndSpaceBytes;
    case State::kChunkSize:
      return kMaxChunkDigits + kMaxExtensionBytes;
    case State::kTrailer:
      return kMaxExtensionBytes - trailer_bytes_;
    default:  // kChunkEnd
      return 0;
  }
}

Http1Error Http1Parser::LineTooLong() const {
  switch (state_) {
    case State::kRequestLine:
      return {414, "the request line is too long"};
    case State::kField:
      return {431, "the header fields are too long"};
    case State::kChunkSize:
      return {400, "the chunk's size or extension is too long"};
    case State::kTrailer:
      return {400, "the trailer fields are too long"};
    default:  // kChunkEnd
      return {400, "a chunk is longer than its size"};
  }
}

Http1Parser::Event Http1Parser::OnLine() {
  if (is_in_body()) framing_bytes_ += line_.size() + 2;
  switch (state_) {
    case State::kRequestLine:
      OnRequestLine();
      break;
    case State::kField:
      if (line_.empty()) return OnHeadEnd();
      OnField();
      break;
    case State::kChunkSize:
      OnChunkSize();
      break;
    case State::kTrailer:
      OnTrailer();
      break;
    default:  // kChunkEnd
      state_ = State::kChunkSize;
  }
  if (framing_bytes_ > body_bytes_ + kMaxFramingBytes) Fail(413, "the chunks are too small");
  return state_ == State::kError ? Event::kError : Event::kNone;
}

void Http1Parser::OnRequestLine() {
  const std::string_view line = line_;
  if (line.empty()) {
    if (has_empty_line_) Fail(400, "an empty request line");
    has_empty_line_ = true;
    return;
  }
  const size_t first = line.find(' ');
  const size_t last = line.rfind(' ');
  if (first == last) {  // none, or one
    Fail(400, "a request line has a method, a target and a version");
    return;
  }
  const std::string_view method = line.substr(0, first);
  const std::string_view target = line.substr(first + 1, last - first - 1);
  const std::string_view version = line.substr(last + 1);
  if (!IsToken(method)) {
    Fail(400, "the method is not a token");
  } else if (version.size() != 8 || version.substr(0, 5) != "HTTP/" || !IsDigit(version[5]) ||
             version[6] != '.' || !IsDigit(version[7])) {
    Fail(400, "the request line has no HTTP version");
  } else if (version != "HTTP/1.1" && version != "HTTP/1.0") {
    Fail(505, "the HTTP version is not supported");
  } else if (std::find(kMethods.begin(), kMethods.end(), method) == kMethods.end()) {
    Fail(501, "the method is not supported");
  } else {
    is_http_1_0_ = version == "HTTP/1.0";
    head_ = HttpHead();
    head_.method = method;
    head_bytes_ = 0;
    OnTarget(target);
  }
}

void Http1Parser::OnTarget(std::string_view target) {
  if (target.size() > limits_.max_target_bytes) {
    Fail(414, "the target is too long");
  } else if (!std::all_of(target.begin(), target.end(), IsTargetByte)) {
    Fail(400, "the target has a character that must be encoded");
  } else {
    const std::string_view rest = TakeAuthority(target);
    if (rest.substr(0, 1) != "/" && !(rest == "*" && head_.method == "OPTIONS")) {
      Fail(400, "the target must begin with a slash");
      return;
    }
    const size_t question = rest.find('?');
    head_.path = rest.substr(0, question);
    if (question != std::string_view::npos) head_.query = rest.substr(question + 1);
    state_ = State::kField;
  }
}

// Returns what follows scheme and authority where a target begins with them, as proxies write it
// (RFC 9112, section 3.2.2), and keeps the authority for CheckHost.
std::string_view Http1Parser::TakeAuthority(std::string_view target) {
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (Lowered(target.substr(0, scheme.size())) != scheme) continue;
    target.remove_prefix(scheme.size());
    const size_t end = std::min(target.find('/'), target.size());
    head_.authority = target.substr(0, end);
    const auto& host = head_.authority;
    if (host.empty() || !std::all_of(host.begin(), host.end(), IsHostByte)) return {};
    return end < target.size() ? target.substr(end) : "/";
  }
  return target;
}

void Http1Parser::OnField() {
  const std::string_view line = line_;
  const size_t colon = line.find(':');
  if (colon == std::string_view::npos || !IsToken(line.substr(0, colon))) {
    Fail(400, "a header field's name is not a token, or no colon follows it");
    return;
  }
  const std::string_view value = Trimmed(line.substr(colon + 1));
  const size_t n_bytes = colon + value.size() + 32;
  if (head_.fields.size() >= limits_.max_head_fields) {
    Fail(431, "there are too many header fields");
  } else if (n_bytes > limits_.max_head_bytes - head_bytes_) {
    Fail(431, "the header fields are too long");
  } else {
    head_bytes_ += n_bytes;
    head_.fields.push_back({Lowered(line.substr(0, colon)), std::string(value)});
  }
}

Http1Parser::Event Http1Parser::OnHeadEnd() {
  Framing framing;
  if (!CheckHost() || !CheckFraming(framing) || !CheckExpectations()) return Event::kError;
  const bool closes = HasToken(head_, "connection", "close");
  keeps_alive_ = !closes && (!is_http_1_0_ || HasToken(head_, "connection", "keep-alive"));
  head_.has_body = framing.is_chunked || framing.length.value_or(0) > 0;
  expects_continue_ = expects_continue_ && head_.has_body && !is_http_1_0_;
  std::erase_if(head_.fields, [](const HttpField& field) {
    return field.name == "content-length" || field.name == "transfer-encoding";
  });
  left_ = framing.length.value_or(0);
  body_bytes_ = framing_bytes_ = trailer_bytes_ = 0;
  state_ = framing.is_chunked ? State::kChunkSize : head_.has_body ? State::kLength : State::kEnd;
  std::string().swap(line_);  // an idle connection keeps no memory
  return Event::kHead;
}

bool Http1Parser::CheckHost() {
  const std::vector<std::string_view> hosts = head_.All("host");
  if (hosts.size() > 1) return Fail(400, "there is more than one Host");
  if (hosts.empty()) return is_http_1_0_ || Fail(400, "there is no Host");
  if (!std::all_of(hosts[0].begin(), hosts[0].end(), IsHostByte)) {
    return Fail(400, "the Host is not a host and a port");
  }
  if (!head_.authority.empty() && Lowered(head_.authority) != Lowered(hosts[0])) {
    return Fail(400, "the target names another host than the Host");
  }
  head_.authority = hosts[0];
  return true;
}

bool Http1Parser::CheckFraming(Framing& framing) {
  const std::vector<std::string_view> lengths = head_.All("content-length");
  const std::vector<std::string_view> encodings = head_.All("transfer-encoding");
  if (!lengths.empty() && !encodings.empty()) {
    return Fail(400, "there are both Content-Length and Transfer-Encoding");
  }
  if (lengths.size() > 1) return Fail(400, "there is more than one Content-Length");
  if (!lengths.empty()) {
    framing.length = ParseLength(lengths[0]);
    return framing.length.has_value() || Fail(400, "the Content-Length is not a number");
  }
  if (encodings.empty()) return true;
  if (is_http_1_0_) return Fail(400, "HTTP/1.0 has no Transfer-Encoding");
  if (encodings.size() > 1 || Lowered(encodings[0]) != "chunked") {
    return Fail(400, "the Transfer-Encoding is not chunked");
  }
  framing.is_chunked = true;
  return true;
}

bool Http1Parser::CheckExpectations() {
  expects_continue_ = false;
  for (const std::string_view value : head_.All("expect")) {
    if (Lowered(value) != "100-continue") {
      return Fail(417, "the expectation is not 100-continue");
    }
    expects_continue_ = true;
  }
  for (const std::string_view value : head_.All("content-encoding")) {
    if (Lowered(value) != "identity") {
      return Fail(415, "the Content-Encoding is not identity");
    }
  }
  return true;
}

void Http1Parser::OnChunkSize() {
  const std::string_view line = line_;
  const size_t n_digits = std::min(line.find_first_not_of("0123456789abcdefABCDEF"), line.size());
  if (n_digits < 1 || n_digits > kMaxChunkDigits) {
    Fail(400, "a chunk's size does not have 1 to 8 hexadecimal digits");
    return;
  }
  if (n_digits < line.size() && line[n_digits] != ';') {
    Fail(400, "something other than an extension follows a chunk's size");
    return;
  }
  if (line.size() - n_digits > kMaxExtensionBytes) {
    Fail(400, "the chunk's extension is too long");
    return;
  }
  left_ = 0;
  for (const char c : line.substr(0, n_digits)) {
    const int digit =
        IsDigit(c) ? c - '0' : absl::ascii_tolower(static_cast<unsigned char>(c)) - 'a' + 10;
    left_ = left_ * 16 + static_cast<uint64_t>(digit);
  }
  state_ = left_ > 0 ? State::kChunk : State::kTrailer;
}

void Http1Parser::OnTrailer() {
  if (line_.empty()) {
    state_ = State::kEnd;
    return;
  }
  const std::string_view line = line_;
  const size_t colon = line.find(':');
  if (colon == std::string_view::npos || !IsToken(line.substr(0, colon))) {
    Fail(400, "a trailer field's name is not a token, or no colon follows it");
    return;
  }
  trailer_bytes_ = std::min(trailer_bytes_ + line.size() + 2, kMaxExtensionBytes);
}

Http1Parser::Event Http1Parser::TakeBody(std::string_view& bytes, size_t max_body_bytes) {
  const size_t n_allowed = std::min(bytes.size(), max_body_bytes);
  const size_t n_bytes = static_cast<size_t>(std::min<uint64_t>(n_allowed, left_));
  if (n_bytes == 0) return Event::kNone;
  body_ = bytes.substr(0, n_bytes);
  bytes.remove_prefix(n_bytes);
  left_ -= n_bytes;
  body_bytes_ += n_bytes;
  if (left_ == 0) state_ = state_ == State::kLength ? State::kEnd : State::kChunkEnd;
  return Event::kBody;
}

Http1Parser::Event Http1Parser::Finish() {
  state_ = State::kRequestLine;
  has_empty_line_ = false;
  framing_bytes_ = body_bytes_ = 0;
  return Event::kEnd;
}

bool Http1Parser::Fail(int status, std::string_view reason) {
  error_ = {status, reason};
  state_ = State::kError;
  return false;
}

}  // namespace lowkey
