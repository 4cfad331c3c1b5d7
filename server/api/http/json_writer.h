#ifndef LOWKEY_SERVER_API_HTTP_JSON_WRITER_H_
#define LOWKEY_SERVER_API_HTTP_JSON_WRITER_H_

#include <cstdint>
#include <string>
#include <string_view>

namespace lowkey {

// Appends JSON to a string, without spaces. Commas come by themselves; the caller keeps brackets
// balanced. A number is written as the shortest text that reads back as the same number of its
// type, so that equal numbers are equal texts everywhere in an answer.
class JsonWriter {
 public:
  // `out` must outlive the writer.
  explicit JsonWriter(std::string& out) : out_(out) {}

  JsonWriter& BeginObject() { return Open('{'); }
  JsonWriter& EndObject() { return Close('}'); }
  JsonWriter& BeginArray() { return Open('['); }
  JsonWriter& EndArray() { return Close(']'); }

  // The key of the next value. It needs no escapes unless it is a client's or a model's text.
  JsonWriter& Key(std::string_view key);

  // Bytes that are not UTF-8 become U+FFFD.
  JsonWriter& Text(std::string_view text);
  JsonWriter& Int(int64_t value);
  JsonWriter& Unsigned(uint64_t value);
  JsonWriter& Bool(bool value) { return Raw(value ? "true" : "false"); }
  JsonWriter& Null() { return Raw("null"); }
  // Minus infinity is written as -9999, as other servers write it; other numbers that are not
  // finite become null.
  JsonWriter& Float(float value);
  JsonWriter& Double(double value);

  // A value that is JSON already.
  JsonWriter& Raw(std::string_view json);

 private:
  JsonWriter& Open(char bracket);
  JsonWriter& Close(char bracket);
  void BeginValue();
  void AppendText(std::string_view text);
  template <typename Number>
  JsonWriter& Shortest(Number value);

  std::string& out_;
  bool needs_comma_ = false;
};

}  // namespace lowkey

#endif  // LOWKEY_SERVER_API_HTTP_JSON_WRITER_H_
