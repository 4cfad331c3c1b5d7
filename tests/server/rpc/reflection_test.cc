#include "server/rpc/reflection.h"

#include <gmock/gmock.h>
#include <google/protobuf/descriptor.h>
#include <google/protobuf/descriptor.pb.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "grpc/reflection/v1/reflection.pb.h"
#include "grpc/reflection/v1alpha/reflection.pb.h"
#include "lowkey/v1/generation.pb.h"
#include "lowkey/v1/status.pb.h"
#include "tests/server/rpc/fake_stream.h"

namespace lowkey {
namespace {

using grpc::reflection::v1::ServerReflectionRequest;
using grpc::reflection::v1::ServerReflectionResponse;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

constexpr int kNotFound = 5;

// Both versions have the same bytes.
class RpcReflectionTest : public testing::TestWithParam<const char*> {
 protected:
  RpcReflectionTest() {
    const auto& service =
        *v1::GenerateRequest::descriptor()->file()->FindServiceByName("Generation");
    registry_.Add(*service.method(0), [](RpcStream&) { return nullptr; });
    AddReflection(registry_);
    const RpcMethod* method = registry_.Find(std::string("/grpc.reflection.") + GetParam() +
                                             ".ServerReflection/ServerReflectionInfo");
    LK_CHECK(method != nullptr);
    handler_ = method->make_handler(stream_);
  }

  ServerReflectionResponse Ask(const ServerReflectionRequest& request) {
    const size_t n_before = stream_.written.size();
    handler_->OnMessage({request.SerializeAsString()});
    EXPECT_EQ(stream_.written.size(), n_before + 1);
    ServerReflectionResponse response;
    EXPECT_TRUE(response.ParseFromString(stream_.written.back()));
    EXPECT_EQ(response.original_request().SerializeAsString(), request.SerializeAsString());
    return response;
  }
  ServerReflectionResponse AskFile(const std::string& name) {
    ServerReflectionRequest request;
    request.set_file_by_filename(name);
    return Ask(request);
  }
  ServerReflectionResponse AskSymbol(const std::string& symbol) {
    ServerReflectionRequest request;
    request.set_file_containing_symbol(symbol);
    return Ask(request);
  }
  ServerReflectionResponse AskExtension(const std::string& type, int number) {
    ServerReflectionRequest request;
    request.mutable_file_containing_extension()->set_containing_type(type);
    request.mutable_file_containing_extension()->set_extension_number(number);
    return Ask(request);
  }

  static std::vector<std::string> FileNames(const ServerReflectionResponse& response) {
    std::vector<std::string> names;
    for (const auto& bytes : response.file_descriptor_response().file_descriptor_proto()) {
      google::protobuf::FileDescriptorProto file;
      EXPECT_TRUE(file.ParseFromString(bytes));
      names.push_back(file.name());
    }
    return names;
  }

