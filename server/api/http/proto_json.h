#ifndef LOWKEY_SERVER_API_HTTP_PROTO_JSON_H_
#define LOWKEY_SERVER_API_HTTP_PROTO_JSON_H_

#include <google/protobuf/message.h>

#include <nlohmann/json.hpp>
#include <string>

#include "absl/status/status.h"
#include "server/api/http/json_writer.h"

namespace lowkey {

// The JSON form of lowkey.v1's messages: the fields' own names, 64-bit integers as numbers, enum
// values by name, maps as objects, and lowkey.v1.TokenIds as an array of ids.

// Writes every field but the optional ones and messages that are not set.
void WriteProto(const google::protobuf::Message& message, JsonWriter& writer);

// Returns what WriteProto writes.
nlohmann::ordered_json ProtoJson(const google::protobuf::Message& message);

// Sets the fields of `message` that an object names; null means absent. INVALID_ARGUMENT naming the
// field after `name` ("lowkey.attention"; empty: none): of another type, out of its type's range,
// or unknown (code unknown_parameter). A text field takes a number too: options such as a rank are
// either.
absl::Status ReadProto(const nlohmann::json& object, const std::string& name,
                       google::protobuf::Message& message);

}  // namespace lowkey

#endif  // LOWKEY_SERVER_API_HTTP_PROTO_JSON_H_
