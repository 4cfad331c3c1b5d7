#ifndef LOWKEY_TESTS_TOKENIZER_SENTENCEPIECE_MODEL_BUILDER_H_
#define LOWKEY_TESTS_TOKENIZER_SENTENCEPIECE_MODEL_BUILDER_H_

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/sentencepiece/model_proto.h"

namespace lowkey {

// Writes protobuf's wire format, for models good and bad.
class WireWriter {
 public:
  WireWriter& Varint(uint32_t field, uint64_t value);
  WireWriter& Fixed32(uint32_t field, uint32_t value);
  WireWriter& Float(uint32_t field, float value);
  WireWriter& Bytes(uint32_t field, std::string_view bytes);

  const std::string& data() const { return data_; }

 private:
  void AppendVarint(uint64_t value);

  std::string data_;
};

// The tokenizer.model of `model`.
std::string SerializeModel(const ModelProto& model);

// A model with <unk>, <s>, </s> (0, 1, 2) and, with byte fallback, the 256 byte pieces after them;
// then `pieces` with scores 0, -1, -2 and so on. Keeps spaces as they are, rewrites nothing.
ModelProto MakeModel(SegmentationType segmentation, const std::vector<std::string>& pieces);
ModelProto MakeByteFallbackModel(SegmentationType segmentation,
                                 const std::vector<std::string>& pieces);

// A precompiled_charsmap of `rules` (from, to), laid out as darts-clone does.
std::string MakeCharsmap(const std::map<std::string, std::string>& rules);
std::string JoinCharsmap(const std::vector<uint32_t>& units, std::string_view replacements);

// A file beside the tests: tests/tokenizer/sentencepiece/data/NAME.
std::string ReadTestData(const std::string& name);

}  // namespace lowkey

#endif  // LOWKEY_TESTS_TOKENIZER_SENTENCEPIECE_MODEL_BUILDER_H_