  RpcRegistry registry_;
  FakeRpcStream stream_;
  std::unique_ptr<RpcHandler> handler_;
};

INSTANTIATE_TEST_SUITE_P(Version, RpcReflectionTest, testing::Values("v1", "v1alpha"));

TEST_P(RpcReflectionTest, ListsTheServicesOfTheRegistry) {
  ServerReflectionRequest request;
  request.set_host("example");
  request.set_list_services("*");
  const ServerReflectionResponse response = Ask(request);
  EXPECT_EQ(response.valid_host(), "example");
  std::vector<std::string> names;
  for (const auto& service : response.list_services_response().service()) {
    names.push_back(service.name());
  }
  EXPECT_THAT(names,
              ElementsAre("grpc.reflection.v1.ServerReflection",
                          "grpc.reflection.v1alpha.ServerReflection", "lowkey.v1.Generation"));
}

TEST_P(RpcReflectionTest, DescribesFilesAsTheyAre) {
  const ServerReflectionResponse response = AskFile("lowkey/v1/generation.proto");
  ASSERT_EQ(response.file_descriptor_response().file_descriptor_proto_size(), 1);
  google::protobuf::FileDescriptorProto expected;
  v1::GenerateRequest::descriptor()->file()->CopyTo(&expected);
  EXPECT_EQ(response.file_descriptor_response().file_descriptor_proto(0),
            expected.SerializeAsString());
}

TEST_P(RpcReflectionTest, FindsTheFileOfASymbol) {
  for (const char* symbol :
       {"lowkey.v1.Generation", "lowkey.v1.Generation.Score", "lowkey.v1.GenerateRequest",
        "lowkey.v1.GenerateRequest.text", "lowkey.v1.FinishReason"}) {
    EXPECT_THAT(FileNames(AskSymbol(symbol)), ElementsAre("lowkey/v1/generation.proto")) << symbol;
  }
  EXPECT_THAT(FileNames(AskSymbol("grpc.reflection.v1alpha.ServerReflection")),
              ElementsAre("grpc/reflection/v1alpha/reflection.proto"));
}

TEST_P(RpcReflectionTest, SendsImportsOncePerStream) {
  ASSERT_NE(v1::StatusDetails::descriptor(), nullptr);
  EXPECT_THAT(FileNames(AskFile("google/protobuf/any.proto")),
              ElementsAre("google/protobuf/any.proto"));
  EXPECT_THAT(FileNames(AskSymbol("lowkey.v1.StatusDetails")),
              ElementsAre("lowkey/v1/status.proto", "google/protobuf/duration.proto"));
  // The file that is asked for comes again: the client may not know that it has the symbol.
  EXPECT_THAT(FileNames(AskSymbol("lowkey.v1.RetryInfo")), ElementsAre("lowkey/v1/status.proto"));
  FakeRpcStream other;
  const auto handler = registry_.Find("/grpc.reflection.v1.ServerReflection/ServerReflectionInfo")
                           ->make_handler(other);
  ServerReflectionRequest request;
  request.set_file_by_filename("lowkey/v1/status.proto");
  handler->OnMessage({request.SerializeAsString()});
  ServerReflectionResponse response;
  ASSERT_TRUE(response.ParseFromString(other.written.at(0)));
  EXPECT_THAT(FileNames(response),
              UnorderedElementsAre("lowkey/v1/status.proto", "google/protobuf/duration.proto",
                                   "google/protobuf/any.proto"));
}

TEST_P(RpcReflectionTest, SaysWhatItDoesNotFind) {
  for (const char* name : {"", ".", "lowkey.v1.Nothing", ".lowkey.v1.Generation",
                           "lowkey/v1/generation.proto", "a\nb"}) {
    EXPECT_EQ(AskSymbol(name).error_response().error_code(), kNotFound) << name;
  }
  for (const char* name : {"", "generation.proto", "/etc/passwd", "lowkey.v1.Generation"}) {
    EXPECT_EQ(AskFile(name).error_response().error_code(), kNotFound) << name;
  }
  EXPECT_EQ(AskExtension("lowkey.v1.Nothing", 1).error_response().error_code(), kNotFound);
  EXPECT_EQ(AskExtension("lowkey.v1.TokenIds", 1).error_response().error_code(), kNotFound);
  ServerReflectionRequest request;
  request.set_all_extension_numbers_of_type("lowkey.v1.Nothing");
  EXPECT_EQ(Ask(request).error_response().error_code(), kNotFound);
  EXPECT_FALSE(stream_.finished.has_value());
}

TEST_P(RpcReflectionTest, KnowsTypesWithoutExtensions) {
  ServerReflectionRequest request;
  request.set_all_extension_numbers_of_type("lowkey.v1.TokenIds");
  const ServerReflectionResponse response = Ask(request);
  EXPECT_EQ(response.all_extension_numbers_response().base_type_name(), "lowkey.v1.TokenIds");
  EXPECT_THAT(response.all_extension_numbers_response().extension_number(), IsEmpty());
}

TEST_P(RpcReflectionTest, AnswersARequestWithoutAQuestion) {
  EXPECT_EQ(Ask(ServerReflectionRequest()).error_response().error_code(), 3);
  EXPECT_FALSE(stream_.finished.has_value());
}

TEST_P(RpcReflectionTest, EndsAtTheHalfClose) {
  AskFile("lowkey/v1/generation.proto");
  handler_->OnHalfClose();
  EXPECT_EQ(stream_.finished, absl::OkStatus());
}

TEST_P(RpcReflectionTest, EndsWithAMessageThatIsNoRequest) {
  handler_->OnMessage({"\x0A\x05"});
  EXPECT_EQ(stream_.finished->code(), absl::StatusCode::kInvalidArgument);
  handler_->OnMessage({""});
  handler_->OnHalfClose();
  EXPECT_THAT(stream_.written, IsEmpty());
}

TEST_P(RpcReflectionTest, BoundsItsAnswers) {
  ServerReflectionRequest request;
  request.set_file_by_filename(std::string(4000, 'a'));
  Ask(request);
  EXPECT_FALSE(stream_.finished.has_value());
  stream_.unsent = (size_t{1} << 20) + 1;
  handler_->OnMessage({request.SerializeAsString()});
  EXPECT_EQ(stream_.finished->code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(stream_.written.size(), 1u);
}

}  // namespace
}  // namespace lowkey
