// TaylorShift's kernels against sums in double over what the pages hold.

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "engine/base/dtype.h"
#include "engine/kernels/cuda/emulated/grid.h"
#include "engine/kernels/cuda/grid/launch.h"
#include "engine/kernels/device/kernels.h"
#include "tests/testing/test_device.h"

namespace lowkey {
namespace {

constexpr int64_t kHeads = 4, kKvHeads = 2, kGroup = 2, kLayers = 2, kLayer = 1;
constexpr int64_t kTokens = 150, kFoldedPages = 2, kPages = 3, kPageWidth = 64;

struct TaylorCase {
  int64_t head_dim;
  StorageType type;
  bool is_normalized;
  int64_t key_dim = head_dim;
  int64_t window_pages = 0;  // 0 or 1
};

// How a step's work is cut.
struct Cuts {
  int64_t block_rows = kTaylorManyRows;
  bool in_one_piece = false;  // a block of many rows reads one piece
};

// One sequence, all of whose rows are a step's: the state takes in two pages, those before token
// 128 are read directly, later ones through the state and their own page. With a window, the state
// takes in one page, and rows read their own page and the one before exactly.
class Scene {
 public:
  explicit Scene(const TaylorCase& c, const Cuts& cuts = {})
      : case_(c), cuts_(cuts), d_(c.head_dim), e_(c.key_dim) {
    std::minstd_rand engine(5);
    std::normal_distribution<float> normal;
    rows_.resize(kTokens * ld());
    for (float& x : rows_) x = normal(engine);
    const int64_t tile = kPageWidth * (e_ + n_columns()) * StorageBytes(c.type);
    for (int64_t page = 0; page < kPages; ++page) {
      // Memory that nobody writes is NaN.
      page_bytes_.emplace_back(std::vector<std::byte>(kLayers * kKvHeads * tile, std::byte{0xff}));
      pages_.push_back(page_bytes_.back().data());
    }
    head_floats_ = n_features() * (n_columns() + 1) / 16 * 16 + 16;
    for (int32_t i = 0; i < kTokens; ++i) step_rows_.push_back({0, i});
    AddBlock(0, 7, 0);    // few rows, directly
    AddBlock(14, 30, 0);  // many, to another page
    AddBlock(74, 54, 0);
    AddBlock(256, 5, n_state_pages());
    AddBlock(266, 17, n_state_pages());
  }

  std::vector<float> Run() {
    DeviceArray<float> state(kLayers * kKvHeads * head_floats_), queries(kTokens * kHeads * e_),
        near_queries(kTokens * kHeads * e_),
        slots(NoNumbers(n_slots_ * kKvHeads * (n_columns() + 4))),
        out(NoNumbers(kTokens * kHeads * d_));
    const DeviceArray<TaylorSequence> sequences(
        std::vector<TaylorSequence>{{0, 0, 0, 0, 0, state.data(), case_.is_normalized}});
    const DeviceArray<std::byte*> pages(pages_);
    const DeviceArray<float> rows(rows_), tau(std::vector<float>(tau_, tau_ + kHeads)),
        tau_window(std::vector<float>(tau_window_, tau_window_ + kHeads));
    const DeviceArray<TaylorRow> step_rows(step_rows_);
    const DeviceArray<TaylorBlock> blocks(blocks_);
    const TaylorStep step{.layer = kLayer,
                          .n_heads = kHeads,
                          .n_kv_heads = kKvHeads,
                          .head_dim = d_,
                          .key_dim = e_,
                          .n_columns = n_columns(),
                          .n_features = n_features(),
                          .head_floats = head_floats_,
                          .cache_type = case_.type,
                          .sequences = sequences.data(),
                          .pages = pages.data(),
                          .queries = queries.data(),
                          .near_queries = has_window() ? near_queries.data() : nullptr,
                          .slots = slots.data()};
    const DeviceKernels& kernels = device_.kernels();
    const float* q = rows.data();
    kernels.taylor_write(device_, {step, step_rows.data(), kTokens, tau.data(), tau_window.data(),
                                   q, q + kHeads * e_, q + (kHeads + kKvHeads) * e_, ld()});
    // Folds one page, and then the others.
    const DeviceArray<TaylorFold> folds(std::vector<TaylorFold>{{0, 0, 1}, {0, 1, kFoldedPages}});
    for (int i = 0; i < n_state_pages(); ++i)
      kernels.taylor_fold(device_, {step, folds.data() + i, 1});
    for (const int64_t max_rows : {kTaylorFewRows, kTaylorManyRows}) {
      const int many = max_rows == kTaylorManyRows ? 1 : 0;
      const DeviceArray<TaylorPiece> of_state(state_pieces_[many]), of_pages(page_pieces_[many]),
          of_window(near_pieces_[many]);
      kernels.taylor_read_state(device_,
                                {step, blocks.data(), of_state.data(), of_state.size(), max_rows});
      if (of_pages.size() > 0) {
        kernels.taylor_read_pages(
            device_, {step, blocks.data(), of_pages.data(), of_pages.size(), max_rows});
      }
      if (of_window.size() > 0) {
        kernels.taylor_read_pages(device_, {step, blocks.data(), of_window.data(), of_window.size(),
                                            max_rows, /*is_near=*/true});
      }
      EXPECT_TRUE(device_.Wait().ok());
    }
    kernels.taylor_finish(
        device_, {step, blocks.data(), blocks.size(), kTaylorManyRows, out.data(), kHeads * d_});
    return out.Read();
  }

