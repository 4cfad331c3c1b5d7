#include "engine/attention/atp/input_pages.h"

#include "engine/attention/atp/policy.h"
#include "engine/attention/pages/column_pages.h"
#include "engine/base/dtype.h"
#include "tests/engine/attention/attention_testing.h"

namespace lowkey {
namespace {

TEST(InputPages, HoldWhatSegmentsOfBasisInputRead) {
  for (StorageType type : {StorageType::kFloat32, StorageType::kBFloat16}) {
    const AttentionGeometry g{2, 2, 1, 4, std::nullopt, type, 6};
    EXPECT_EQ(InputPageBytes(g), 2 * 64 * 6 * StorageBytes(type));
    auto cache = Cache::Create(int64_t{1} << 22, PageBytes(g));
    ASSERT_TRUE(cache.ok());
    SequenceCache with, without;
    with.options.atp.basis = AtpBasis::kInput;
    const Segment segments[] = {{&without, 0, 3, 0}, {&with, 0, 70, 3}};
    auto& pages = with.state.As<AtpState>().input_pages;
    ASSERT_TRUE(TakeSlabPages(segments[1], InputPageBytes(g), **cache, pages).ok());
    const AttentionRows rows = RandomRows(g, 73, 1);
    ThreadPool pool(2);
    LayerRows layer;
    layer.layer = 1, layer.x = rows.row(0, 0), layer.ld_x = rows.ld();
    WriteInputs(g, segments, layer, pool);
    EXPECT_TRUE(without.state.is_empty());
    std::vector<float> got(60 * 6);
    ReadInputs(g, *pages[0], 1, 4, got.data());
    for (int64_t i = 0; i < 60; ++i) {
      for (int64_t j = 0; j < 6; ++j) {
        const float x = rows.row(0, 7 + i)[j];
        EXPECT_EQ(got[i * 6 + j], type == StorageType::kFloat32 ? x : ToFloat(ToBFloat16(x)));
      }
    }
  }
}

}  // namespace
}  // namespace lowkey
