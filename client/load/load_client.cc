#include "client/load/load_client.h"

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <atomic>
#include <deque>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "client/call_status.h"
#include "client/live_context.h"
#include "engine/base/clock.h"
#include "engine/base/status_macros.h"
#include "lowkey/v1/admin.grpc.pb.h"
#include "lowkey/v1/generation.grpc.pb.h"
#include "lowkey/v1/models.grpc.pb.h"
#include "server/api/lowkey/convert_request.h"

namespace lowkey {
namespace {

// gRPC serializes a connection's reads and writes; several connections avoid that bottleneck.
constexpr size_t kMinConnections = 4;
// A server takes so many on one connection; further streams would wait within the client.
constexpr int kMaxStreamsPerConnection = 100;
constexpr absl::Duration kPollTimeout = absl::Seconds(1);
constexpr absl::Duration kAskTimeout = absl::Seconds(30);

// One stream, which deletes itself at its end.
class LoadStream final : public grpc::ClientReadReactor<v1::GenerateEvent> {
 public:
  LoadStream(LiveContexts& contexts, std::atomic<int64_t>& n_tokens,
             const GenerationRequest& request, std::function<void(StreamRecord)> on_end)
      : context_(contexts, request.deadline),
        n_tokens_(n_tokens),
        request_(ToProto(request)),
        on_end_(std::move(on_end)) {}

  void Begin(v1::Generation::Stub& stub) {
    record_.started_s = MonotonicSeconds();
    stub.async()->GenerateStream(context_.get(), &request_, this);
    StartRead(&event_);
    StartCall();
  }

  void OnReadDone(bool ok) override {
    if (!ok) return;
    if (event_.delta().tokens_size() > 0) AddTokens(event_.delta().tokens_size());
    if (event_.has_final()) AddFinal(event_.final());
    StartRead(&event_);
  }

  void OnDone(const grpc::Status& status) override {
    StreamRecord record = std::move(record_);
    record.ended_s = MonotonicSeconds();
    record.status = FromGrpcStatus(status);
    if (status.ok() && !has_final_) {
      record.status = absl::InternalError("the stream ended without its final event");
    }
    const std::function<void(StreamRecord)> on_end = std::move(on_end_);
    delete this;
    on_end(std::move(record));
  }

 private:
  void AddTokens(int n_tokens) {
    record_.AddTokens(n_tokens, MonotonicSeconds());
    n_tokens_ += n_tokens;
  }

  void AddFinal(const v1::FinalEvent& event) {
    has_final_ = true;
    const v1::Timings& timings = event.timings();
    record_.engine_s =
        1e-6 * static_cast<double>(timings.queue_us() + timings.prefill_us() + timings.decode_us());
    record_.peak_cache_bytes = event.attention().peak_cache_bytes();
  }

  LiveContext context_;
  std::atomic<int64_t>& n_tokens_;  // of all streams
  const v1::GenerateRequest request_;
  std::function<void(StreamRecord)> on_end_;
  v1::GenerateEvent event_;
  StreamRecord record_;
  bool has_final_ = false;
};

}  // namespace

class LoadClient::Impl {
 public:
  struct Connection {
    std::unique_ptr<v1::Generation::Stub> generation;
    int n_streams = 0;
  };

  explicit Impl(const ConnectOptions& options) : options(options) {
    // These have their own connection, so that an answer does not wait behind streams.
    const std::shared_ptr<grpc::Channel> channel = OpenChannel(options);
    admin = v1::Admin::NewStub(channel);
    models = v1::Models::NewStub(channel);
    generation = v1::Generation::NewStub(channel);
  }

  // Returns the connection with the fewest streams, which has one more until Leave.
  Connection& Join() {
    absl::MutexLock lock(&mutex);
    const auto fewest =
        std::min_element(connections.begin(), connections.end(),
                         [](const auto& a, const auto& b) { return a.n_streams < b.n_streams; });
    const bool takes_more =
        connections.size() >= kMinConnections && fewest->n_streams < kMaxStreamsPerConnection;
    Connection& joined = takes_more ? *fewest : connections.emplace_back();
    if (!takes_more) joined.generation = v1::Generation::NewStub(OpenChannel(options));
    ++joined.n_streams;
    return joined;
  }

