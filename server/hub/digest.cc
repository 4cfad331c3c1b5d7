#include "server/hub/digest.h"

#include <openssl/evp.h>

#include <array>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"

namespace lowkey {

struct Digest::State {
  std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context{EVP_MD_CTX_new(),
                                                                  &EVP_MD_CTX_free};
};

Digest::Digest(const HubFile& file) : state_(std::make_unique<State>()) {
  const EVP_MD* const kind = file.is_sha256 ? EVP_sha256() : EVP_sha1();
  LK_CHECK(state_->context != nullptr &&
           EVP_DigestInit_ex(state_->context.get(), kind, nullptr) == 1);
  if (!file.is_sha256) {
    const std::string head = absl::StrCat("blob ", file.n_bytes);
    Add({head.c_str(), head.size() + 1});  // with the NUL at its end
  }
}

Digest::~Digest() = default;
Digest::Digest(Digest&&) noexcept = default;
Digest& Digest::operator=(Digest&&) noexcept = default;

void Digest::Add(std::string_view bytes) {
  LK_CHECK(EVP_DigestUpdate(state_->context.get(), bytes.data(), bytes.size()) == 1);
}

std::string Digest::Take() {
  std::array<unsigned char, EVP_MAX_MD_SIZE> bytes;
  unsigned n_bytes = 0;
  LK_CHECK(EVP_DigestFinal_ex(state_->context.get(), bytes.data(), &n_bytes) == 1);
  return absl::BytesToHexString(
      absl::string_view(reinterpret_cast<const char*>(bytes.data()), n_bytes));
}

}  // namespace lowkey
