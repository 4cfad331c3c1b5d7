#ifndef LOWKEY_SERVER_HTTP_HTTP_DATE_H_
#define LOWKEY_SERVER_HTTP_HTTP_DATE_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/time/time.h"

namespace lowkey {

// The value of a Date field, made once a second.
class HttpDate {
 public:
  // Returns the value for this time of SteadyNow, which is valid until the next call.
  std::string_view At(absl::Time steady);

 private:
  int64_t second_ = -1;
  std::string text_;
};

}  // namespace lowkey

#endif  // LOWKEY_SERVER_HTTP_HTTP_DATE_H_