  void Leave(Connection& connection) {
    absl::MutexLock lock(&mutex);
    --connection.n_streams;
  }

  const ConnectOptions options;
  LiveContexts contexts;
  std::atomic<int64_t> n_tokens{0};
  absl::Mutex mutex;
  std::deque<Connection> connections ABSL_GUARDED_BY(mutex);
  std::unique_ptr<v1::Admin::Stub> admin;
  std::unique_ptr<v1::Models::Stub> models;
  std::unique_ptr<v1::Generation::Stub> generation;
};

LoadClient::LoadClient(const ConnectOptions& options) : impl_(std::make_unique<Impl>(options)) {}
LoadClient::~LoadClient() = default;

void LoadClient::Start(const GenerationRequest& request, std::function<void(StreamRecord)> on_end) {
  Impl::Connection& connection = impl_->Join();
  auto* stream = new LoadStream(
      impl_->contexts, impl_->n_tokens, request,
      [impl = impl_.get(), &connection, on_end = std::move(on_end)](StreamRecord record) {
        impl->Leave(connection);
        on_end(std::move(record));
      });
  stream->Begin(*connection.generation);
}

void LoadClient::Cancel() { impl_->contexts.Cancel(); }

int64_t LoadClient::n_tokens() const { return impl_->n_tokens; }

std::optional<ServerLoad> LoadClient::Poll() {
  LiveContext call(impl_->contexts, SteadyNow() + kPollTimeout);
  v1::StatsResponse stats;
  if (!impl_->admin->Stats(call.get(), {}, &stats).ok()) return std::nullopt;
  return ServerLoad{stats.running_requests(), stats.waiting_requests(), stats.cache_bytes_used(),
                    stats.cache_bytes_total()};
}

absl::StatusOr<ServedModel> LoadClient::GetModel() {
  const absl::Time deadline = SteadyNow() + kAskTimeout;
  LiveContext model_call(impl_->contexts, deadline), stats_call(impl_->contexts, deadline);
  v1::Model model;
  v1::StatsResponse stats;
  LK_RETURN_IF_ERROR(FromCallStatus(impl_->models->GetModel(model_call.get(), {}, &model),
                                    impl_->options.address));
  const grpc::Status has_stats = impl_->admin->Stats(stats_call.get(), {}, &stats);
  if (has_stats.error_code() != grpc::StatusCode::UNIMPLEMENTED) {  // as a gateway says
    LK_RETURN_IF_ERROR(FromCallStatus(has_stats, impl_->options.address));
  }
  ServedModel served{model.name(), model.dtype(), model.architecture().vocab_size(),
                     model.limits().context_tokens()};
  served.instruction_set = stats.instruction_set();
  served.server_version = stats.version();
  served.n_threads = stats.threads();
  if (served.vocab_size < 1 || served.context_tokens < 2) {
    return absl::InternalError(absl::StrCat("GetModel: vocab_size ", served.vocab_size,
                                            " and context_tokens ", served.context_tokens,
                                            ", expected at least 1 and 2"));
  }
  if (model.architecture().has_bos_token_id()) {
    served.special_tokens.push_back(model.architecture().bos_token_id());
  }
  for (const int32_t id : model.architecture().eos_token_ids()) served.special_tokens.push_back(id);
  for (const v1::Mechanism& m : model.mechanisms()) served.mechanisms.push_back(m.name());
  return served;
}

absl::StatusOr<TokenList> LoadClient::Tokenize(const std::string& text) {
  LiveContext call(impl_->contexts, SteadyNow() + kAskTimeout);
  v1::TokenizeRequest request;
  request.set_text(text);
  request.set_add_bos(false);
  v1::TokenizeResponse response;
  LK_RETURN_IF_ERROR(FromCallStatus(impl_->generation->Tokenize(call.get(), request, &response),
                                    impl_->options.address));
  return TokenList(response.token_ids().begin(), response.token_ids().end());
}

}  // namespace lowkey
