#ifndef LOWKEY_CLIENT_LOAD_LOAD_CLIENT_H_
#define LOWKEY_CLIENT_LOAD_LOAD_CLIENT_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "client/channel.h"
#include "client/load/load_target.h"

namespace lowkey {

// The properties of a served model that a load depends on.
struct ServedModel {
  std::string name, dtype;
  int32_t vocab_size = 0, context_tokens = 0;
  // A gateway that answers for several servers leaves these unset.
  std::string instruction_set = {}, server_version = {};
  int32_t n_threads = 0;
  std::vector<int32_t> special_tokens = {};  // beginning and end of a sequence
  std::vector<std::string> mechanisms = {};
};

// A server under load, over gRPC. Streams share a few connections and gRPC's own threads, however
// many there are. All streams must have ended when it is destroyed.
class LoadClient final : public LoadTarget {
 public:
  explicit LoadClient(const ConnectOptions& options);
  explicit LoadClient(const std::string& address) : LoadClient(ConnectOptions{address}) {}
  ~LoadClient() override;

  void Start(const GenerationRequest& request, std::function<void(StreamRecord)> on_end) override;
  void Cancel() override;
  std::optional<ServerLoad> Poll() override;
  int64_t n_tokens() const override;

  // UNAVAILABLE, naming the address and what to do, if no server answers; otherwise the server's
  // own error. INTERNAL if the server's description of its model cannot be used.
  absl::StatusOr<ServedModel> GetModel();
  // Returns the tokens that the server makes of `text`.
  absl::StatusOr<TokenList> Tokenize(const std::string& text);

 private:
  class Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace lowkey

#endif  // LOWKEY_CLIENT_LOAD_LOAD_CLIENT_H_
