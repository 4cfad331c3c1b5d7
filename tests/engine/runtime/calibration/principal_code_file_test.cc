#include "engine/runtime/calibration/principal_code_file.h"

#include <cstring>
#include <limits>
#include <random>

#include "engine/loader/safetensors.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/engine/runtime/calibration/coded_model.h"

namespace lowkey {
namespace {

using ::testing::HasSubstr;

void ExpectEqual(const std::vector<PrincipalCode>& read,
                 const std::vector<PrincipalCode>& written) {
  ASSERT_EQ(read.size(), written.size());
  for (size_t i = 0; i < read.size(); ++i) {
    EXPECT_EQ(read[i].mean, written[i].mean);
    EXPECT_EQ(read[i].variances, written[i].variances);
    EXPECT_EQ(read[i].encode, written[i].encode);
    EXPECT_EQ(read[i].decode, written[i].decode);
  }
}

class PrincipalCodeFileTest : public ::testing::Test {
 protected:
  PrincipalCodeFileTest() : codes_(coded_.Calibrate()) {}

  uint64_t fingerprint() const { return WeightsFingerprint(*coded_.checkpoint()); }
  enum class Part { kPrefixes, kKeys, kValues };
  // Writes codes after an edit, reads them, and returns what is said of them.
  template <typename Edit>
  absl::Status StatusAfter(const Edit& edit, Part part = Part::kPrefixes) {
    PrincipalCodes edited = *codes_;
    edit(part == Part::kPrefixes ? edited.prefixes.codes[1]
         : part == Part::kKeys   ? edited.heads.keys[1]
                                 : edited.heads.values[1]);
    EXPECT_TRUE(WritePrincipalCodes(path_, edited, fingerprint()).ok());
    return ReadPrincipalCodes(path_, *coded_.checkpoint()).status();
  }

  const CodedModel coded_;
  const std::shared_ptr<const PrincipalCodes> codes_;
  const TempDirectory directory_;
  const std::string path_ = directory_.File("principal.safetensors");
};

TEST_F(PrincipalCodeFileTest, WhatIsWrittenIsReadBack) {
  ASSERT_TRUE(WritePrincipalCodes(path_, *codes_, fingerprint()).ok());
  const auto read = ReadPrincipalCodes(path_, *coded_.checkpoint());
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ((*read)->prefixes.inverse_frequencies, codes_->prefixes.inverse_frequencies);
  ExpectEqual((*read)->prefixes.codes, codes_->prefixes.codes);
  ExpectEqual((*read)->heads.keys, codes_->heads.keys);
  ExpectEqual((*read)->heads.values, codes_->heads.values);
  ASSERT_TRUE(WritePrincipalCodes(path_, *codes_, fingerprint()).ok());  // replaces the file
}

TEST_F(PrincipalCodeFileTest, LiesBesideTheModel) {
  EXPECT_EQ(PrincipalCodePath("/models/llama"), "/models/llama/principal.safetensors");
  EXPECT_EQ(PrincipalCodePath("/models/chat.gguf"), "/models/chat.principal.safetensors");
  EXPECT_EQ(PrincipalCodePath("chat.gguf"), "chat.principal.safetensors");
}

TEST_F(PrincipalCodeFileTest, RefusesAnotherModelsFile) {
  ASSERT_TRUE(WritePrincipalCodes(path_, *codes_, fingerprint()).ok());
  const CodedModel other(2);
  const absl::Status status = ReadPrincipalCodes(path_, *other.checkpoint()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()), HasSubstr("another model"));
  EXPECT_THAT(std::string(status.message()), HasSubstr(path_));
}

TEST_F(PrincipalCodeFileTest, TheFingerprintSeesOneChangedWeight) {
  std::string bytes = ReadFileOrDie(coded_.model().File("model.safetensors"));
  const TempDirectory copy;
  WriteFileOrDie(copy.File("config.json"), ReadFileOrDie(coded_.model().File("config.json")));
  WriteFileOrDie(copy.File("model.safetensors"), bytes);
  EXPECT_EQ(WeightsFingerprint(**OpenCheckpoint(copy.path())), fingerprint());
  bytes.back() ^= 1;
  WriteFileOrDie(copy.File("model.safetensors"), bytes);
  EXPECT_NE(WeightsFingerprint(**OpenCheckpoint(copy.path())), fingerprint());
}

TEST_F(PrincipalCodeFileTest, RefusesNumbersThatAreNotFiniteAndVariancesOutOfOrder) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(StatusAfter([](PrincipalCode&) {}).ok());
  const auto refused = [&](const auto& edit, const char* tensor) {
    const absl::Status status = StatusAfter(edit);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << tensor;
    EXPECT_THAT(std::string(status.message()), HasSubstr(tensor));
  };
  refused([](PrincipalCode& c) { c.mean[3] = kNan; }, "tensor mean");
  refused([](PrincipalCode& c) { c.variances[0] = std::numeric_limits<float>::infinity(); },
          "tensor variances");
  refused([](PrincipalCode& c) { c.variances.back() = -1; }, "tensor variances");
  refused([](PrincipalCode& c) { std::swap(c.variances[0], c.variances[5]); }, "tensor variances");
  refused([](PrincipalCode& c) { c.encode[7] = 0x7fc0; }, "tensor encode");
  refused([](PrincipalCode& c) { c.decode[7] = 0xff80; }, "tensor decode");
  const auto spoil = [](PrincipalCode& c) { c.mean[3] = kNan; };
  EXPECT_THAT(std::string(StatusAfter(spoil, Part::kKeys).message()), HasSubstr("tensor key_mean"));
  EXPECT_THAT(std::string(StatusAfter(spoil, Part::kValues).message()),
              HasSubstr("tensor value_mean"));
}

