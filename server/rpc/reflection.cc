#include "server/rpc/reflection.h"

#include <google/protobuf/arena.h>
#include <google/protobuf/descriptor.h>
#include <google/protobuf/descriptor.pb.h>

#include <cstddef>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "grpc/reflection/v1/reflection.pb.h"
#include "grpc/reflection/v1alpha/reflection.pb.h"
#include "server/rpc/wire_check.h"

namespace lowkey {
namespace {

using google::protobuf::Arena;
using google::protobuf::Descriptor;
using google::protobuf::DescriptorPool;
using google::protobuf::FieldDescriptor;
using google::protobuf::FileDescriptor;

// A client that asks on without reading the answers gets no more of them than this.
constexpr size_t kMaxUnsentBytes = size_t{1} << 20;

struct V1 {
  using Request = grpc::reflection::v1::ServerReflectionRequest;
  using Response = grpc::reflection::v1::ServerReflectionResponse;
};

struct V1Alpha {
  using Request = grpc::reflection::v1alpha::ServerReflectionRequest;
  using Response = grpc::reflection::v1alpha::ServerReflectionResponse;
};

// Returns a file as clients read it. Each is written once: a client may ask for thousands.
const std::string& SerializedFile(const FileDescriptor& file) {
  static absl::Mutex mutex;
  static auto& files = *new std::map<const FileDescriptor*, std::string>();
  const absl::MutexLock lock(&mutex);
  const auto known = files.find(&file);
  if (known != files.end()) return known->second;
  google::protobuf::FileDescriptorProto proto;
  file.CopyTo(&proto);
  return files.emplace(&file, proto.SerializeAsString()).first->second;
}

template <typename Version>
class Reflection final : public RpcHandler {
 public:
  using Request = typename Version::Request;
  using Response = typename Version::Response;

  Reflection(const RpcRegistry& registry, RpcStream& stream)
      : registry_(registry), stream_(stream) {}

  void OnMessage(RpcMessage message) override {
    if (is_finished_) return;
    if (stream_.unsent_bytes() > kMaxUnsentBytes) {
      return Finish(absl::ResourceExhaustedError(
          absl::StrCat("stream: ", stream_.unsent_bytes(), " bytes of answers are not read")));
    }
    // Parsing that ends for a lack of memory leaves a message that only an arena can destroy.
    Arena arena;
    auto& request = *Arena::CreateMessage<Request>(&arena);
    if (const absl::Status status = ParseMessage(message.bytes, request); !status.ok()) {
      return Finish(status);
    }
    Response response;
    response.set_valid_host(request.host());
    Answer(request, response);
    const LentRequest lent(request, response);
    stream_.Write(response.SerializeAsString());
  }

  void OnHalfClose() override { Finish(absl::OkStatus()); }

 private:
  // Puts the request into the response, which does not own it.
  class LentRequest {
   public:
    LentRequest(Request& request, Response& response) : response_(response) {
      response_.unsafe_arena_set_allocated_original_request(&request);
    }
    ~LentRequest() { response_.unsafe_arena_release_original_request(); }
    LentRequest(const LentRequest&) = delete;
    LentRequest& operator=(const LentRequest&) = delete;

   private:
    Response& response_;
  };

  // Makes an answer of the type of a field before the response says that it has it: what mutable_
  // leaves where there is no memory cannot be destroyed.
  template <typename Part>
  static std::unique_ptr<Part> Make(const Part&) {
    return std::make_unique<Part>();
  }

  void Finish(const absl::Status& status) {
    if (!std::exchange(is_finished_, true)) stream_.Finish(status);
  }

  void Answer(const Request& request, Response& response) {
    switch (request.message_request_case()) {
      case Request::kListServices: {
        auto list = Make(response.list_services_response());
        for (const std::string& name : registry_.ServiceNames()) {
          list->add_service()->set_name(name);
        }
        return response.set_allocated_list_services_response(list.release());
      }
      case Request::kFileByFilename:
        return AnswerFile(pool_.FindFileByName(request.file_by_filename()), response);
      case Request::kFileContainingSymbol:
        return AnswerFile(pool_.FindFileContainingSymbol(request.file_containing_symbol()),
                          response);
      case Request::kFileContainingExtension: {
        const auto& extension = request.file_containing_extension();
        const Descriptor* type = pool_.FindMessageTypeByName(extension.containing_type());
        const FieldDescriptor* field =
            type == nullptr ? nullptr
                            : pool_.FindExtensionByNumber(type, extension.extension_number());
        return AnswerFile(field == nullptr ? nullptr : field->file(), response);
      }
      case Request::kAllExtensionNumbersOfType:
        return AnswerExtensions(
            pool_.FindMessageTypeByName(request.all_extension_numbers_of_type()), response);
      case Request::MESSAGE_REQUEST_NOT_SET:
        return AnswerError(
            absl::InvalidArgumentError("message_request: not set, expected one request"), response);
    }
  }

  // Sends the file in any case, since the client cannot know which one holds the symbol that it
  // asked for; and those of its imports that this stream has not sent.
  void AnswerFile(const FileDescriptor* file, Response& response) {
    if (file == nullptr) return AnswerNotFound(response);
    std::vector<const FileDescriptor*> files = {file};
    sent_.insert(file);
    auto answer = Make(response.file_descriptor_response());
    for (size_t i = 0; i < files.size(); ++i) {
      for (int k = 0; k < files[i]->dependency_count(); ++k) {
        const FileDescriptor* import = files[i]->dependency(k);
        if (sent_.insert(import).second) files.push_back(import);
      }
      answer->add_file_descriptor_proto(SerializedFile(*files[i]));
    }
    response.set_allocated_file_descriptor_response(answer.release());
  }

  void AnswerExtensions(const Descriptor* type, Response& response) {
    if (type == nullptr) return AnswerNotFound(response);
    auto numbers = Make(response.all_extension_numbers_response());
    numbers->set_base_type_name(type->full_name());
    std::vector<const FieldDescriptor*> extensions;
    pool_.FindAllExtensions(type, &extensions);
    for (const FieldDescriptor* extension : extensions) {
      numbers->add_extension_number(extension->number());
    }
    response.set_allocated_all_extension_numbers_response(numbers.release());
  }

  static void AnswerNotFound(Response& response) {
    AnswerError(absl::NotFoundError("this server has no such declaration"), response);
  }

  static void AnswerError(const absl::Status& status, Response& response) {
    auto error = Make(response.error_response());
    error->set_error_code(static_cast<int>(status.code()));
    error->set_error_message(std::string(status.message()));
    response.set_allocated_error_response(error.release());
  }

  const RpcRegistry& registry_;
  RpcStream& stream_;
  const DescriptorPool& pool_ = *DescriptorPool::generated_pool();
  std::set<const FileDescriptor*> sent_;
  bool is_finished_ = false;
};

template <typename Version>
void AddVersion(RpcRegistry& registry) {
  const FileDescriptor& file = *Version::Request::descriptor()->file();
  registry.Add(
      *file.FindServiceByName("ServerReflection")->FindMethodByName("ServerReflectionInfo"),
      [&registry](RpcStream& stream) {
        return std::make_unique<Reflection<Version>>(registry, stream);
      },
      kSmallMessageBytes);  // a name or two, which each answer repeats
}

}  // namespace

void AddReflection(RpcRegistry& registry) {
  AddVersion<V1>(registry);
  AddVersion<V1Alpha>(registry);
}

}  // namespace lowkey
