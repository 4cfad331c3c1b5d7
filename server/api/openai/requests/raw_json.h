#ifndef LOWKEY_SERVER_API_OPENAI_REQUESTS_RAW_JSON_H_
#define LOWKEY_SERVER_API_OPENAI_REQUESTS_RAW_JSON_H_

#include <string>
#include <string_view>
#include <vector>

namespace lowkey {

// Returns the text of an object's member, as the client wrote it: the order of keys matters in
// schemas and tools, and a parsed object has lost it. `object` must be an object that ParseBody
// accepts, or a part of one. Empty: there is no such member.
std::string_view MemberText(std::string_view object, std::string_view key);

// Returns an object's text without a member. `object` is as MemberText's.
std::string WithoutMember(std::string_view object, std::string_view key);

// Returns the texts of an array's elements; none if `array` is no array.
std::vector<std::string_view> ElementTexts(std::string_view array);

}  // namespace lowkey

#endif  // LOWKEY_SERVER_API_OPENAI_REQUESTS_RAW_JSON_H_