TEST_F(PrincipalCodeFileTest, RefusesAnotherFormatAndMissingOrMisshapenTensors) {
  const std::vector<int64_t> two = {99, 0};
  const TensorView format{DType::kI64, {1}, reinterpret_cast<const std::byte*>(two.data())};
  const TensorView pair{DType::kI64, {2}, reinterpret_cast<const std::byte*>(two.data())};
  using Named = std::pair<std::string, TensorView>;
  ASSERT_TRUE(WriteSafetensors(path_, std::vector<Named>{{"format", format}}).ok());
  EXPECT_EQ(ReadPrincipalCodes(path_, *coded_.checkpoint()).status().code(),
            absl::StatusCode::kFailedPrecondition);
  ASSERT_TRUE(WriteSafetensors(path_, std::vector<Named>{{"format", pair}}).ok());
  EXPECT_EQ(ReadPrincipalCodes(path_, *coded_.checkpoint()).status().code(),
            absl::StatusCode::kInvalidArgument);
  ASSERT_TRUE(WriteSafetensors(path_, std::vector<Named>{{"other", format}}).ok());
  EXPECT_EQ(ReadPrincipalCodes(path_, *coded_.checkpoint()).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ReadPrincipalCodes(directory_.File("none"), *coded_.checkpoint()).status().code(),
            absl::StatusCode::kNotFound);
}

TEST_F(PrincipalCodeFileTest, SurvivesTruncationAndRandomBytes) {
  ASSERT_TRUE(WritePrincipalCodes(path_, *codes_, fingerprint()).ok());
  const std::string good = ReadFileOrDie(path_);
  const std::string bad = directory_.File("bad.safetensors");
  for (size_t n = 0; n < good.size(); n += n < 600 ? 7 : 1009) {
    WriteFileOrDie(bad, good.substr(0, n));
    EXPECT_FALSE(ReadPrincipalCodes(bad, *coded_.checkpoint()).ok()) << n;
  }
  std::mt19937 rng(3);
  for (int run = 0; run < 500; ++run) {
    std::string bytes = good;
    const size_t range = run % 2 == 0 ? 600 : bytes.size();
    for (int i = 0; i < 4; ++i) bytes[rng() % range] = static_cast<char>(rng());
    WriteFileOrDie(bad, bytes);
    const auto read = ReadPrincipalCodes(bad, *coded_.checkpoint());  // may be good: no checksum
    if (read.ok()) {
      EXPECT_EQ((*read)->prefixes.codes.size(), codes_->prefixes.codes.size());
    }
  }
}

TEST(FindPrincipalCodes, DoesNotDependOnThreadsAndChecksItsTexts) {
  const CodedModel coded;
  const auto one = coded.Calibrate(1), two = coded.Calibrate(2);
  EXPECT_EQ(one->prefixes.codes[0].encode, two->prefixes.codes[0].encode);
  EXPECT_EQ(one->prefixes.codes[1].variances, two->prefixes.codes[1].variances);
  const auto refused = [&](const std::vector<std::vector<int32_t>>& texts) {
    return FindPrincipalCodes(coded.checkpoint(), texts, {}, {}).status().code();
  };
  EXPECT_EQ(refused({}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(refused({{1, 2, 96}}), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(refused({std::vector<int32_t>(4097, 5)}), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(refused({{1, 2, 3, 4}}), absl::StatusCode::kFailedPrecondition);  // all are skipped
}

// Nothing but the header's own sizes is believed: a header may call for more than there is.
TEST(ReadPrincipalCodes, RefusesAFileThatIsNoSafetensors) {
  const CodedModel coded;
  const TempDirectory directory;
  WriteFileOrDie(directory.File("x"), std::string(100, '\xff'));
  EXPECT_EQ(ReadPrincipalCodes(directory.File("x"), *coded.checkpoint()).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace lowkey
