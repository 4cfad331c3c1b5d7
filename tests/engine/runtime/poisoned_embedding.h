#ifndef LOWKEY_TESTS_ENGINE_RUNTIME_POISONED_EMBEDDING_H_
#define LOWKEY_TESTS_ENGINE_RUNTIME_POISONED_EMBEDDING_H_

#include <cstdint>
#include <fstream>
#include <limits>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace lowkey {

// Makes every value of one token's embedding NaN, in a TinyModel's checkpoint of 32-bit floats.
inline void PoisonEmbedding(const std::string& path, int32_t token) {
  constexpr int kHidden = 32;
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  ASSERT_TRUE(file.is_open());
  uint64_t n_header = 0;
  file.read(reinterpret_cast<char*>(&n_header), sizeof(n_header));
  std::string header(n_header, '\0');
  file.read(header.data(), static_cast<std::streamsize>(n_header));
  const std::string key = "\"data_offsets\":[";
  const size_t at = header.find(key, header.find("\"model.embed_tokens.weight\""));
  ASSERT_NE(at, std::string::npos);
  const int64_t begin = std::stoll(header.substr(at + key.size()));
  const std::vector<float> row(kHidden, std::numeric_limits<float>::quiet_NaN());
  const int64_t row_bytes = static_cast<int64_t>(row.size() * sizeof(float));
  file.seekp(8 + static_cast<int64_t>(n_header) + begin + token * row_bytes);
  file.write(reinterpret_cast<const char*>(row.data()), row_bytes);
  ASSERT_TRUE(file.good());
}

}  // namespace lowkey

#endif  // LOWKEY_TESTS_ENGINE_RUNTIME_POISONED_EMBEDDING_H_
