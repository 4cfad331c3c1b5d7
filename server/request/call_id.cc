#include "server/request/call_id.h"

#include <algorithm>
#include <random>

#include "absl/strings/str_cat.h"
#include "server/request/limits.h"

namespace lowkey {
namespace {

constexpr size_t kDrawnDigits = 8;

std::string Draw() {
  std::random_device device;
  return absl::StrCat(absl::Hex(device(), absl::kZeroPad8));
}

}  // namespace

bool IsRequestId(std::string_view id) {
  const auto is_printable = [](char c) { return c > ' ' && c <= '~'; };
  return !id.empty() && id.size() <= kMaxRequestIdBytes &&
         std::all_of(id.begin(), id.end(), is_printable);
}

CallId TakeCallId(std::optional<std::string_view> clients) {
  if (clients.has_value() && IsRequestId(*clients)) return {std::string(*clients), true};
  return {Draw() + Draw()};
}

std::string GenerationId(const CallId& id) {
  if (id.text.empty()) return Draw() + Draw();
  if (!id.is_clients) return id.text;
  return absl::StrCat(id.text.substr(0, kMaxRequestIdBytes - kDrawnDigits - 1), "-", Draw());
}

}  // namespace lowkey
