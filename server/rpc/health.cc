#include "server/rpc/health.h"

#include <google/protobuf/descriptor.h>

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "engine/base/contained.h"
#include "engine/base/status_macros.h"
#include "grpc/health/v1/health.pb.h"
#include "server/rpc/single_request.h"
#include "server/rpc/wire_check.h"

namespace lowkey {
namespace {

namespace health_v1 = grpc::health::v1;

using ServingStatus = health_v1::HealthCheckResponse::ServingStatus;

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
    return is_serving_ ? health_v1::HealthCheckResponse::SERVING
                       : health_v1::HealthCheckResponse::NOT_SERVING;
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

absl::StatusOr<std::string> Check(const Health& health, const std::string& message) {
  health_v1::HealthCheckRequest request;
  LK_RETURN_IF_ERROR(ParseMessage(message, request));
  if (!health.Knows(request.service())) {
    return absl::NotFoundError(absl::StrCat("service: ", request.service(), " is not served here"));
  }
  health_v1::HealthCheckResponse response;
  response.set_status(health.status());
  return response.SerializeAsString();
}

absl::StatusOr<std::string> List(const Health& health, const std::string& message) {
  health_v1::HealthListRequest request;
  LK_RETURN_IF_ERROR(ParseMessage(message, request));
  health_v1::HealthListResponse response;
  for (const std::string& name : health.Services()) {
    (*response.mutable_statuses())[name].set_status(health.status());
  }
  return response.SerializeAsString();
}

class Watch final : public SingleRequestHandler {
 public:
  Watch(std::shared_ptr<Health> health, RpcStream& stream)
      : SingleRequestHandler(stream), health_(std::move(health)), loop_(stream.loop()) {}
  ~Watch() override { health_->Remove(this); }

  // Calls Update on the loop's thread unless the Watch is gone by then. On any thread, while the
  // Watch cannot be destroyed.
  void PostUpdate() {
    loop_.Post([weak_self = std::weak_ptr<Watch*>(self_)] {
      if (const auto self = weak_self.lock()) (*self)->Update();
    });
  }

 private:
  void OnRequest(RpcMessage message) override {
    health_v1::HealthCheckRequest request;
    if (const absl::Status status = ParseMessage(message.bytes, request); !status.ok()) {
      return stream_.Finish(status);
    }
    is_known_ = health_->Knows(request.service());
    health_->Add(this);
    Update();
  }

  void Update() {
    if (is_finished_) return;
    if (health_->is_shut_down()) {
      is_finished_ = true;
      return stream_.Finish(absl::UnavailableError("the server shuts down"));
    }
    const ServingStatus status =
        is_known_ ? health_->status() : health_v1::HealthCheckResponse::SERVICE_UNKNOWN;
    if (sent_ == status) return;
    sent_ = status;
    health_v1::HealthCheckResponse response;
    response.set_status(status);
    stream_.Write(response.SerializeAsString());
  }

  const std::shared_ptr<Health> health_;
  EventLoop& loop_;
  // Expires with the Watch, on the loop's thread.
  const std::shared_ptr<Watch*> self_ = std::make_shared<Watch*>(this);
  bool is_known_ = false, is_finished_ = false;
  std::optional<ServingStatus> sent_;
};

// A Watch removes itself before it is destroyed, which waits for the lock.
void Health::TellWatches() {
  for (Watch* watch : watches_) {
    RunInTheEnd([watch] { watch->PostUpdate(); });
  }
}

}  // namespace

struct RpcHealth::State : Health {
  using Health::Health;
};

RpcHealth::RpcHealth(RpcRegistry& registry) : state_(std::make_shared<State>(registry)) {
  const google::protobuf::ServiceDescriptor& service =
      *health_v1::HealthCheckRequest::descriptor()->file()->FindServiceByName("Health");
  const std::shared_ptr<Health> health = state_;
  // Nobody needs credentials for these.
  const auto add = [&](const char* method, MakeRpcHandler make_handler) {
    registry.Add(*service.FindMethodByName(method), std::move(make_handler), kSmallMessageBytes);
  };
  add("Check", MakeImmediateHandler([health](const auto& bytes) { return Check(*health, bytes); }));
  add("List", MakeImmediateHandler([health](const auto& bytes) { return List(*health, bytes); }));
  add("Watch", [health](RpcStream& stream) { return std::make_unique<Watch>(health, stream); });
}

RpcHealth::~RpcHealth() = default;

void RpcHealth::SetServing(bool is_serving) { state_->SetServing(is_serving); }

void RpcHealth::Shutdown() { state_->Shutdown(); }

}  // namespace lowkey
