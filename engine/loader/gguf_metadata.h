#ifndef LOWKEY_ENGINE_LOADER_GGUF_METADATA_H_
#define LOWKEY_ENGINE_LOADER_GGUF_METADATA_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "engine/base/load_account.h"
#include "engine/loader/byte_reader.h"

namespace lowkey {

// The types of a GGUF file's values, with their numbers there.
enum class GgufType : uint32_t {
  kUint8 = 0,
  kInt8 = 1,
  kUint16 = 2,
  kInt16 = 3,
  kUint32 = 4,
  kInt32 = 5,
  kFloat32 = 6,
  kBool = 7,
  kString = 8,
  kArray = 9,
  kUint64 = 10,
  kInt64 = 11,
  kFloat64 = 12,
};

// The metadata of a GGUF file: typed look-up by key, such as "tokenizer.ggml.tokens". Values stay
// in the file's bytes, which must outlive this and every string_view that it hands out. Getters
// return nullopt when the key is absent, and INVALID_ARGUMENT like `model.gguf: llama.block_count:
// 0, expected 1..512` when its value is of another type or out of range. Any thread may read.
class GgufMetadata {
 public:
  // Reads `count` pairs of key and value and leaves `reader` behind them. `name` (the file's)
  // begins every message. INVALID_ARGUMENT naming the key: cut short, an unknown type, a key twice,
  // over 65,535 bytes or empty; UNIMPLEMENTED: an array of arrays.
  // Keys and the items of arrays are charged to the account, whose error is returned too.
  static absl::StatusOr<GgufMetadata> Read(ByteReader& reader, uint64_t count,
                                           const std::string& name, LoadAccount& account);

  bool Has(std::string_view key) const { return values_.contains(key); }
  bool IsArray(std::string_view key) const;

  // A value of any integer type.
  absl::StatusOr<std::optional<int64_t>> Int(std::string_view key, int64_t min, int64_t max) const;
  // A value of any float or integer type; finite.
  absl::StatusOr<std::optional<double>> Number(std::string_view key, double min, double max) const;
  absl::StatusOr<std::optional<bool>> Bool(std::string_view key) const;
  // Bytes, which need not be UTF-8.
  absl::StatusOr<std::optional<std::string_view>> String(std::string_view key) const;

  // Arrays. Their lengths have been checked against the file's, and paid for: a sparse file may
  // announce any number.
  absl::StatusOr<std::optional<std::vector<std::string_view>>> Strings(std::string_view key) const;
  absl::StatusOr<std::optional<std::vector<float>>> Floats(std::string_view key) const;
  absl::StatusOr<std::optional<std::vector<int64_t>>> Ints(std::string_view key) const;

  // Int, for a key that must be there: INVALID_ARGUMENT `... missing, expected 1..512`.
  absl::StatusOr<int64_t> RequiredInt(std::string_view key, int64_t min, int64_t max) const;

  // `name: key: value, expected <expected>`.
  absl::Status Error(std::string_view key, const std::string& expected) const;

 private:
  struct Value {
    GgufType type = GgufType::kUint8;
    GgufType item_type = GgufType::kUint8;  // of an array
    uint64_t count = 1;                     // of an array's items
    absl::Span<const std::byte> bytes;      // the value's, or the items'
  };

  static absl::StatusOr<Value> ReadValue(ByteReader& reader, LoadAccount& account);
  const Value* Find(std::string_view key) const;
  // The value, null when the key is absent. INVALID_ARGUMENT unless it is an array whose items'
  // type satisfies is_wanted.
  absl::StatusOr<const Value*> FindArray(std::string_view key, bool (*is_wanted)(GgufType),
                                         const std::string& expected) const;

  std::string name_;
  absl::flat_hash_map<std::string_view, Value> values_;
};

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_LOADER_GGUF_METADATA_H_