  // Tokens that some block has.
  std::vector<int64_t> Tokens() const {
    std::vector<int64_t> tokens;
    for (const TaylorBlock& b : blocks_) {
      for (int64_t r = 0; r < b.n_rows; r += kGroup) tokens.push_back((b.first_row + r) / kGroup);
    }
    return tokens;
  }

  std::vector<double> Expected(int64_t token, int64_t head) const {
    const float* q = rows_.data() + token * ld() + head * e_;
    const double unit_q =
        case_.is_normalized ? 1 / Norm(q) : 1 / std::sqrt(static_cast<double>(e_));
    const int64_t first_near = has_window() ? NearPage(token) * kPageWidth : kTokens;
    std::vector<double> sums(d_, 0.0);
    double weights = 0;
    for (int64_t t = 0; t <= token; ++t) {
      const float* k = rows_.data() + t * ld() + (kHeads + head / kGroup) * e_;
      const float* v = rows_.data() + t * ld() + (kHeads + kKvHeads) * e_ + head / kGroup * d_;
      const bool is_near = t >= first_near;
      const double tau = !case_.is_normalized ? 1 : is_near ? tau_window_[head] : tau_[head];
      const float unit = case_.is_normalized ? static_cast<float>(1 / Norm(k)) : 1.0f;
      double s = 0;
      for (int64_t j = 0; j < e_; ++j) s += tau * unit_q * q[j] * Cached(k[j] * unit);
      const double w = is_near ? std::exp(s) : 1 + s + s * s / 2;
      weights += w;
      for (int64_t j = 0; j < d_; ++j) sums[j] += w * Cached(v[j]);
    }
    const double out = case_.is_normalized && !has_window()
                           ? std::sqrt(static_cast<double>(token + 1) / static_cast<double>(d_))
                           : 1;
    for (double& x : sums) x *= out / weights;
    return sums;
  }

 private:
  static std::vector<float> NoNumbers(int64_t n) { return std::vector<float>(n, std::nanf("")); }
  bool has_window() const { return case_.window_pages > 0; }
  int64_t n_state_pages() const { return kFoldedPages - case_.window_pages; }
  // Returns the first page in the window of a token.
  int64_t NearPage(int64_t token) const {
    return std::max<int64_t>(0, token / kPageWidth - case_.window_pages);
  }
  int64_t ld() const { return (kHeads + kKvHeads) * e_ + kKvHeads * d_ + 3; }
  int64_t n_columns() const { return (d_ + 7) / 8 * 8; }
  int64_t n_features() const { return 1 + e_ + e_ * (e_ + 1) / 2; }
  double Norm(const float* x) const {
    double sum = 0;
    for (int64_t j = 0; j < e_; ++j) sum += static_cast<double>(x[j]) * x[j];
    return std::sqrt(sum);
  }
  double Cached(float x) const {
    return case_.type == StorageType::kFloat32 ? x : ToFloat(ToBFloat16(x));
  }

