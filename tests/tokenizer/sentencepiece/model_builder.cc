#include "tests/tokenizer/sentencepiece/model_builder.h"

#include <bit>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <optional>
#include <sstream>

#include "engine/base/status_macros.h"
#include "tests/testing/source_path.h"

namespace lowkey {
namespace {

// The units of a double array, child blocks placed at the first free multiple of 256 (roomier than
// darts-clone's packing, and read the same way).
class CharsmapBuilder {
 public:
  explicit CharsmapBuilder(const std::map<std::string, std::string>& rules) {
    units_.resize(256);
    Build(0, rules);
  }

  std::string Join() const { return JoinCharsmap(units_, replacements_); }

 private:
  // `rules`: what follows the bytes that led to the unit at `position`.
  void Build(uint32_t position, const std::map<std::string, std::string>& rules) {
    const uint32_t block = static_cast<uint32_t>(units_.size());
    units_.resize(units_.size() + 256);
    // The block is at position XOR offset. Offsets below 2^21 are stored whole.
    units_[position] |= (position ^ block) << 10;
    std::map<uint8_t, std::map<std::string, std::string>> children;
    for (const auto& [key, replacement] : rules) {
      if (!key.empty()) {
        children[static_cast<uint8_t>(key[0])][key.substr(1)] = replacement;
        continue;
      }
      units_[position] |= 1U << 8;
      units_[block] = (1U << 31) | static_cast<uint32_t>(replacements_.size());
      replacements_ += replacement + '\0';
    }
    for (const auto& [byte, rest] : children) {
      units_[block ^ byte] = byte;
      Build(block ^ byte, rest);
    }
  }

  std::vector<uint32_t> units_;
  std::string replacements_;
};

ModelProto MakeBase(SegmentationType segmentation, bool byte_fallback) {
  ModelProto model;
  model.segmentation = segmentation;
  model.byte_fallback = byte_fallback;
  model.remove_extra_whitespaces = false;
  model.pieces = {{"<unk>", 0, PieceType::kUnknown},
                  {"<s>", 0, PieceType::kControl},
                  {"</s>", 0, PieceType::kControl}};
  for (int byte = 0; byte_fallback && byte < 256; ++byte) {
    char text[8];
    std::snprintf(text, sizeof(text), "<0x%02X>", byte);
    model.pieces.push_back({text, 0, PieceType::kByte});
  }
  return model;
}

void AddPieces(const std::vector<std::string>& pieces, ModelProto& model) {
  float score = 0;
  for (const std::string& piece : pieces) {
    model.pieces.push_back({piece, score, PieceType::kNormal});
    score -= 1;
  }
}

void WriteOptional(uint32_t field, std::optional<int32_t> id, WireWriter& writer) {
  if (id.has_value()) writer.Varint(field, static_cast<uint64_t>(static_cast<int64_t>(*id)));
}

}  // namespace

void WireWriter::AppendVarint(uint64_t value) {
  while (value >= 0x80) {
    data_.push_back(static_cast<char>(value | 0x80));
    value >>= 7;
  }
  data_.push_back(static_cast<char>(value));
}

WireWriter& WireWriter::Varint(uint32_t field, uint64_t value) {
  AppendVarint(uint64_t{field} << 3);
  AppendVarint(value);
  return *this;
}

WireWriter& WireWriter::Fixed32(uint32_t field, uint32_t value) {
  AppendVarint(uint64_t{field} << 3 | 5);
  for (int i = 0; i < 4; ++i) data_.push_back(static_cast<char>(value >> (8 * i)));
  return *this;
}

WireWriter& WireWriter::Float(uint32_t field, float value) {
  return Fixed32(field, std::bit_cast<uint32_t>(value));
}

WireWriter& WireWriter::Bytes(uint32_t field, std::string_view bytes) {
  AppendVarint(uint64_t{field} << 3 | 2);
  AppendVarint(bytes.size());
  data_.append(bytes);
  return *this;
}

std::string SerializeModel(const ModelProto& model) {
  WireWriter file;
  for (const Piece& piece : model.pieces) {
    WireWriter writer;
    writer.Bytes(1, piece.text).Float(2, piece.score).Varint(3, static_cast<uint64_t>(piece.type));
    file.Bytes(1, writer.data());
  }
  WireWriter trainer;
  trainer.Varint(3, static_cast<uint64_t>(model.segmentation));
  trainer.Varint(24, model.treat_whitespace_as_suffix).Varint(35, model.byte_fallback);
  WriteOptional(40, model.unk_id, trainer);
  WriteOptional(41, model.bos_id, trainer);
  WriteOptional(42, model.eos_id, trainer);
  trainer.Bytes(44, model.unk_surface).Bytes(46, model.bos_piece).Bytes(47, model.eos_piece);
  WireWriter normalizer;
  normalizer.Bytes(2, model.charsmap).Varint(3, model.add_dummy_prefix);
  normalizer.Varint(4, model.remove_extra_whitespaces).Varint(5, model.escape_whitespaces);
  file.Bytes(2, trainer.data()).Bytes(3, normalizer.data());
  if (model.has_denormalizer) file.Bytes(5, WireWriter().Bytes(2, "charsmap").data());
  return file.data();
}

ModelProto MakeModel(SegmentationType segmentation, const std::vector<std::string>& pieces) {
  ModelProto model = MakeBase(segmentation, /*byte_fallback=*/false);
  AddPieces(pieces, model);
  return model;
}

ModelProto MakeByteFallbackModel(SegmentationType segmentation,
                                 const std::vector<std::string>& pieces) {
  ModelProto model = MakeBase(segmentation, /*byte_fallback=*/true);
  AddPieces(pieces, model);
  return model;
}

std::string MakeCharsmap(const std::map<std::string, std::string>& rules) {
  return CharsmapBuilder(rules).Join();
}

std::string JoinCharsmap(const std::vector<uint32_t>& units, std::string_view replacements) {
  const uint32_t trie_bytes = static_cast<uint32_t>(units.size() * sizeof(uint32_t));
  std::string bytes(sizeof(trie_bytes) + trie_bytes, '\0');
  std::memcpy(bytes.data(), &trie_bytes, sizeof(trie_bytes));
  if (trie_bytes > 0) std::memcpy(bytes.data() + sizeof(trie_bytes), units.data(), trie_bytes);
  return bytes.append(replacements);
}

std::string ReadTestData(const std::string& name) {
  std::ifstream file(SourcePath("tests/tokenizer/sentencepiece/data/").append(name),
                     std::ios::binary);
  LK_CHECK(file.is_open());
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

}  // namespace lowkey
