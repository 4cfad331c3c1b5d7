#include "server/api/openai/score.h"

#include <utility>

#include "engine/base/status_macros.h"
#include "server/api/http/json_writer.h"
#include "server/api/http/proto_json.h"
#include "server/api/lowkey/convert_request.h"
#include "server/api/openai/model_names.h"
#include "server/api/openai/requests/fields.h"

namespace lowkey {
namespace {

class Codec final : public ScoreCodec {
 public:
  explicit Codec(const TextService& service) : service_(service) {}

  absl::StatusOr<ScoreRequest> Read(const std::string& message) override {
    LK_ASSIGN_OR_RETURN(const nlohmann::json object, ParseBody(message));
    v1::ScoreRequest proto;
    LK_RETURN_IF_ERROR(ReadProto(object, "", proto));
    LK_ASSIGN_OR_RETURN(ScoreRequest request, FromProto(proto));
    if (request.model.empty()) return request;
    LK_ASSIGN_OR_RETURN(ModelChoice choice, ResolveModel(service_, request.model));
    request.model.clear();
    if (choice.mechanism.has_value()) request.attention.mechanism = std::move(choice.mechanism);
    return request;
  }

  std::string Write(const v1::ScoreResponse& response) override {
    std::string json;
    JsonWriter writer(json);
    WriteProto(response, writer);
    return json;
  }

 private:
  const TextService& service_;
};

}  // namespace

MakeHttpHandler ScoreJsonHandler(const GenerationContext& context) {
  return [make = ScoreHandler(context, "lowkey/score", [&service = context.service] {
            return std::make_unique<Codec>(service);
          })](HttpStream& stream) { return make(stream); };
}

}  // namespace lowkey