  // n_tokens of rows `first_row`.., which read state_pages through the state.
  void AddBlock(int64_t first_row, int64_t n_tokens, int64_t state_pages) {
    const int64_t n_rows = n_tokens * kGroup;
    for (int64_t done = 0; done < n_rows;) {
      int64_t n = std::min(n_rows - done, cuts_.block_rows);
      // Rows of one page have the same window.
      constexpr int64_t kPageRows = kPageWidth * kGroup;
      if (has_window()) n = std::min(n, kPageRows - (first_row + done) % kPageRows);
      AddPart(first_row + done, n, state_pages);
      done += n;
    }
  }
  void AddPart(int64_t first_row, int64_t n_rows, int64_t state_pages) {
    const auto index = static_cast<int32_t>(blocks_.size());
    const int many = n_rows > kTaylorFewRows ? 1 : 0;
    TaylorBlock block{0, static_cast<int32_t>(n_rows), first_row, n_slots_};
    int32_t slot = 0;
    const bool in_one_piece = many == 1 && cuts_.in_one_piece;
    const int64_t slice = in_one_piece ? n_features() : TaylorSliceFeatures(e_);
    for (int64_t f = 0; state_pages > 0 && f < n_features(); f += slice) {
      state_pieces_[many].push_back({index, slot++, static_cast<int32_t>(f),
                                     static_cast<int32_t>(std::min(f + slice, n_features()))});
    }
    block.n_state_slots = slot;
    const int64_t end_page = (first_row + n_rows - 1) / kGroup / kPageWidth + 1;
    const int64_t near = has_window() ? NearPage(first_row / kGroup) : end_page;
    const auto add_pages = [&](std::vector<TaylorPiece>& pieces, int64_t begin, int64_t end) {
      if (begin == end) return;
      pieces.push_back({index, slot++, static_cast<int32_t>(begin), static_cast<int32_t>(end)});
    };
    add_pages(page_pieces_[many], state_pages, near);
    const int32_t n_far_slots = slot;
    for (int64_t page = near; page < end_page; ++page) {
      add_pages(near_pieces_[many], page, page + 1);
    }
    block.n_slots = slot;
    block.n_near_slots = slot - n_far_slots;
    block.n_far_tokens = near * kPageWidth;
    n_slots_ += slot * n_rows;
    blocks_.push_back(block);
  }

