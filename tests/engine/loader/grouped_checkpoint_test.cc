#include "engine/loader/grouped_checkpoint.h"

#include <cstring>
#include <map>
#include <nlohmann/json.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/loader/checkpoint.h"
#include "engine/loader/safetensors.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/testing/source_path.h"
#include "tests/testing/tiny_model.h"

namespace lowkey {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;

const json kAwq = {{"quant_method", "awq"},
                   {"bits", 4},
                   {"group_size", 32},
                   {"version", "gemm"},
                   {"zero_point", true}};
const json kGptq = {
    {"quant_method", "gptq"}, {"bits", 4}, {"group_size", 32}, {"desc_act", false}, {"sym", true}};

absl::StatusOr<std::optional<GroupedConfig>> Parse(const json& quantization) {
  return ParseGroupedConfig(json{{"quantization_config", quantization}}.dump());
}

// Returns `base` with one field changed.
json With(json base, const char* key, const json& value) {
  base[key] = value;
  return base;
}

std::string ErrorOf(const json& quantization, absl::StatusCode code) {
  const absl::Status status = Parse(quantization).status();
  EXPECT_EQ(status.code(), code) << status;
  return std::string(status.message());
}

TEST(ParseGroupedConfig, IsAbsentWithoutTheField) {
  EXPECT_EQ((*ParseGroupedConfig("{}")).has_value(), false);
  EXPECT_EQ((*ParseGroupedConfig(R"({"quantization_config": null})")).has_value(), false);
}

TEST(ParseGroupedConfig, ReadsBothMethods) {
  const GroupedConfig awq = **Parse(kAwq);
  EXPECT_EQ(awq.dtype, DType::kAwq4);
  EXPECT_EQ(awq.group_size, 32);
  EXPECT_EQ(awq.zero_offset, 0);
  EXPECT_TRUE(Parse(With(kAwq, "version", "GEMM")).ok());
  const GroupedConfig gptq = **Parse(kGptq);
  EXPECT_EQ(gptq.dtype, DType::kGptq4);
  EXPECT_EQ(gptq.zero_offset, 1);
  EXPECT_FALSE(gptq.needs_g_idx);
  EXPECT_TRUE((**Parse(With(kGptq, "desc_act", true))).needs_g_idx);
  EXPECT_EQ((**Parse(With(kGptq, "checkpoint_format", "gptq_v2"))).zero_offset, 0);
  EXPECT_EQ((**Parse(With(kGptq, "checkpoint_format", "gptq"))).zero_offset, 1);
  EXPECT_EQ((**Parse(With(kGptq, "group_size", -1))).group_size, std::nullopt);
  EXPECT_TRUE(Parse(With(kGptq, "dynamic", json::object())).ok());
  EXPECT_EQ((**Parse(With(kGptq, "bits", 8))).dtype, DType::kGptq8);
}

TEST(ParseGroupedConfig, WhatWeDoNotReadIsUnimplementedByName) {
  const auto unimplemented = [](const json& quantization) {
    return ErrorOf(quantization, absl::StatusCode::kUnimplemented);
  };
  for (const char* method : {"bitsandbytes", "fp8", "compressed-tensors", "mxfp4"}) {
    EXPECT_EQ(unimplemented({{"quant_method", method}}),
              absl::StrCat("config.json: quantization_config: quant_method: \"", method,
                           "\" is not supported, expected \"awq\" or \"gptq\""));
  }
  EXPECT_THAT(unimplemented(json::object()), HasSubstr("quant_method: missing is not supported"));
  for (const int bits : {2, 3, 16}) {
    EXPECT_EQ(unimplemented(With(kGptq, "bits", bits)),
              absl::StrCat("config.json: quantization_config: bits: ", bits,
                           " is not supported, expected 4 or 8"));
  }
  EXPECT_EQ(unimplemented(With(kAwq, "bits", 8)),
            "config.json: quantization_config: bits: 8 is not supported, expected 4");
  EXPECT_THAT(unimplemented(With(kAwq, "group_size", 48)), HasSubstr("-1, 32, 64 or 128"));
  EXPECT_THAT(unimplemented(With(kAwq, "group_size", 0)), HasSubstr("-1, 32, 64 or 128"));
  EXPECT_THAT(unimplemented(With(kAwq, "version", "gemv")), HasSubstr("expected \"gemm\""));
  EXPECT_THAT(unimplemented(With(kAwq, "zero_point", false)), HasSubstr("zero_point: false"));
  EXPECT_THAT(unimplemented(With(kGptq, "checkpoint_format", "marlin")), HasSubstr("\"marlin\""));
  EXPECT_THAT(unimplemented(With(kGptq, "is_marlin_format", true)), HasSubstr("is_marlin_format"));
  EXPECT_THAT(unimplemented(With(kGptq, "pack_dtype", "int16")), HasSubstr("pack_dtype"));
  EXPECT_THAT(unimplemented(With(kGptq, "dynamic", {{"-:.*mlp.*", json::object()}})),
              HasSubstr("the same settings in every module"));
}

TEST(ParseGroupedConfig, WrongTypesAndRangesAreErrors) {
  for (const auto& [key, value] :
       std::vector<std::pair<const char*, json>>{{"bits", "4"},
                                                 {"bits", 0},
                                                 {"group_size", -2},
                                                 {"group_size", nullptr},
                                                 {"desc_act", 1},
                                                 {"sym", "yes"},
                                                 {"checkpoint_format", 2}}) {
    EXPECT_THAT(ErrorOf(With(kGptq, key, value), absl::StatusCode::kInvalidArgument),
                HasSubstr(absl::StrCat("config.json: quantization_config: ", key, ": ")));
  }
  EXPECT_FALSE(ParseGroupedConfig(R"({"quantization_config": "awq"})").ok());
}

struct GoldenMap {
  const char* name;
  GroupedConfig config;
};
const GoldenMap kGoldenMaps[] = {
    {"awq_32", {DType::kAwq4, 32}},
    {"awq_64", {DType::kAwq4, 64}},
    {"awq_128", {DType::kAwq4, 128}},
    {"awq_all", {DType::kAwq4, std::nullopt}},
    {"gptq_32", {DType::kGptq4, 32, true, 1}},
    {"gptq_64", {DType::kGptq4, 64, false, 1}},
    {"gptq_128", {DType::kGptq4, 128, false, 1}},
    {"gptq_all", {DType::kGptq4, std::nullopt, false, 1}},
    {"gptq_v2", {DType::kGptq4, 128, true, 0}},
};

// Packed maps against the floats that tests/golden/make_int4.py packed.
class GoldenInt4 : public ::testing::TestWithParam<GoldenMap> {};

TEST_P(GoldenInt4, RowsEqualTheScriptsToTheBit) {
  constexpr int64_t kOut = 16, kIn = 256;
  const GoldenMap& map = GetParam();
  LoadAccount account;
  auto table = TensorTable::OpenFile(SourcePath("tests/golden/int4"), "maps.safetensors", account);
  ASSERT_TRUE(table.ok()) << table.status();
  const auto expected = table->Take(absl::StrCat(map.name, ".expected"), {kOut, kIn});
  ASSERT_TRUE(expected.ok()) << expected.status();
  ASSERT_TRUE(IsGrouped(*table, map.name));
  const auto view = TakeGrouped(*table, map.name, map.config, {kOut, kIn});
  ASSERT_TRUE(view.ok()) << view.status();
  EXPECT_EQ(view->shape, (std::vector<int64_t>{kOut, kIn}));
  EXPECT_EQ(view->dtype, map.config.dtype);
  EXPECT_EQ(view->grouped->groups.empty(), !map.config.needs_g_idx);
  std::vector<float> row(kIn), expected_row(kIn);
  for (int64_t o = 0; o < kOut; ++o) {
    LoadRow(*view, o, row.data());
    LoadRow(*expected, o, expected_row.data());
    for (int64_t i = 0; i < kIn; ++i) {
      ASSERT_EQ(std::memcmp(&row[i], &expected_row[i], sizeof(float)), 0)
          << o << ", " << i << ": " << row[i] << ", expected " << expected_row[i];
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Maps, GoldenInt4, ::testing::ValuesIn(kGoldenMaps),
                         [](const auto& info) { return std::string(info.param.name); });

// A tiny model whose linear maps are packed (all codes 0), to be made wrong.
class PackedModel {
 public:
  explicit PackedModel(const json& quantization) : model_(Options()) {
    const auto file = OpenSafetensors(model_.File("model.safetensors"));
    EXPECT_TRUE(file.ok()) << file.status();
    for (const auto& [name, view] : file->index.tensors) {
      if (name.ends_with("_proj.weight")) {
        Pack(name.substr(0, name.size() - sizeof(".weight") + 1), view.shape, quantization);
      } else {
        Set(name, view.dtype, view.shape, {view.data, view.data + view.size_bytes()});
      }
    }
    SetQuantization(quantization);
  }

  void SetQuantization(const json& quantization) const {
    json config = json::parse(ReadFileOrDie(model_.File("config.json")));
    config["quantization_config"] = quantization;
    WriteFileOrDie(model_.File("config.json"), config.dump());
  }
  void Set(const std::string& name, DType dtype, const std::vector<int64_t>& shape,
           std::vector<std::byte> bytes = {}) {
    Tensor& t = tensors[name];
    t.dtype = dtype;
    t.shape = shape;
    t.bytes = std::move(bytes);
    t.bytes.resize(TensorView{dtype, shape}.size_bytes());
  }
  void SetWord(const std::string& name, int64_t index, uint32_t word) {
    std::memcpy(tensors.at(name).bytes.data() + index * sizeof(word), &word, sizeof(word));
  }
  absl::StatusOr<std::shared_ptr<const Checkpoint>> Open() const {
    std::vector<std::pair<std::string, TensorView>> views;
    for (const auto& [name, t] : tensors) {
      views.push_back({name, {t.dtype, t.shape, t.bytes.data()}});
    }
    EXPECT_TRUE(WriteSafetensors(model_.File("model.safetensors"), views).ok());
    return OpenCheckpoint(model_.path());
  }
  std::string Error(absl::StatusCode code = absl::StatusCode::kInvalidArgument) const {
    const absl::Status status = Open().status();
    EXPECT_EQ(status.code(), code) << status;
    return std::string(status.message());
  }

  struct Tensor {
    DType dtype = DType::kF32;
    std::vector<int64_t> shape;
    std::vector<std::byte> bytes;
  };
  std::map<std::string, Tensor> tensors;

 private:
  static RandomModelOptions Options() {
    RandomModelOptions options;
    options.config = TinyConfig();
    options.config.ffn_dim = 64;  // groups of 32
    return options;
  }
  void Pack(const std::string& linear, const std::vector<int64_t>& shape,
            const json& quantization) {
    const bool is_awq = quantization["quant_method"] == "awq";
    const int64_t out = shape[0], in = shape[1], in_word = quantization["bits"] == 8 ? 4 : 8;
    Set(linear + ".qweight", DType::kI32,
        is_awq ? std::vector<int64_t>{in, out / 8} : std::vector<int64_t>{in / in_word, out});
    Set(linear + ".qzeros", DType::kI32, {in / 32, out / in_word});
    Set(linear + ".scales", DType::kF16, {in / 32, out});
    if (is_awq) return;
    Set(linear + ".g_idx", DType::kI32, {in});
    for (int64_t i = 0; i < in; ++i) SetWord(linear + ".g_idx", i, static_cast<uint32_t>(i / 32));
  }

  TinyModel model_;
};

constexpr char kDown[] = "model.layers.1.mlp.down_proj";

TEST(GroupedCheckpoint, OpensBothMethods) {
  for (const json& quantization : {kAwq, kGptq}) {
    const auto opened = PackedModel(quantization).Open();
    ASSERT_TRUE(opened.ok()) << opened.status();
    const LayerTensors& layer = (*opened)->layers[1];
    ASSERT_NE(layer.down_proj.grouped, nullptr);
    EXPECT_EQ(layer.down_proj.grouped->n_groups(), 2);
    EXPECT_EQ(layer.k_proj.shape, (std::vector<int64_t>{16, 32}));
    EXPECT_EQ((*opened)->lm_head.grouped, nullptr);
  }
}

TEST(GroupedCheckpoint, EightBitsAreSignedWhereAllZeroPointsAreTheMiddle) {
  PackedModel model(With(kGptq, "bits", 8));
  const std::string zeros = absl::StrCat(kDown, ".qzeros");
  for (int64_t i = 0; i < 16; ++i) model.SetWord(zeros, i, 0x7f7f7f7f);
  const auto is_signed = [&] {
    const auto opened = model.Open();
    EXPECT_TRUE(opened.ok()) << opened.status();
    EXPECT_EQ((*opened)->layers[0].down_proj.dtype, DType::kGptq8);
    EXPECT_FALSE((*opened)->layers[0].down_proj.grouped->is_symmetric);
    return (*opened)->layers[1].down_proj.grouped->is_symmetric;
  };
  EXPECT_TRUE(is_signed());
  model.SetWord(zeros, 15, 0x7f7e7f7f);
  EXPECT_FALSE(is_signed());
  model.SetWord(zeros, 15, 0x7fff7f7f);
  EXPECT_THAT(model.Error(), HasSubstr("zero point 256 in group 1 of output 30, expected 1..255"));
}

TEST(GroupedCheckpoint, SomeMapsMayBeLeftAsTheyWere) {
  PackedModel model(kAwq);
  for (const char* part : {".qweight", ".qzeros", ".scales"}) {
    model.tensors.erase(absl::StrCat(kDown, part));
  }
  model.Set(absl::StrCat(kDown, ".weight"), DType::kF16, {32, 64});
  const auto opened = model.Open();
  ASSERT_TRUE(opened.ok()) << opened.status();
  EXPECT_EQ((*opened)->layers[1].down_proj.dtype, DType::kF16);
}

TEST(GroupedCheckpoint, PackedWeightsNeedTheirDescription) {
  PackedModel model(kAwq);
  model.SetQuantization(nullptr);
  EXPECT_THAT(model.Error(),
              HasSubstr("model.safetensors: model.layers.0.self_attn.q_proj.qweight: packed "
                        "weights, expected config.json to describe them in quantization_config"));
}

TEST(GroupedCheckpoint, MisshapenTensorsAreNamed) {
  struct Wrong {
    const char* part;
    DType dtype;
    std::vector<int64_t> shape;
    const char* error;
  };
  for (const Wrong& wrong :
       {Wrong{".qweight", DType::kI32, {64, 5}, ".qweight: shape [64, 5], expected [8, 32]"},
        Wrong{".qweight", DType::kF32, {8, 32}, ".qweight: dtype F32, expected I32"},
        Wrong{".qzeros", DType::kI32, {4, 4}, ".qzeros: shape [4, 4], expected [2, 4]"},
        Wrong{".qzeros", DType::kF16, {2, 4}, ".qzeros: dtype F16, expected I32"},
        Wrong{".scales", DType::kF16, {1, 32}, ".scales: shape [1, 32], expected [2, 32]"},
        Wrong{".scales", DType::kI32, {2, 32}, ".scales: dtype I32, expected F32, F16 or BF16"},
        Wrong{".g_idx", DType::kI32, {63}, ".g_idx: shape [63], expected [64]"},
        Wrong{".g_idx", DType::kI64, {64}, ".g_idx: dtype I64, expected I32"}}) {
    PackedModel model(kGptq);
    model.Set(absl::StrCat(kDown, wrong.part), wrong.dtype, wrong.shape);
    EXPECT_EQ(model.Error(), absl::StrCat("model.safetensors: ", kDown, wrong.error));
  }
  for (const char* part : {".qzeros", ".scales"}) {
    PackedModel model(kAwq);
    model.tensors.erase(absl::StrCat(kDown, part));
    EXPECT_THAT(model.Error(), HasSubstr(absl::StrCat(kDown, part, ": missing, expected")));
  }
}

TEST(GroupedCheckpoint, GroupsMustDivideAwqsInputs) {
  PackedModel model(kAwq);
  model.SetQuantization(With(kAwq, "group_size", 128));
  EXPECT_THAT(model.Error(), HasSubstr("self_attn.q_proj.qweight: a map of shape [32, 32], "
                                       "expected inputs in groups of 128"));
}

TEST(GroupedCheckpoint, GroupIndicesAreGroups) {
  const std::string name = absl::StrCat(kDown, ".g_idx");
  PackedModel model(kGptq);
  for (const uint32_t wrong : {2u, ~0u, 1u << 31}) {
    model.SetWord(name, 3, wrong);
    EXPECT_EQ(model.Error(),
              absl::StrCat("model.safetensors: ", name, ": ", static_cast<int32_t>(wrong),
                           " at input 3, expected 0..1"));
  }
  model.SetWord(name, 3, 1);
  EXPECT_EQ(model.Error(absl::StatusCode::kUnimplemented),
            absl::StrCat("model.safetensors: ", name,
                         ": 31 inputs of group 0 are not supported, expected 32"));
  model.SetWord(name, 40, 0);
  const auto opened = model.Open();
  ASSERT_TRUE(opened.ok()) << opened.status();
  EXPECT_EQ((*opened)->layers[1].down_proj.grouped->GroupOf(3), 1);
  EXPECT_EQ((*opened)->layers[1].down_proj.grouped->GroupOf(40), 0);
}

TEST(GroupedCheckpoint, GroupIndicesMayBeAbsentButForActOrder) {
  PackedModel model(kGptq);
  model.tensors.erase(absl::StrCat(kDown, ".g_idx"));
  EXPECT_TRUE(model.Open().ok());
  model.SetQuantization(With(kGptq, "desc_act", true));
  EXPECT_THAT(model.Error(), HasSubstr(absl::StrCat(kDown, ".g_idx: missing")));
}

TEST(GroupedCheckpoint, AZeroPointOf16IsRefused) {
  PackedModel model(kGptq);
  model.SetWord(absl::StrCat(kDown, ".qzeros"), 5, 0x00f00000);
  EXPECT_EQ(model.Error(),
            absl::StrCat("model.safetensors: ", kDown,
                         ".qzeros: zero point 16 in group 1 of output 13, expected 1..15"));
  model.SetQuantization(With(kGptq, "checkpoint_format", "gptq_v2"));
  EXPECT_TRUE(model.Open().ok());
}

TEST(GroupedCheckpoint, BiasesOfZerosAreHarmless) {
  PackedModel model(kGptq);
  const std::string name = absl::StrCat(kDown, ".bias");
  model.Set(name, DType::kF32, {32});
  EXPECT_TRUE(model.Open().ok());
  model.SetWord(name, 7, 0x3f800000);
  EXPECT_EQ(model.Error(), absl::StrCat("model.safetensors: ", name,
                                        ": 1 at output 7, expected zeros: the model has no such "
                                        "bias"));
  model.Set(name, DType::kF32, {31});
  EXPECT_THAT(model.Error(), HasSubstr("shape [31], expected [32]"));
}

TEST(GroupedCheckpoint, APackedAndAPlainMapOfOneNameAreOneTooMany) {
  PackedModel model(kAwq);
  model.Set(absl::StrCat(kDown, ".weight"), DType::kF16, {32, 64});
  EXPECT_THAT(model.Error(),
              HasSubstr("down_proj.weight: a tensor of shape [32, 64], expected none"));
}

}  // namespace
}  // namespace lowkey
