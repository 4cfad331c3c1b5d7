#ifndef LOWKEY_SERVER_REQUEST_RESPONSE_FORMAT_H_
#define LOWKEY_SERVER_REQUEST_RESPONSE_FORMAT_H_

#include <string>
#include <vector>

namespace lowkey {

// The form of every answer to a request: tokens that would leave the form are never drawn. A plain
// description; TextService compiles it and reports what is wrong with it.
struct ResponseFormat {
  enum class Kind {
    kJsonObject,  // any JSON object; `text` is empty
    kJsonSchema,  // JSON that a JSON Schema in `text` accepts
    kRegex,       // a text that the regular expression in `text` matches as a whole
    kChoice,      // one of `choices`
    kGrammar,     // a text of the grammar in `text` (docs/structured_output.md)
  };
  Kind kind = Kind::kJsonObject;
  std::string text = {};
  std::vector<std::string> choices = {};  // kChoice alone
};

}  // namespace lowkey

#endif  // LOWKEY_SERVER_REQUEST_RESPONSE_FORMAT_H_