  const TaylorCase case_;
  const Cuts cuts_;
  const int64_t d_, e_;
  const float tau_[kHeads] = {1.0f, 0.5f, 2.0f, 3.0f};
  const float tau_window_[kHeads] = {4.0f, 1.5f, 0.5f, 9.0f};
  Device& device_ = KernelTestDevice();
  std::vector<float> rows_;
  std::vector<DeviceArray<std::byte>> page_bytes_;
  std::vector<std::byte*> pages_;
  int64_t head_floats_ = 0, n_slots_ = 0;
  std::vector<TaylorRow> step_rows_;
  std::vector<TaylorBlock> blocks_;
  // One variant for blocks of few rows, one for blocks of many.
  std::vector<TaylorPiece> state_pieces_[2], page_pieces_[2], near_pieces_[2];
};

class CudaTaylorShiftTest : public testing::TestWithParam<TaylorCase> {
 protected:
  // The shared memory of devices outside of data centers.
  CudaTaylorShiftTest() { emulated::LimitShared(int64_t{99} << 10); }
  ~CudaTaylorShiftTest() override {
    emulated::LimitShared(int64_t{227} << 10);
    emulated::SetThreadOrder(emulated::ThreadOrder::kForward);
  }
};

TEST_P(CudaTaylorShiftTest, EqualsSumsInDouble) {
  const int64_t d = GetParam().head_dim;
  Scene scene(GetParam());
  const std::vector<float> out = scene.Run();
  for (const int64_t token : scene.Tokens()) {
    for (int64_t head = 0; head < kHeads; ++head) {
      const std::vector<double> expected = scene.Expected(token, head);
      for (int64_t j = 0; j < d; ++j) {
        ASSERT_NEAR(out[(token * kHeads + head) * d + j], expected[j], 5e-5)
            << "token " << token << ", head " << head << ", column " << j;
      }
    }
  }
}

class CudaTaylorShiftTilesTest : public CudaTaylorShiftTest {};

TEST_P(CudaTaylorShiftTilesTest, BlocksAndPiecesChangeNoBits) {
  Scene scene(GetParam());
  const std::vector<float> expected = scene.Run();
  for (const Cuts& cuts :
       {Cuts{kTaylorManyRows, true}, Cuts{34, true}, Cuts{kTaylorFewRows, false}}) {
    Scene other(GetParam(), cuts);
    const std::vector<float> out = other.Run();
    const int64_t n = kHeads * GetParam().head_dim;
    for (const int64_t token : scene.Tokens()) {
      EXPECT_EQ(std::memcmp(&out[token * n], &expected[token * n], n * sizeof(float)), 0)
          << "token " << token;
    }
  }
}

class CudaTaylorShiftOrderTest : public CudaTaylorShiftTest {};

TEST_P(CudaTaylorShiftOrderTest, TheOrderOfThreadsChangesNoBits) {
  Scene forward(GetParam());
  const std::vector<float> expected = forward.Run();
  for (const auto order : {emulated::ThreadOrder::kBackward, emulated::ThreadOrder::kShuffled}) {
    emulated::SetThreadOrder(order);
    Scene scene(GetParam());
    const std::vector<float> out = scene.Run();
    EXPECT_EQ(std::memcmp(out.data(), expected.data(), out.size() * sizeof(float)), 0);
  }
}

std::string NameOf(const testing::TestParamInfo<TaylorCase>& info) {
  const bool wide = info.param.type == StorageType::kFloat32;
  std::string name = std::to_string(info.param.head_dim) + (wide ? "_fp32" : "_bf16");
  if (info.param.key_dim != info.param.head_dim) {
    name += "_scores_" + std::to_string(info.param.key_dim);
  }
  return name + (info.param.window_pages > 0 ? "_window" : "");
}

INSTANTIATE_TEST_SUITE_P(Shapes, CudaTaylorShiftTest,
                         testing::Values(TaylorCase{2, StorageType::kFloat32, true},
                                         TaylorCase{15, StorageType::kBFloat16, false},
                                         TaylorCase{64, StorageType::kFloat32, true},
                                         TaylorCase{64, StorageType::kBFloat16, false},
                                         TaylorCase{96, StorageType::kBFloat16, false},
                                         TaylorCase{128, StorageType::kBFloat16, true},
                                         TaylorCase{80, StorageType::kFloat32, false},
                                         TaylorCase{130, StorageType::kBFloat16, false},
                                         TaylorCase{64, StorageType::kBFloat16, true, 16},
                                         TaylorCase{64, StorageType::kBFloat16, true, 16, 1},
                                         TaylorCase{20, StorageType::kFloat32, false, 32, 1},
                                         TaylorCase{130, StorageType::kFloat32, true, 8, 1},
                                         TaylorCase{32, StorageType::kBFloat16, false, 32, 1}),
                         NameOf);
INSTANTIATE_TEST_SUITE_P(Shapes, CudaTaylorShiftTilesTest,
                         testing::Values(TaylorCase{32, StorageType::kBFloat16, true},
                                         TaylorCase{64, StorageType::kBFloat16, false}),
                         NameOf);
INSTANTIATE_TEST_SUITE_P(Shapes, CudaTaylorShiftOrderTest,
                         testing::Values(TaylorCase{15, StorageType::kBFloat16, false},
                                         TaylorCase{40, StorageType::kFloat32, true},
                                         TaylorCase{64, StorageType::kBFloat16, true},
                                         TaylorCase{66, StorageType::kBFloat16, false},
                                         TaylorCase{40, StorageType::kFloat32, true, 16, 1},
                                         TaylorCase{64, StorageType::kBFloat16, false, 64, 1}),
                         NameOf);

}  // namespace
}  // namespace lowkey
