#ifndef LOWKEY_SERVER_API_OPENAI_TOOLS_CALL_SCANNER_H_
#define LOWKEY_SERVER_API_OPENAI_TOOLS_CALL_SCANNER_H_

#include <cstddef>
#include <string>

#include "server/api/openai/tools/json_scan.h"

namespace lowkey {

// A longer name is none.
inline constexpr size_t kMaxToolNameBytes = 256;

struct CallRules {
  // An object without arguments is no call, rather than one with none.
  bool needs_arguments = false;
  // An object with other members than name, arguments (or parameters), type and id is no call.
  bool only_known_members = false;
};

// Reads a call byte by byte: a JSON object with a name and arguments, which are an object, a string
// that holds one, or null. Both orders will do; arguments that come first wait for the name.
class CallScanner {
 public:
  explicit CallScanner(CallRules rules = {}) : rules_(rules) {}

  // Takes a byte from the object's brace on; white space before it is taken too. kDone: the byte
  // closes the object. kError: the byte cannot belong to a call, or it would close one that is
  // none. Appends what the byte adds to the arguments once the call has begun.
  Scan Add(char c, std::string& arguments);

  // Returns whether the name is known and the arguments have begun.
  bool has_begun() const { return has_begun_; }
  const std::string& name() const { return name_; }

 private:
  enum class State {
    kOpen,
    kFirstKey,
    kKey,
    kInKey,
    kColon,
    kValue,
    kName,
    kObject,
    kText,
    kOther,
    kAfterValue
  };

  Scan AddToKey(char c);
  Scan BeginValue(char c, std::string& arguments);
  Scan AddToName(char c, std::string& arguments);
  Scan AddToArguments(char c, std::string& arguments);
  Scan AddToOther(char c, std::string& arguments);
  Scan AddAfterValue(char c, std::string& arguments);
  Scan Close(std::string& arguments);
  bool IsKnownKey() const;
  void BeginIfReady(std::string& arguments);

  const CallRules rules_;
  State state_ = State::kOpen;
  std::string key_, name_;
  std::string waiting_;  // arguments that came before the name
  bool has_name_ = false, has_arguments_ = false, has_begun_ = false;
  JsonStringScanner string_;
  JsonValueScanner value_;
};

}  // namespace lowkey

#endif  // LOWKEY_SERVER_API_OPENAI_TOOLS_CALL_SCANNER_H_
