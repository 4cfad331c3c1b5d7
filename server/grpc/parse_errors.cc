#include "server/grpc/parse_errors.h"

#include <google/protobuf/stubs/logging.h>

#include <cstdio>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

namespace lowkey {
namespace {

using grpc::experimental::InterceptionHookPoints;

// Messages name the refused value. Past some 8 KiB a client would see gRPC's own complaint about
// the size of its metadata, in which every byte that is not ASCII counts three times.
constexpr size_t kMaxMessageBytes = 1024;

std::string Clipped(std::string message) {
  if (message.size() <= kMaxMessageBytes) return message;
  size_t end = kMaxMessageBytes;
  while (end > 0 && (message[end] & 0xC0) == 0x80) --end;  // between characters
  return message.substr(0, end) + "...";
}

// Protobuf names the field that is not UTF-8 only in its log. Parsing and the answer to its failure
// happen on one thread, one after the other.
std::string& FieldThatIsNotUtf8() {
  static thread_local std::string field;
  return field;
}

// "String field 'lowkey.v1.GenerateRequest.text' contains invalid UTF-8 data when parsing ...".
void TakeLog(google::protobuf::LogLevel, const char*, int, const std::string& message) {
  const size_t begin = message.find('\''), end = message.find('\'', begin + 1);
  const bool is_utf8 = message.find("invalid UTF-8") != std::string::npos;
  if (is_utf8 && begin != std::string::npos && end != std::string::npos) {
    const std::string name = message.substr(begin + 1, end - begin - 1);
    FieldThatIsNotUtf8() = name.substr(name.rfind('.') + 1);
  } else {
    std::fprintf(stderr, "protobuf: %s\n", message.c_str());
  }
}

class Explainer : public grpc::experimental::Interceptor {
 public:
  void Intercept(grpc::experimental::InterceptorBatchMethods* methods) override {
    if (methods->QueryInterceptionHookPoint(InterceptionHookPoints::PRE_SEND_STATUS)) {
      grpc::Status status = methods->GetSendStatus();
      const std::string field = std::exchange(FieldThatIsNotUtf8(), std::string());
      // Our own UNIMPLEMENTED always names a field.
      if (status.error_code() == grpc::StatusCode::UNIMPLEMENTED &&
          status.error_message().empty()) {
        status = {grpc::StatusCode::INVALID_ARGUMENT,
                  field.empty() ? std::string("message: malformed, expected a protobuf of its type")
                                : absl::StrCat(field, ": not UTF-8, expected UTF-8 text")};
      }
      methods->ModifySendStatus(
          {status.error_code(), Clipped(status.error_message()), status.error_details()});
    }
    methods->Proceed();
  }
};

class Factory : public grpc::experimental::ServerInterceptorFactoryInterface {
 public:
  grpc::experimental::Interceptor* CreateServerInterceptor(
      grpc::experimental::ServerRpcInfo*) override {
    return new Explainer();  // gRPC owns it
  }
};

}  // namespace

std::unique_ptr<grpc::experimental::ServerInterceptorFactoryInterface> ExplainParseErrors() {
  static const bool once = [] {
    google::protobuf::SetLogHandler(&TakeLog);
    return true;
  }();
  (void)once;
  return std::make_unique<Factory>();
}

}  // namespace lowkey
