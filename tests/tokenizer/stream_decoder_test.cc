#include "tokenizer/stream_decoder.h"

#include <gtest/gtest.h>

#include <random>

#include "tests/tokenizer/sentencepiece/model_builder.h"
#include "tests/tokenizer/status_matchers.h"
#include "tokenizer/pieces.h"
#include "tokenizer/sentencepiece/sentencepiece_tokenizer.h"
#include "tokenizer/utf8.h"

namespace lowkey {
namespace {

using Ids = std::vector<int32_t>;

constexpr int32_t kUnk = 0;
constexpr int32_t kBos = 1;
constexpr int32_t kFirstByte = 3;
constexpr int32_t kSpace = 259;      // "▁"
constexpr int32_t kThe = 260;        // "▁the"
constexpr int32_t kTwoSpaces = 261;  // "▁▁"
constexpr int32_t kUser = 263;       // "▁x▁y"

ModelProto StreamModel() {
  ModelProto model =
      MakeByteFallbackModel(SegmentationType::kBpe, {"▁", "▁the", "▁▁", "é", "▁x▁y", "a"});
  model.pieces[kUser].type = PieceType::kUserDefined;
  return model;
}

std::unique_ptr<Tokenizer> Make(const ModelProto& model) {
  auto tokenizer = SentencePieceTokenizer::Create(SerializeModel(model));
  EXPECT_THAT(tokenizer, IsOk());
  return *std::move(tokenizer);
}

// Decodes by the definition in tokenizer.h, all at once: an oracle that keeps no state.
std::string DecodeAtOnce(const ModelProto& model, const Ids& ids, bool keep_leading_space) {
  std::string text;
  bool at_beginning =
      !keep_leading_space && (model.add_dummy_prefix || model.remove_extra_whitespaces);
  for (size_t i = 0; i < ids.size();) {
    std::string bytes;
    while (i < ids.size() && model.pieces[ids[i]].type == PieceType::kByte) {
      bytes.push_back(static_cast<char>(*ParseBytePiece(model.pieces[ids[i++]].text)));
    }
    for (std::string_view rest = bytes; !rest.empty();) {
      const Utf8Char c = ExamineUtf8(rest);
      const bool is_valid = c.kind == Utf8Kind::kValid;
      text.append(is_valid ? rest.substr(0, c.n_bytes) : kReplacementChar);
      rest.remove_prefix(is_valid ? c.n_bytes : 1);
    }
    if (i == ids.size()) break;
    const Piece& piece = model.pieces[ids[i++]];
    if (piece.type == PieceType::kControl) continue;
    if (piece.type == PieceType::kUnknown) {
      text.append(model.unk_surface);
      continue;
    }
    std::string_view rest = piece.text;
    if (at_beginning && text.empty() && rest.starts_with(kSpaceSymbol)) {
      rest.remove_prefix(kSpaceSymbol.size());
      if (!model.remove_extra_whitespaces) at_beginning = false;
    }
    while (!rest.empty()) {
      const bool is_space = rest.starts_with(kSpaceSymbol);
      const size_t n_bytes = Utf8Length(rest);
      text.append(is_space ? " " : rest.substr(0, n_bytes));
      rest.remove_prefix(n_bytes);
    }
  }
  return text;
}

TEST(StreamDecoderTest, HoldsBackHalfACharacter) {
  const auto tokenizer = Make(StreamModel());
  StreamDecoder decoder(*tokenizer);
  EXPECT_EQ(*decoder.Append(kFirstByte + 0xF0), "");
  EXPECT_EQ(*decoder.Append(kFirstByte + 0x9F), "");
  EXPECT_EQ(*decoder.Append(kFirstByte + 0x99), "");
  EXPECT_EQ(*decoder.Append(kFirstByte + 0x82), "\U0001F642");
  EXPECT_EQ(decoder.Finish(), "");
}

TEST(StreamDecoderTest, GivesOneReplacementForEachBrokenByte) {
  const auto tokenizer = Make(StreamModel());
  StreamDecoder decoder(*tokenizer, {.keep_leading_space = true});
  EXPECT_EQ(*decoder.Append(kFirstByte + 0xF0), "");
  EXPECT_EQ(*decoder.Append(kFirstByte + 0x9F), "");
  EXPECT_EQ(*decoder.Append(kThe), "\uFFFD\uFFFD the");
  EXPECT_EQ(*decoder.Append(kFirstByte + 0xFF), "\uFFFD");
  EXPECT_EQ(*decoder.Append(kFirstByte + 0xE2), "");
  EXPECT_EQ(*decoder.Append(kFirstByte + 'x'), "\uFFFDx");
  EXPECT_EQ(*decoder.Append(kFirstByte + 0xC3), "");
  EXPECT_EQ(decoder.Finish(), "\uFFFD");
}

TEST(StreamDecoderTest, AControlPieceEndsACharacter) {
  const auto tokenizer = Make(StreamModel());
  EXPECT_EQ(*tokenizer->Decode(Ids{kFirstByte + 0xC3, kBos, kFirstByte + 0xA9}), "\uFFFD\uFFFD");
  EXPECT_EQ(*tokenizer->Decode(Ids{kFirstByte + 0xC3, kFirstByte + 0xA9}), "é");
}

TEST(StreamDecoderTest, ControlPiecesAreTextWhereAskedFor) {
  const auto tokenizer = Make(StreamModel());
  const std::string bos(*tokenizer->IdToPiece(kBos));
  const std::vector<std::string> shown = {"[X]", bos};
  const DecodeOptions options = {.shown_pieces = shown};
  const Ids ids = {kBos, kThe, kFirstByte + 0xC3, kBos, kBos + 1};
  EXPECT_EQ(*tokenizer->Decode(ids, options), bos + " the\uFFFD" + bos);
  EXPECT_EQ(*tokenizer->Decode(ids), "the\uFFFD");
}

TEST(StreamDecoderTest, TakesTheDummyPrefixOffOnce) {
  const auto tokenizer = Make(StreamModel());
  EXPECT_EQ(*tokenizer->Decode(Ids{kBos, kThe, kThe}), "the the");
  EXPECT_EQ(*tokenizer->Decode(Ids{kSpace, kThe}), " the");
  EXPECT_EQ(*tokenizer->Decode(Ids{kTwoSpaces}), " ");
  EXPECT_EQ(*tokenizer->Decode(Ids{kFirstByte + 'x', kThe}), "x the");
  EXPECT_EQ(*tokenizer->Decode(Ids{kUnk, kThe}), " \u2047  the");
  EXPECT_EQ(*tokenizer->Decode(Ids{kUser}), "x y");
}

TEST(StreamDecoderTest, AContinuationKeepsItsLeadingSpace) {
  const auto tokenizer = Make(StreamModel());
  const DecodeOptions continuation = {.keep_leading_space = true};
  EXPECT_EQ(*tokenizer->Decode(Ids{kThe, kThe}, continuation), " the the");
  StreamDecoder decoder(*tokenizer, continuation);
  EXPECT_EQ(*decoder.Append(kThe), " the");
}

TEST(StreamDecoderTest, WithoutDummyPrefixEverySpaceStays) {
  ModelProto model = StreamModel();
  model.add_dummy_prefix = false;
  EXPECT_EQ(*Make(model)->Decode(Ids{kThe}), " the");
}

TEST(StreamDecoderTest, ModelThatRemovesExtraSpacesLosesAllLeadingPieces) {
  ModelProto model = StreamModel();
  model.remove_extra_whitespaces = true;
  EXPECT_EQ(*Make(model)->Decode(Ids{kSpace, kSpace, kThe, kThe}), "the the");
}

TEST(StreamDecoderTest, RejectsIdsOutsideTheVocabularyAndGoesOn) {
  const auto tokenizer = Make(StreamModel());
  StreamDecoder decoder(*tokenizer);
  EXPECT_EQ(*decoder.Append(kFirstByte + 0xC3), "");
  EXPECT_THAT(decoder.Append(-1), IsInvalid("token id -1, expected 0 to 264"));
  EXPECT_THAT(decoder.Append(265), IsInvalid("token id 265, expected 0 to 264"));
  EXPECT_EQ(*decoder.Append(kFirstByte + 0xA9), "é");
}

TEST(StreamDecoderTest, BeginsAgainAfterFinish) {
  const auto tokenizer = Make(StreamModel());
  StreamDecoder decoder(*tokenizer);
  for (int round = 0; round < 2; ++round) {
    EXPECT_EQ(*decoder.Append(kThe), "the");
    EXPECT_EQ(decoder.Finish(), "");
  }
}

struct RandomCase {
  bool add_dummy_prefix;
  bool remove_extra_whitespaces;
  bool keep_leading_space;
  const char* unk_surface;
};

class RandomIdsTest : public testing::TestWithParam<RandomCase> {};

TEST_P(RandomIdsTest, PartsAreUtf8AndJoinToTheWhole) {
  ModelProto model = StreamModel();
  model.add_dummy_prefix = GetParam().add_dummy_prefix;
  model.remove_extra_whitespaces = GetParam().remove_extra_whitespaces;
  model.unk_surface = GetParam().unk_surface;
  const DecodeOptions options = {.keep_leading_space = GetParam().keep_leading_space};
  const auto tokenizer = Make(model);
  std::mt19937 random(5);
  // Bytes that often meet to form characters, beside all other pieces.
  const Ids bytes = {0xC3, 0xA9, 0xE2, 0x96, 0x81, 0xF0, 0x9F, 0x99, 0x82, 0x41, 0xED, 0xA0, 0xFF};
  for (int round = 0; round < 20000; ++round) {
    Ids ids(random() % 12);
    for (int32_t& id : ids) {
      const bool is_byte = random() % 2 == 0;
      id = is_byte ? kFirstByte + bytes[random() % bytes.size()]
                   : static_cast<int32_t>(random() % 9 < 3 ? random() % 3 : 259 + random() % 6);
    }
    StreamDecoder decoder(*tokenizer, options);
    std::string joined;
    for (const int32_t id : ids) {
      const std::string part = *decoder.Append(id);
      ASSERT_EQ(FindInvalidUtf8(part), std::nullopt);
      joined += part;
    }
    joined += decoder.Finish();
    ASSERT_EQ(joined, *tokenizer->Decode(ids, options)) << testing::PrintToString(ids);
    ASSERT_EQ(joined, DecodeAtOnce(model, ids, options.keep_leading_space))
        << testing::PrintToString(ids);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, RandomIdsTest,
                         testing::Values(RandomCase{true, false, false, " \u2047 "},
                                         RandomCase{true, true, false, " \u2047 "},
                                         RandomCase{false, true, false, ""},
                                         RandomCase{false, false, false, "?"},
                                         RandomCase{true, false, true, ""}));

}  // namespace
}  // namespace lowkey
