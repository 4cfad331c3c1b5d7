#include "server/hub/model_reference.h"

#include <gtest/gtest.h>

namespace lowkey {
namespace {

TEST(ModelReferenceTest, HasOwnerAndName) {
  const auto reference = ParseModelReference("hf:acme/Some-Model_1.5");
  ASSERT_TRUE(reference.ok());
  EXPECT_EQ(reference->owner, "acme");
  EXPECT_EQ(reference->name, "Some-Model_1.5");
  EXPECT_EQ(reference->revision, "main");
  EXPECT_EQ(reference->quant, "");
  EXPECT_EQ(reference->Text(), "hf:acme/Some-Model_1.5");
}

TEST(ModelReferenceTest, MayHaveRevisionAndQuant) {
  const auto reference = ParseModelReference("hf:acme/model@refs/pr/1:Q4_K_M");
  ASSERT_TRUE(reference.ok());
  EXPECT_EQ(reference->revision, "refs/pr/1");
  EXPECT_EQ(reference->quant, "Q4_K_M");
  EXPECT_EQ(reference->Text(), "hf:acme/model@refs/pr/1");
}

TEST(ModelReferenceTest, RefusesWhatIsNone) {
  for (const std::string text : {"hf:",
                                 "hf:model",
                                 "hf:/model",
                                 "hf:acme/",
                                 "hf:acme/a/b",
                                 "hf:../model",
                                 "hf:acme/..",
                                 "hf:acme/.",
                                 "hf:acme/a..b",
                                 "hf:acme/model:",
                                 "hf:acme/model@",
                                 "hf:acme/model@:Q8_0",
                                 "hf:acme/model@../x",
                                 "hf:acme/model@a/../b",
                                 "hf:acme/model@/main",
                                 "hf:acme/model@a//b",
                                 "hf:acme/model:Q4/..",
                                 "hf:acme/mo del",
                                 "hf:acme/model?x",
                                 "hf:acme/model#x",
                                 "hf:acme/mod\nel",
                                 "hf:acme/%2e%2e",
                                 "hf:acme/model:Q4:Q5",
                                 "acme/model"}) {
    EXPECT_FALSE(ParseModelReference(text).ok()) << text;
  }
  EXPECT_FALSE(ParseModelReference(std::string("hf:acme/mo\0del", 14)).ok());
  EXPECT_FALSE(ParseModelReference("hf:acme/" + std::string(97, 'a')).ok());
  const auto status = ParseModelReference("hf:" + std::string(1 << 20, 'a')).status();
  EXPECT_LT(status.message().size(), 1000u);
}

TEST(ModelReferenceTest, OnlyHubsAreReferences) {
  EXPECT_TRUE(IsModelReference("hf:acme/model"));
  EXPECT_FALSE(IsModelReference("models/hf:x"));
  EXPECT_FALSE(IsModelReference(""));
}

TEST(ModelReferenceTest, CommitsAreFortyLowerCaseDigits) {
  EXPECT_TRUE(IsCommit("0123456789abcdef0123456789abcdef01234567"));
  EXPECT_FALSE(IsCommit("0123456789ABCDEF0123456789abcdef01234567"));
  EXPECT_FALSE(IsCommit("0123456789abcdef0123456789abcdef0123456"));
  EXPECT_FALSE(IsCommit("main"));
}

}  // namespace
}  // namespace lowkey
