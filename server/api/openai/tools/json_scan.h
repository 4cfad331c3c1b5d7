#ifndef LOWKEY_SERVER_API_OPENAI_TOOLS_JSON_SCAN_H_
#define LOWKEY_SERVER_API_OPENAI_TOOLS_JSON_SCAN_H_

#include <cstdint>
#include <string>

namespace lowkey {

// Scan says what a byte was to a scanner. kPast: the value has ended before the byte, which is not
// its own.
enum class Scan { kMore, kDone, kPast, kError };

inline bool IsJsonSpace(char c) { return c == ' ' || c == '\t' || c == '\r' || c == '\n'; }

// Reads a JSON string byte by byte, from behind its opening quotation mark.
class JsonStringScanner {
 public:
  // Appends what the byte completes to `decoded`, as UTF-8. kDone: the byte closes the string.
  // kError: a control character, a wrong escape, or half of a surrogate pair.
  Scan Add(char c, std::string& decoded);

 private:
  enum class State { kText, kEscape, kHex };

  Scan AddEscape(char c, std::string& decoded);
  Scan AddHex(char c, std::string& decoded);

  State state_ = State::kText;
  int n_digits_ = 0;
  uint32_t unit_ = 0;            // of \uXXXX
  uint32_t high_surrogate_ = 0;  // waits for its other half; 0: none
};

// Checks one JSON value byte by byte, of at most 64 levels. White space before it is taken.
class JsonValueScanner {
 public:
  // kDone: the byte ends the value. A number ends only before another byte (kPast).
  Scan Add(char c);

 private:
  enum class State {
    kValue,
    kFirstElement,
    kFirstKey,
    kKey,
    kColon,
    kAfterValue,
    kString,
    kLiteral,
    kMinus,
    kZero,
    kDigits,
    kPoint,
    kFraction,
    kExponent,
    kSign,
    kExponentDigits
  };

  Scan Begin(char c);
  Scan Open(char c);
  Scan Close(char c);
  Scan AddToString(char c);
  Scan AddToLiteral(char c);
  Scan AddToNumber(char c);
  Scan AddAfterValue(char c);
  // The value that was being read has ended.
  Scan EndValue();

  static constexpr int kMaxDepth = 64;

  State state_ = State::kValue;
  uint64_t is_object_ = 0;  // a bit for each open container, the innermost is the lowest
  int depth_ = 0;
  bool is_key_ = false;  // of kString
  JsonStringScanner string_;
  std::string scratch_;
  const char* literal_ = nullptr;  // what is left of true, false or null
};

}  // namespace lowkey

#endif  // LOWKEY_SERVER_API_OPENAI_TOOLS_JSON_SCAN_H_
