#include "server/api/http/json_writer.h"

#include <array>
#include <charconv>
#include <cmath>

#include "tokenizer/utf8.h"

namespace lowkey {
namespace {
constexpr char kHexDigits[] = "0123456789abcdef";

void AppendEscaped(char c, std::string& out) {
  switch (c) {
    case '"':
      out += "\\\"";
      return;
    case '\\':
      out += "\\\\";
      return;
    case '\n':
      out += "\\n";
      return;
    case '\r':
      out += "\\r";
      return;
    case '\t':
      out += "\\t";
      return;
    default:
      out += "\\u00";
      out += kHexDigits[static_cast<unsigned char>(c) >> 4];
      out += kHexDigits[c & 15];
  }
}

bool NeedsEscape(char c) {
  return static_cast<unsigned char>(c) < 0x20 || c == '"' || c == '\\' || c == '\x7f';
}

}  // namespace

void JsonWriter::BeginValue() {
  if (needs_comma_) out_ += ',';
  needs_comma_ = true;
}

JsonWriter& JsonWriter::Open(char bracket) {
  BeginValue();
  out_ += bracket;
  needs_comma_ = false;
  return *this;
}

JsonWriter& JsonWriter::Close(char bracket) {
  out_ += bracket;
  needs_comma_ = true;
  return *this;
}

void JsonWriter::AppendText(std::string_view text) {
  out_ += '"';
  while (!text.empty()) {
    const size_t n_valid = FindInvalidUtf8(text).value_or(text.size());
    size_t begin = 0;
    for (size_t i = 0; i < n_valid; ++i) {
      if (!NeedsEscape(text[i])) continue;
      out_ += text.substr(begin, i - begin);
      AppendEscaped(text[i], out_);
      begin = i + 1;
    }
    out_ += text.substr(begin, n_valid - begin);
    if (n_valid == text.size()) break;
    out_ += kReplacementChar;
    text.remove_prefix(n_valid + 1);
  }
  out_ += '"';
}

JsonWriter& JsonWriter::Key(std::string_view key) {
  BeginValue();
  AppendText(key);
  out_ += ':';
  needs_comma_ = false;
  return *this;
}

JsonWriter& JsonWriter::Text(std::string_view text) {
  BeginValue();
  AppendText(text);
  return *this;
}

template <typename Number>
JsonWriter& JsonWriter::Shortest(Number value) {
  BeginValue();
  std::array<char, 64> buffer;
  const std::to_chars_result end =
      std::to_chars(buffer.data(), buffer.data() + buffer.size(), value);
  out_.append(buffer.data(), end.ptr);
  return *this;
}

JsonWriter& JsonWriter::Int(int64_t value) { return Shortest(value); }
JsonWriter& JsonWriter::Unsigned(uint64_t value) { return Shortest(value); }

JsonWriter& JsonWriter::Float(float value) {
  if (std::isfinite(value)) return Shortest(value);
  return Raw(value < 0 ? "-9999" : "null");
}

JsonWriter& JsonWriter::Double(double value) {
  if (std::isfinite(value)) return Shortest(value);
  return Raw(value < 0 ? "-9999" : "null");
}

JsonWriter& JsonWriter::Raw(std::string_view json) {
  BeginValue();
  out_ += json;
  return *this;
}

}  // namespace lowkey
