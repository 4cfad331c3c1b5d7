#ifndef LOWKEY_SERVER_API_PAGE_MESSAGE_JSON_H_
#define LOWKEY_SERVER_API_PAGE_MESSAGE_JSON_H_

#include <google/protobuf/message.h>

#include <nlohmann/json.hpp>

namespace lowkey {

// Returns a message as a JSON object whose names are those of the proto file. Integers of 64 bits
// are numbers, unlike protobuf's own JSON. Optional fields and messages that are not set are left
// out; all other fields are there.
nlohmann::ordered_json MessageJson(const google::protobuf::Message& message);

}  // namespace lowkey

#endif  // LOWKEY_SERVER_API_PAGE_MESSAGE_JSON_H_
