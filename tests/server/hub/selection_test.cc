#include "server/hub/selection.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace lowkey {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;

absl::StatusOr<FileSelection> Select(const std::vector<std::string>& paths,
                                     const std::string& quant = "") {
  std::vector<HubFile> files;
  for (const std::string& path : paths) files.push_back({path, 1, std::string(64, 'a'), true});
  ModelReference reference;
  reference.owner = "acme";
  reference.name = "model";
  reference.quant = quant;
  return SelectFiles(reference, files);
}

std::vector<std::string> Paths(const absl::StatusOr<FileSelection>& selection) {
  std::vector<std::string> paths;
  if (!selection.ok()) return {std::string(selection.status().message())};
  for (const HubFile& file : selection->files) paths.push_back(file.path);
  return paths;
}

TEST(SelectionTest, TakesADirectory) {
  const auto selection =
      Select({"README.md", "config.json", "model.safetensors", "onnx/model.onnx", "tokenizer.json",
              "pytorch_model.bin", "model.fp16.safetensors", "generation_config.json",
              "consolidated.safetensors", "sub/config.json", "chat_template.jinja"});
  EXPECT_THAT(Paths(selection),
              UnorderedElementsAre("config.json", "model.safetensors", "tokenizer.json",
                                   "generation_config.json", "chat_template.jinja"));
  EXPECT_EQ(selection->main, "");
}

TEST(SelectionTest, TakesTheShardsOfAnIndex) {
  EXPECT_THAT(
      Paths(Select({"config.json", "model-00002-of-00002.safetensors",
                    "model.safetensors.index.json", "model-00001-of-00002.safetensors",
                    "model.safetensors", "consolidated-00001-of-00002.safetensors"})),
      UnorderedElementsAre("config.json", "model.safetensors.index.json",
                           "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors"));
}

TEST(SelectionTest, NamesAMissingShard) {
  EXPECT_THAT(
      Paths(Select({"config.json", "model.safetensors.index.json",
                    "model-00001-of-00003.safetensors", "model-00003-of-00003.safetensors"}))[0],
      HasSubstr("part 2 of 3 of model*.safetensors is missing"));
  EXPECT_THAT(Paths(Select({"config.json", "model.safetensors.index.json"}))[0],
              HasSubstr("0 sets of shards"));
}

TEST(SelectionTest, TakesABundlesWeights) {
  EXPECT_THAT(Paths(Select({"config.json", "model.safetensors", "lowkey.json",
                            "efficient.safetensors", "consolidated.safetensors"})),
              UnorderedElementsAre("config.json", "model.safetensors", "lowkey.json",
                                   "efficient.safetensors"));
  EXPECT_THAT(
      Paths(Select({"q/a.Q8_0.gguf", "q/lowkey.json", "q/atp.safetensors", "other.safetensors"},
                   "Q8_0")),
      UnorderedElementsAre("q/a.Q8_0.gguf", "q/lowkey.json", "q/atp.safetensors"));
}

TEST(SelectionTest, TakesTheOnlyGguf) {
  const auto selection = Select({"README.md", "m.Q8_0.gguf", "mmproj-f16.gguf", "m.imatrix.gguf"});
  EXPECT_THAT(Paths(selection), ElementsAre("m.Q8_0.gguf"));
  EXPECT_EQ(selection->main, "m.Q8_0.gguf");
}

TEST(SelectionTest, TakesTheGgufOfAQuant) {
  const std::vector<std::string> paths = {"M-Q4_K_M.gguf", "M-Q4_K_S.gguf", "M-Q4_K.gguf",
                                          "M-Q8_0.gguf",   "config.json",   "model.safetensors"};
  EXPECT_THAT(Paths(Select(paths, "q8_0")), ElementsAre("M-Q8_0.gguf"));
  EXPECT_THAT(Paths(Select(paths, "Q4_K")), ElementsAre("M-Q4_K.gguf"));
  EXPECT_THAT(Paths(Select(paths, "Q4_K_S")), ElementsAre("M-Q4_K_S.gguf"));
  EXPECT_THAT(Paths(Select({"m_q4_k_m.gguf", "m_q8_0.gguf"}, "Q4_K")),
              ElementsAre("m_q4_k_m.gguf"));
}

TEST(SelectionTest, TakesAllPartsOfASplitGguf) {
  const auto selection =
      Select({"Q4/m-Q4-00002-of-00002.gguf", "Q4/m-Q4-00001-of-00002.gguf", "Q8/m-Q8.gguf"}, "Q4");
  EXPECT_THAT(Paths(selection),
              ElementsAre("Q4/m-Q4-00001-of-00002.gguf", "Q4/m-Q4-00002-of-00002.gguf"));
  EXPECT_EQ(selection->main, "Q4/m-Q4-00001-of-00002.gguf");
  EXPECT_THAT(Paths(Select({"m-Q4-00002-of-00002.gguf"}, "Q4"))[0],
              HasSubstr("part 1 of 2 of m-Q4*.gguf is missing"));
  EXPECT_THAT(Paths(Select({"m-00001-of-99999.gguf"}))[0], HasSubstr("part 2 of 99999"));
}

TEST(SelectionTest, ListsWhatThereIs) {
  const std::vector<std::string> paths = {"M-Q4_K_M.gguf", "M-Q8_0.gguf"};
  EXPECT_THAT(
      Paths(Select(paths))[0],
      HasSubstr("hf:acme/model: several GGUF models, expected a :QUANT that one of them has "
                "in its name; there are M-Q4_K_M.gguf, M-Q8_0.gguf"));
  EXPECT_THAT(Paths(Select(paths, "Q5"))[0],
              HasSubstr("no GGUF file has \"Q5\" in its name; there are M-Q4_K_M.gguf"));
  EXPECT_THAT(Paths(Select(paths, "q"))[0], HasSubstr("several GGUF models have \"q\""));
  EXPECT_THAT(Paths(Select({"config.json", "model.safetensors"}, "Q5"))[0],
              HasSubstr("there is none"));
  EXPECT_THAT(Paths(Select({"pytorch_model.bin"}))[0], HasSubstr("no GGUF file"));
  std::vector<std::string> many;
  for (int i = 100; i < 200; ++i) many.push_back("m" + std::to_string(i) + ".gguf");
  EXPECT_THAT(Paths(Select(many))[0], HasSubstr("m119.gguf and 80 more"));
}

TEST(SelectionTest, OddPartNamesAreFilesOfTheirOwn) {
  for (const std::string path : {"m-00000-of-00002.gguf", "m-1-of-2.gguf", "-00001-of-00001.gguf",
                                 "m-0000x-of-00001.gguf", "00001-of-00001.gguf"}) {
    EXPECT_THAT(Paths(Select({path})), ElementsAre(path));
  }
}

}  // namespace
}  // namespace lowkey
