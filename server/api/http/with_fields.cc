#include "server/api/http/with_fields.h"

#include <algorithm>
#include <string_view>
#include <utility>

namespace lowkey {
namespace {

// Adds fields to the answer of a handler.
class WithFields final : public HttpHandler, private HttpExchange {
 public:
  WithFields(HttpExchange& exchange, HttpFields fields, const MakeHandlerOf& make)
      : exchange_(exchange), fields_(std::move(fields)), handler_(make(*this)) {}

  void OnHead() override { handler_->OnHead(); }
  void OnBody(std::string_view bytes) override { handler_->OnBody(bytes); }
  void OnBodyEnd() override { handler_->OnBodyEnd(); }
  void OnSent() override { handler_->OnSent(); }

 private:
  const HttpHead& head() const override { return exchange_.head(); }
  void AllowBody(size_t n_bytes) override { exchange_.AllowBody(n_bytes); }
  std::shared_ptr<const HeldBytes> HoldBody(size_t n_bytes) override {
    return exchange_.HoldBody(n_bytes);
  }
  void Start(int status, const HttpFields& fields) override {
    exchange_.Start(status, Joined(fields));
  }
  void Write(std::string_view bytes) override { exchange_.Write(bytes); }
  void End(const HttpFields& trailers) override { exchange_.End(trailers); }
  void StartAndEnd(int status, const HttpFields& fields) override {
    exchange_.StartAndEnd(status, Joined(fields));
  }
  void Reset(HttpReset reason) override { exchange_.Reset(reason); }
  size_t unsent_bytes() const override { return exchange_.unsent_bytes(); }
  void Trust() override { exchange_.Trust(); }

  HttpFields Joined(HttpFields fields) const {
    for (const HttpField& field : fields_) {
      const auto is_same = [&field](const HttpField& set) { return set.name == field.name; };
      if (std::none_of(fields.begin(), fields.end(), is_same)) fields.push_back(field);
    }
    return fields;
  }

  HttpExchange& exchange_;
  const HttpFields fields_;
  const std::unique_ptr<HttpHandler> handler_;
};

}  // namespace

std::unique_ptr<HttpHandler> MakeWithFields(HttpExchange& exchange, HttpFields fields,
                                            const MakeHandlerOf& make) {
  return std::make_unique<WithFields>(exchange, std::move(fields), make);
}

}  // namespace lowkey
