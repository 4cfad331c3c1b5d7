#ifndef LOWKEY_SERVER_HUB_DIGEST_H_
#define LOWKEY_SERVER_HUB_DIGEST_H_

#include <memory>
#include <string>
#include <string_view>

#include "server/hub/listing.h"

namespace lowkey {

// Digests the bytes of a file as the hub lists it: SHA-256, or SHA-1 of the git blob. Not
// thread-safe.
class Digest {
 public:
  explicit Digest(const HubFile& file);
  ~Digest();
  Digest(Digest&&) noexcept;
  Digest& operator=(Digest&&) noexcept;

  void Add(std::string_view bytes);
  // Returns lower-case hexadecimal digits. Call it once, at the end.
  std::string Take();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lowkey

#endif  // LOWKEY_SERVER_HUB_DIGEST_H_
