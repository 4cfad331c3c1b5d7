// One input is what a client sends: the first byte chooses how the handler behaves, the second how
// the bytes are cut. Whole or cut, the same requests must be seen and the same answers be given.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "absl/time/time.h"
#include "engine/base/status_macros.h"
#include "server/http/session.h"

namespace lowkey {
namespace {

constexpr int64_t kBudgetBytes = 1 << 20;

// What a client's bytes did.
struct Outcome {
  bool operator==(const Outcome&) const = default;

  std::string seen = {};  // by handlers
  std::string answers = {};
};

class Handler : public HttpHandler {
 public:
  Handler(HttpExchange& exchange, unsigned behavior, std::string& seen)
      : exchange_(exchange), behavior_(behavior), seen_(seen) {}

  void OnHead() override {
    const HttpHead& head = exchange_.head();
    LK_CHECK(!head.method.empty() && (head.path.substr(0, 1) == "/" || head.path == "*"));
    seen_ += head.method + " " + head.path + "?" + head.query + "@" + head.authority;
    for (const HttpField& field : head.fields) {
      LK_CHECK(!field.name.empty() && field.name.find(' ') == std::string::npos);
      LK_CHECK(field.value.find_first_of(std::string_view("\r\n\0", 3)) == std::string::npos);
      LK_CHECK(field.name != "transfer-encoding" && field.name != "content-length");
      seen_ += field.name + "=" + field.value + ";";
    }
    if (behavior_ % 4 == 0) {
      exchange_.StartAndEnd(401, {});
    } else {
      exchange_.AllowBody(behavior_ % 4 == 1 ? 1 : SIZE_MAX);
    }
  }
  void OnBody(std::string_view bytes) override {
    LK_CHECK(!bytes.empty());
    n_body_bytes_ += bytes.size();
    seen_ += bytes;
    if (behavior_ % 4 == 1) exchange_.AllowBody(1);
  }
  void OnBodyEnd() override {
    seen_ += ".";
    if (behavior_ % 8 == 7 && n_body_bytes_ > 4) return exchange_.Reset(HttpReset::kCancel);
    exchange_.Start(200, {});
    exchange_.Write(seen_);
    exchange_.End({});
  }

 private:
  HttpExchange& exchange_;
  const unsigned behavior_;
  std::string& seen_;
  size_t n_body_bytes_ = 0;
};

class Host : public HttpSessionHost {
 public:
  explicit Host(unsigned behavior) : behavior_(behavior) {}

  std::unique_ptr<HttpHandler> MakeHandler(HttpExchange& exchange) override {
    return std::make_unique<Handler>(exchange, behavior_, outcome_.seen);
  }
  void WantsFlush() override {}
  void CountRefusal(NetworkRefusal /*reason*/) override {}

  // Feeds `bytes` in pieces of so many.
  Outcome Run(std::string_view bytes, size_t n_piece_bytes) {
    HttpBudgets budgets{.answers = ByteBudget(kBudgetBytes)};
    const HttpLimits limits;
    absl::Time now = absl::FromUnixSeconds(1767600000);
    {
      const auto session = MakeHttp1Session(*this, limits, budgets, now);
      while (!bytes.empty() && !session->is_over()) {
        const size_t n_bytes = std::min(n_piece_bytes, bytes.size());
        session->Receive(bytes.substr(0, n_bytes), now);
        bytes.remove_prefix(n_bytes);
        while (session->has_output()) session->Produce(SIZE_MAX, outcome_.answers, now);
      }
      now += absl::Seconds(200);
      session->OnTick(now);
      session->OnTick(now);
      LK_CHECK(session->is_over());
      session->Produce(SIZE_MAX, outcome_.answers, now);
    }
    LK_CHECK(budgets.answers.left() == kBudgetBytes);
    return outcome_;
  }

 private:
  const unsigned behavior_;
  Outcome outcome_;
};

}  // namespace
}  // namespace lowkey

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  // Answers hold all that was seen before them: longer inputs would fill the answers' memory.
  if (size < 2 || size > 20000) return 0;
  const std::string_view bytes(reinterpret_cast<const char*>(data) + 2, size - 2);
  const lowkey::Outcome whole = lowkey::Host(data[0]).Run(bytes, bytes.size());
  const lowkey::Outcome cut = lowkey::Host(data[0]).Run(bytes, data[1] % 64 + 1);
  LK_CHECK(whole.seen == cut.seen);
  // A reset takes back the 100 Continue that has not left yet.
  if (data[0] % 8 != 7) LK_CHECK(whole.answers == cut.answers);
  return 0;
}
