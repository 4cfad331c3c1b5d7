// One input is a config.json. Whatever is accepted must be within the engine's limits.

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "engine/base/status_macros.h"
#include "engine/loader/config_json.h"
#include "engine/loader/grouped_checkpoint.h"
#include "tests/fuzz/config_checks.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto config = lowkey::ParseModelConfig(text, text);
  LK_CHECK(config.ok() || !config.status().message().empty());
  if (config.ok()) lowkey::CheckConfig(*config);
  const auto int4 = lowkey::ParseGroupedConfig(text);
  LK_CHECK(int4.ok() || !int4.status().message().empty());
  if (int4.ok() && int4->has_value()) LK_CHECK((*int4)->group_size.value_or(32) >= 32);
  return 0;
}
