#include "server/rpc/health.h"

#include <google/protobuf/descriptor.h>

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "engine/base/status_macros.h"
#include "grpc/health/v1/health.pb.h"
#include "server/rpc/wire_check.h"

namespace lowkey {
namespace {

namespace v1 = grpc::health::v1;

using ServingStatus = v1::HealthCheckResponse::ServingStatus;

class Watch;

// What all calls share.
class Health {
 public:
  explicit Health(const RpcRegistry& registry) : registry_(registry) {}

  std::vector<std::string> Services() const {
    std::vector<std::string> names = registry_.ServiceNames();
    names.insert(names.begin(), "");
    return names;
  }
  bool Knows(const std::string& service) const {
    const std::vector<std::string> names = Services();
    return std::find(names.begin(), names.end(), service) != names.end();
  }

  ServingStatus status() const {
    const absl::MutexLock lock(&mutex_);
    return is_serving_ ? v1::HealthCheckResponse::SERVING : v1::HealthCheckResponse::NOT_SERVING;
  }
  bool is_shut_down() const {
    const absl::MutexLock lock(&mutex_);
    return is_shut_down_;
  }

  void SetServing(bool is_serving) {
    const absl::MutexLock lock(&mutex_);
    if (is_shut_down_ || is_serving == is_serving_) return;
    is_serving_ = is_serving;
    TellWatches();
  }
  void Shutdown() {
    const absl::MutexLock lock(&mutex_);
    is_serving_ = false;
    is_shut_down_ = true;
    TellWatches();
  }

  void Add(Watch* watch) {
    const absl::MutexLock lock(&mutex_);
    watches_.insert(watch);
  }
  void Remove(Watch* watch) {
    const absl::MutexLock lock(&mutex_);
    watches_.erase(watch);
  }

 private:
  void TellWatches() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const RpcRegistry& registry_;
  mutable absl::Mutex mutex_;
  bool is_serving_ ABSL_GUARDED_BY(mutex_) = true;
  bool is_shut_down_ ABSL_GUARDED_BY(mutex_) = false;
  std::set<Watch*> watches_ ABSL_GUARDED_BY(mutex_);
};

// A call with one request, which is handled when the client has sent all it will send.
class OneRequestHandler : public RpcHandler {
 public:
  OneRequestHandler(std::shared_ptr<Health> health, RpcStream& stream)
      : health_(std::move(health)), stream_(stream) {}

  void OnMessage(std::string message) final {
    if (request_.has_value()) return Finish(CardinalityError("a second one"));
    request_ = std::move(message);
  }
  void OnHalfClose() final {
    if (is_finished_) return;
    if (!request_.has_value()) return Finish(CardinalityError("none"));
    if (const absl::Status status = Start(*request_); !status.ok()) Finish(status);
  }

 protected:
  // An error ends the call.
  virtual absl::Status Start(const std::string& request) = 0;

  void Write(const google::protobuf::Message& message) {
    if (!is_finished_) stream_.Write(message.SerializeAsString());
  }
  void Finish(const absl::Status& status) {
    if (!std::exchange(is_finished_, true)) stream_.Finish(status);
  }

  Health& health() const { return *health_; }

 private:
  static absl::Status CardinalityError(const char* what) {
    return absl::UnimplementedError(absl::StrCat("message: ", what, ", expected exactly one"));
  }

  const std::shared_ptr<Health> health_;
  RpcStream& stream_;
  std::optional<std::string> request_;
  bool is_finished_ = false;
};

class Check final : public OneRequestHandler {
 public:
  using OneRequestHandler::OneRequestHandler;

 private:
  absl::Status Start(const std::string& bytes) override {
    v1::HealthCheckRequest request;
    LK_RETURN_IF_ERROR(ParseMessage(bytes, request));
    if (!health().Knows(request.service())) {
      return absl::NotFoundError(
          absl::StrCat("service: ", request.service(), " is not served here"));
    }
    v1::HealthCheckResponse response;
    response.set_status(health().status());
    Write(response);
    Finish(absl::OkStatus());
    return absl::OkStatus();
  }
};

class List final : public OneRequestHandler {
 public:
  using OneRequestHandler::OneRequestHandler;

 private:
  absl::Status Start(const std::string& bytes) override {
    v1::HealthListRequest request;
    LK_RETURN_IF_ERROR(ParseMessage(bytes, request));
    v1::HealthListResponse response;
    for (const std::string& name : health().Services()) {
      (*response.mutable_statuses())[name].set_status(health().status());
    }
    Write(response);
    Finish(absl::OkStatus());
    return absl::OkStatus();
  }
};

class Watch final : public OneRequestHandler {
 public:
  Watch(std::shared_ptr<Health> health, RpcStream& stream)
      : OneRequestHandler(std::move(health), stream), loop_(stream.loop()) {}
  ~Watch() override { health().Remove(this); }

  // Calls Update on the loop's thread unless the Watch is gone by then. On any thread, while the
  // Watch cannot be destroyed.
  void PostUpdate() {
    loop_.Post([weak_self = std::weak_ptr<Watch*>(self_)] {
      if (const auto self = weak_self.lock()) (*self)->Update();
    });
  }

 private:
  absl::Status Start(const std::string& bytes) override {
    v1::HealthCheckRequest request;
    LK_RETURN_IF_ERROR(ParseMessage(bytes, request));
    is_known_ = health().Knows(request.service());
    health().Add(this);
    Update();
    return absl::OkStatus();
  }

  void Update() {
    if (health().is_shut_down()) return Finish(absl::UnavailableError("the server shuts down"));
    const ServingStatus status =
        is_known_ ? health().status() : v1::HealthCheckResponse::SERVICE_UNKNOWN;
    if (sent_ == status) return;
    sent_ = status;
    v1::HealthCheckResponse response;
    response.set_status(status);
    Write(response);
  }

  EventLoop& loop_;
  // Expires with the Watch, on the loop's thread.
  const std::shared_ptr<Watch*> self_ = std::make_shared<Watch*>(this);
  bool is_known_ = false;
  std::optional<ServingStatus> sent_;
};

// A Watch removes itself before it is destroyed, which waits for the lock.
void Health::TellWatches() {
  for (Watch* watch : watches_) watch->PostUpdate();
}

}  // namespace

struct RpcHealth::State : Health {
  using Health::Health;
};

RpcHealth::RpcHealth(RpcRegistry& registry) : state_(std::make_shared<State>(registry)) {
  const google::protobuf::ServiceDescriptor& service =
      *v1::HealthCheckRequest::descriptor()->file()->FindServiceByName("Health");
  const std::shared_ptr<Health> health = state_;
  registry.Add(*service.FindMethodByName("Check"),
               [health](RpcStream& stream) { return std::make_unique<Check>(health, stream); });
  registry.Add(*service.FindMethodByName("List"),
               [health](RpcStream& stream) { return std::make_unique<List>(health, stream); });
  registry.Add(*service.FindMethodByName("Watch"),
               [health](RpcStream& stream) { return std::make_unique<Watch>(health, stream); });
}

RpcHealth::~RpcHealth() = default;

void RpcHealth::SetServing(bool is_serving) { state_->SetServing(is_serving); }

void RpcHealth::Shutdown() { state_->Shutdown(); }

}  // namespace lowkey
