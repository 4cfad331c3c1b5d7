#include "tools/tensor_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "engine/loader/safetensors.h"
#include "tests/testing/temp_directory.h"

namespace lowkey {
namespace {

using ::testing::HasSubstr;

struct Named {
  std::string name;
  std::vector<int64_t> shape;
  std::vector<float> values;
};

Named Random(const std::string& name, std::vector<int64_t> shape) {
  std::mt19937 random(static_cast<unsigned>(name.back()));
  int64_t size = 1;
  for (int64_t dimension : shape) size *= dimension;
  Named tensor{name, std::move(shape), {}};
  for (int64_t i = 0; i < size; ++i) {
    tensor.values.push_back(static_cast<float>(random() % 1000) / 500.0f - 1.0f);
  }
  return tensor;
}

class TensorFileTest : public ::testing::Test {
 protected:
  absl::StatusOr<AttendTensors> Read(const std::vector<Named>& tensors,
                                     const ProjectOptions& options = {}) {
    std::vector<std::pair<std::string, TensorView>> views;
    for (const Named& tensor : tensors) {
      views.emplace_back(tensor.name,
                         TensorView{DType::kF32, tensor.shape,
                                    reinterpret_cast<const std::byte*>(tensor.values.data())});
    }
    EXPECT_TRUE(WriteSafetensors(directory_.File("in"), views).ok());
    return ReadAttendTensors(directory_.File("in"), options);
  }

  std::string Error(const std::vector<Named>& tensors, const ProjectOptions& options = {}) {
    const absl::Status status = Read(tensors, options).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    return std::string(status.message());
  }

  TempDirectory directory_;
};

TEST_F(TensorFileTest, ReadsQkvAsTheyAre) {
  const Named q = Random("q", {4, 3, 2}), k = Random("k", {2, 3, 2}), v = Random("v", {2, 3, 2});
  const auto tensors = Read({q, k, v});
  ASSERT_TRUE(tensors.ok()) << tensors.status();
  EXPECT_EQ(tensors->q.values, q.values);
  EXPECT_EQ(tensors->v.shape, v.shape);
}

TEST_F(TensorFileTest, NamesTheTensorThatDoesNotFit) {
  EXPECT_THAT(Error({Random("q", {4, 3, 2}), Random("k", {2, 3, 2})}), HasSubstr("tensor v"));
  EXPECT_THAT(Error({Random("q", {4, 3, 2}), Random("k", {2, 5, 2}), Random("v", {2, 5, 2})}),
              HasSubstr("k: shape [2, 5, 2], expected [2, 3, 2]"));
  EXPECT_THAT(Error({Random("q", {4, 3}), Random("k", {2, 3, 2}), Random("v", {2, 3, 2})}),
              HasSubstr("expected 3 dimensions"));
}

TEST_F(TensorFileTest, ProjectsAndRotatesAsTheFormulaSays) {
  const int64_t n = 5, hidden = 3, head_dim = 4;
  const Named x = Random("x", {n, hidden}), wq = Random("wq", {hidden, 2 * head_dim}),
              wk = Random("wk", {hidden, head_dim}), wv = Random("wv", {hidden, head_dim});
  const auto tensors = Read({x, wq, wk, wv}, {.n_heads = 2, .n_kv_heads = 1, .rope_theta = 100.0});
  ASSERT_TRUE(tensors.ok()) << tensors.status();
  const auto product = [&](const Named& w, int64_t t, int64_t column) {
    double sum = 0;
    const int64_t width = w.shape[1];
    for (int64_t i = 0; i < hidden; ++i) {
      sum += double{x.values[static_cast<size_t>(t * hidden + i)]} *
             w.values[static_cast<size_t>(i * width + column)];
    }
    return sum;
  };
  for (int64_t head = 0; head < 2; ++head) {
    for (int64_t t = 0; t < n; ++t) {
      for (int64_t i = 0; i < 2; ++i) {
        const double angle = static_cast<double>(t) * std::pow(100.0, -static_cast<double>(i) / 2);
        const double a = product(wq, t, head * head_dim + i);
        const double b = product(wq, t, head * head_dim + i + 2);
        const size_t at = static_cast<size_t>((head * n + t) * head_dim + i);
        EXPECT_NEAR(tensors->q.values[at], a * std::cos(angle) - b * std::sin(angle), 1e-5);
        EXPECT_NEAR(tensors->q.values[at + 2], b * std::cos(angle) + a * std::sin(angle), 1e-5);
      }
    }
  }
  EXPECT_NEAR(tensors->v.values[5], product(wv, 1, 1), 1e-5);
}

TEST_F(TensorFileTest, ProjectionNeedsHeadsThatFit) {
  const std::vector<Named> tensors = {Random("x", {2, 3}), Random("wq", {3, 8}),
                                      Random("wk", {3, 4}), Random("wv", {3, 4})};
  EXPECT_THAT(Error(tensors), HasSubstr("--heads 0"));
  EXPECT_THAT(Error(tensors, {.n_heads = 3, .n_kv_heads = 2}), HasSubstr("multiple"));
  EXPECT_THAT(Error(tensors, {.n_heads = 8, .n_kv_heads = 4}), HasSubstr("even head_dim"));
  EXPECT_THAT(Error(tensors, {.n_heads = 2, .n_kv_heads = 2}), HasSubstr("wk: shape"));
}

TEST_F(TensorFileTest, WritesWhatItReads) {
  const std::vector<float> values = {1, 2, 3, 4, 5, 6};
  ASSERT_TRUE(WriteFloats(directory_.File("out"), "out", {2, 3}, values).ok());
  const auto file = OpenSafetensors(directory_.File("out"));
  ASSERT_TRUE(file.ok()) << file.status();
  float x = 0;
  LoadFloats(file->index.tensors.at("out"), 4, 1, &x);
  EXPECT_EQ(x, 5.0f);
}

TEST_F(TensorFileTest, GarbageIsAnError) {
  WriteFileOrDie(directory_.File("in"), "not safetensors");
  EXPECT_FALSE(ReadAttendTensors(directory_.File("in"), {}).ok());
  EXPECT_FALSE(ReadAttendTensors(directory_.File("absent"), {}).ok());
}

}  // namespace
}  // namespace lowkey
