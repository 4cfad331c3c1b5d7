#include "tokenizer/sentencepiece/model_proto.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/tokenizer/sentencepiece/model_builder.h"
#include "tests/tokenizer/status_matchers.h"

namespace lowkey {
namespace {

constexpr SegmentationType kBpe = SegmentationType::kBpe;

absl::Status ParseAndValidate(std::string_view bytes) {
  const absl::StatusOr<ModelProto> model = ParseModelProto(bytes);
  return model.ok() ? ValidateModelProto(*model) : model.status();
}

std::string PieceMessage(std::string_view text) {
  return WireWriter().Bytes(1, WireWriter().Bytes(1, text).data()).data();
}

TEST(ParseModelProtoTest, ReadsBackWhatWasWritten) {
  ModelProto model = MakeByteFallbackModel(kBpe, {"a", "b"});
  model.unk_id = 0;
  model.bos_id = 1;
  model.eos_id = -1;
  model.unk_surface = "?";
  model.charsmap = "map";
  model.add_dummy_prefix = false;
  const absl::StatusOr<ModelProto> parsed = ParseModelProto(SerializeModel(model));
  ASSERT_THAT(parsed, IsOk());
  ASSERT_EQ(parsed->pieces.size(), model.pieces.size());
  EXPECT_EQ(parsed->pieces[260].text, "b");
  EXPECT_EQ(parsed->pieces[260].score, -1);
  EXPECT_EQ(parsed->pieces[3].type, PieceType::kByte);
  EXPECT_EQ(parsed->segmentation, kBpe);
  EXPECT_TRUE(parsed->byte_fallback);
  EXPECT_EQ(parsed->unk_id, 0);
  EXPECT_EQ(parsed->bos_id, 1);
  EXPECT_EQ(parsed->eos_id, -1);
  EXPECT_EQ(parsed->unk_surface, "?");
  EXPECT_EQ(parsed->charsmap, "map");
  EXPECT_FALSE(parsed->add_dummy_prefix);
  EXPECT_FALSE(parsed->remove_extra_whitespaces);
  EXPECT_THAT(ValidateModelProto(*parsed), IsOk());
}

TEST(ParseModelProtoTest, TakesSentencePiecesDefaultsForWhatTheFileOmits) {
  const absl::StatusOr<ModelProto> model = ParseModelProto(PieceMessage("a"));
  ASSERT_THAT(model, IsOk());
  EXPECT_EQ(model->pieces[0].type, PieceType::kNormal);
  EXPECT_EQ(model->segmentation, SegmentationType::kUnigram);
  EXPECT_TRUE(model->add_dummy_prefix);
  EXPECT_TRUE(model->remove_extra_whitespaces);
  EXPECT_EQ(model->unk_surface, " \u2047 ");
  EXPECT_EQ(model->unk_id, std::nullopt);
}

TEST(ParseModelProtoTest, TakesTheDefaultForAnEmptyBosPiece) {
  ModelProto model = MakeModel(kBpe, {"a"});
  model.bos_piece = "";
  EXPECT_EQ(ParseModelProto(SerializeModel(model))->bos_piece, "<s>");
}

TEST(ParseModelProtoTest, SkipsSelfTestsAndUnknownFields) {
  const std::string bytes = SerializeModel(MakeModel(kBpe, {"a"})) +
                            WireWriter().Bytes(4, "\xFF\xFF").Varint(77, 1).Bytes(300, "x").data();
  EXPECT_THAT(ParseAndValidate(bytes), IsOk());
}

TEST(ParseModelProtoTest, RejectsEveryTruncationOfPieces) {
  const std::string bytes = PieceMessage("abc");
  for (size_t n = 1; n < bytes.size(); ++n) {
    EXPECT_THAT(ParseModelProto(bytes.substr(0, n)), IsInvalid("malformed message"));
  }
}

TEST(ParseModelProtoTest, NamesThePieceOfAnUnknownType) {
  const std::string bytes =
      PieceMessage("a") + WireWriter().Bytes(1, WireWriter().Varint(3, 9).data()).data();
  EXPECT_THAT(ParseModelProto(bytes), IsInvalid("piece 1: type 9, expected 1 to 6"));
}

TEST(ParseModelProtoTest, RejectsUnknownModelType) {
  EXPECT_THAT(ParseModelProto(WireWriter().Bytes(2, WireWriter().Varint(3, 5).data()).data()),
              IsInvalid("trainer_spec: model_type 5, expected 1 to 4"));
}

TEST(ParseModelProtoTest, RejectsWrongWireTypes) {
  EXPECT_THAT(ParseModelProto(WireWriter().Varint(1, 1).data()),
              IsInvalid("piece 0: field 1: wire type 0, expected 2"));
  EXPECT_THAT(ParseModelProto(WireWriter().Bytes(1, WireWriter().Varint(2, 1).data()).data()),
              IsInvalid("piece 0: field 2: wire type 0, expected 5"));
  EXPECT_THAT(ParseModelProto(WireWriter().Bytes(2, WireWriter().Float(35, 1).data()).data()),
              IsInvalid("trainer_spec: field 35"));
  EXPECT_THAT(ParseModelProto(WireWriter().Bytes(3, WireWriter().Varint(2, 1).data()).data()),
              IsInvalid("normalizer_spec: field 2"));
}

TEST(ParseModelProtoTest, RejectsPieceOverTheLengthLimit) {
  EXPECT_THAT(ParseModelProto(PieceMessage(std::string(kMaxPieceBytes, 'a'))), IsOk());
  EXPECT_THAT(ParseModelProto(PieceMessage(std::string(kMaxPieceBytes + 1, 'a'))),
              IsInvalid("piece 0: field 1: 513 bytes, expected at most 512"));
}

TEST(ParseModelProtoTest, RejectsMorePiecesThanTheLimitWhileItReads) {
  std::string bytes;
  for (size_t i = 0; i <= kMaxPieces; ++i) bytes.append("\x0A\x00", 2);
  EXPECT_THAT(ParseModelProto(bytes), IsInvalid("pieces: more than 1048576"));
}

TEST(ParseModelProtoTest, RejectsMorePieceBytesThanTheLimit) {
  const std::string piece = PieceMessage(std::string(kMaxPieceBytes, 'a'));
  std::string bytes;
  for (size_t i = 0; i <= kMaxTotalPieceBytes / kMaxPieceBytes; ++i) bytes.append(piece);
  EXPECT_THAT(ParseModelProto(bytes), IsInvalid("bytes in all"));
}

TEST(ParseModelProtoTest, RejectsFileOverTheLimit) {
  EXPECT_THAT(ParseModelProto(std::string(kMaxModelBytes + 1, '\0')),
              IsInvalid("67108865 bytes, expected at most 67108864"));
}

TEST(ValidateModelProtoTest, RejectsModelWithoutPieces) {
  EXPECT_THAT(ValidateModelProto({}), IsInvalid("pieces: none"));
}

TEST(ValidateModelProtoTest, RejectsMissingAndSecondUnknown) {
  ModelProto model = MakeModel(kBpe, {"a"});
  model.pieces[0].type = PieceType::kNormal;
  EXPECT_THAT(ValidateModelProto(model), IsInvalid("none of type unknown"));
  model.pieces[0].type = model.pieces[3].type = PieceType::kUnknown;
  EXPECT_THAT(ValidateModelProto(model),
              IsInvalid("piece 3 \"a\": type unknown, as is piece 0, expected one"));
}

TEST(ValidateModelProtoTest, RejectsBadPieces) {
  const auto with_piece = [](const std::string& text) { return MakeModel(kBpe, {"a", text}); };
  EXPECT_THAT(ValidateModelProto(with_piece("")), IsInvalid("piece 4 \"\": empty"));
  EXPECT_THAT(ValidateModelProto(with_piece("a")), IsInvalid("piece 4 \"a\": repeated"));
  EXPECT_THAT(ValidateModelProto(with_piece("<s>")), IsInvalid("piece 4 \"<s>\": repeated"));
  EXPECT_THAT(ValidateModelProto(with_piece("\xE2\x96")),
              IsInvalid("piece 4 \"\\xe2\\x96\": not UTF-8"));
  EXPECT_THAT(ValidateModelProto(with_piece(std::string("a\0", 2))), IsInvalid("holds a NUL"));
}

TEST(ValidateModelProtoTest, RejectsPiecesThatAreTooLongAloneOrTogether) {
  EXPECT_THAT(ValidateModelProto(MakeModel(kBpe, {std::string(kMaxPieceBytes, 'a')})), IsOk());
  EXPECT_THAT(ValidateModelProto(MakeModel(kBpe, {std::string(kMaxPieceBytes + 1, 'a')})),
              IsInvalid("piece 3: 513 bytes, expected at most 512"));
  std::vector<std::string> texts;
  for (size_t i = 0; i <= kMaxTotalPieceBytes / kMaxPieceBytes; ++i) {
    texts.push_back(std::string(kMaxPieceBytes - 8, 'a') + std::to_string(10'000'000 + i));
  }
  EXPECT_THAT(ValidateModelProto(MakeModel(kBpe, texts)), IsInvalid("bytes in all"));
}

TEST(ValidateModelProtoTest, RejectsScoresThatAreNotFinite) {
  ModelProto model = MakeModel(kBpe, {"a"});
  model.pieces[3].score = std::nanf("");
  EXPECT_THAT(ValidateModelProto(model), IsInvalid("piece 3 \"a\": score nan"));
  model.pieces[3].score = -std::numeric_limits<float>::infinity();
  EXPECT_THAT(ValidateModelProto(model), IsInvalid("score -inf, expected a finite number"));
}

TEST(ValidateModelProtoTest, RejectsMalformedIncompleteAndStrayBytePieces) {
  ModelProto model = MakeByteFallbackModel(kBpe, {"a"});
  model.pieces[3].text = "<0x0a>";
  EXPECT_THAT(ValidateModelProto(model), IsInvalid("piece 3 \"<0x0a>\": type byte"));
  model.pieces[3] = {"z", 0, PieceType::kNormal};
  EXPECT_THAT(ValidateModelProto(model), IsInvalid("byte pieces: 255 with byte_fallback"));
  model = MakeByteFallbackModel(kBpe, {"a"});
  model.byte_fallback = false;
  EXPECT_THAT(ValidateModelProto(model), IsInvalid("expected none without byte_fallback"));
}

TEST(ValidateModelProtoTest, RejectsStatedIdsThatDisagreeWithThePieces) {
  ModelProto model = MakeModel(kBpe, {"a"});
  model.unk_id = 3;
  EXPECT_THAT(ValidateModelProto(model), IsInvalid("unk_id 3 is piece \"a\", expected \"<unk>\""));
  model.unk_id = 0;
  model.bos_id = 4;
  EXPECT_THAT(ValidateModelProto(model), IsInvalid("bos_id 4, expected less than 4"));
  model.bos_id = -1;
  model.eos_id = 1;
  EXPECT_THAT(ValidateModelProto(model), IsInvalid("eos_id 1 is piece \"<s>\""));
  model.eos_id = 2;
  EXPECT_THAT(ValidateModelProto(model), IsOk());
}

TEST(ValidateModelProtoTest, NamesWhatIsNotSupported) {
  constexpr auto kUnimplemented = absl::StatusCode::kUnimplemented;
  EXPECT_THAT(ValidateModelProto(MakeModel(SegmentationType::kWord, {"a"})),
              FailsWith(kUnimplemented, "model_type 3"));
  EXPECT_THAT(ValidateModelProto(MakeModel(SegmentationType::kChar, {"a"})),
              FailsWith(kUnimplemented, "model_type 4"));
  ModelProto model = MakeModel(kBpe, {"a"});
  model.treat_whitespace_as_suffix = true;
  EXPECT_THAT(ValidateModelProto(model), FailsWith(kUnimplemented, "treat_whitespace_as_suffix"));
  model = MakeModel(kBpe, {"a"});
  model.escape_whitespaces = false;
  EXPECT_THAT(ValidateModelProto(model), FailsWith(kUnimplemented, "escape_whitespaces"));
  model = MakeModel(kBpe, {"a"});
  model.has_denormalizer = true;
  EXPECT_THAT(ParseAndValidate(SerializeModel(model)),
              FailsWith(kUnimplemented, "denormalizer_spec"));
}

TEST(ValidateModelProtoTest, RejectsUnknownSurfaceThatIsNotUtf8) {
  ModelProto model = MakeModel(kBpe, {"a"});
  model.unk_surface = "\xFF";
  EXPECT_THAT(ValidateModelProto(model), IsInvalid("unk_surface is not UTF-8"));
}

}  // namespace
}  // namespace lowkey
