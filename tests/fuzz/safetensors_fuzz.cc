// One input is the bytes of a safetensors file. Whatever is accepted must lie within them.

#include <cstddef>
#include <cstdint>

#include "engine/base/status_macros.h"
#include "engine/loader/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const absl::Span<const std::byte> bytes(reinterpret_cast<const std::byte*>(data), size);
  const auto index = lowkey::ParseSafetensors(bytes, "fuzz.safetensors");
  LK_CHECK(index.ok() || !index.status().message().empty());
  if (!index.ok()) return 0;
  for (const auto& [name, tensor] : index->tensors) {
    for (int64_t size : tensor.shape) LK_CHECK(size >= 0);
    LK_CHECK(tensor.data >= bytes.data());
    LK_CHECK(tensor.data + tensor.size_bytes() <= bytes.data() + bytes.size());
    if (tensor.size_bytes() > 0) {
      volatile std::byte last = tensor.data[tensor.size_bytes() - 1];
      (void)last;
    }
  }
  return 0;
}
