#include "server/http/http_date.h"

#include "engine/base/clock.h"

namespace lowkey {

std::string_view HttpDate::At(absl::Time steady) {
  const absl::Time now = DateOf(steady);
  const int64_t second = absl::ToUnixSeconds(now);
  if (second != second_ || text_.empty()) {
    second_ = second;
    text_ = absl::FormatTime("%a, %d %b %E4Y %H:%M:%S GMT", now, absl::UTCTimeZone());
  }
  return text_;
}

}  // namespace lowkey
