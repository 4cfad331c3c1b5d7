// One input is a lowkey.json, beside a small checkpoint and the weights of every kind of mechanism.
// Whatever is accepted must be within the engine's limits and have every weight.

#include <cstddef>
#include <cstdint>

#include "engine/base/status_macros.h"
#include "engine/loader/bundle.h"
#include "engine/loader/checkpoint.h"
#include "tests/fuzz/bundle_seed.h"
#include "tests/fuzz/config_checks.h"

namespace lowkey {
namespace {

// A directory with weights, and its checkpoint without a bundle.
struct Place {
  TinyModel model;
  Checkpoint checkpoint = **OpenCheckpoint(model.path());

  Place() { LK_CHECK(WriteRandomBundle(model.path(), SeedBundle()).ok()); }
};

void CheckMechanism(const BundledMechanism& m, const ModelConfig& base) {
  CheckConfig(m.config);
  LK_CHECK(m.mechanism != Mechanism::kStandard);
  LK_CHECK(m.layers.size() == static_cast<size_t>(base.n_layers));
  LK_CHECK(m.lasso.iterations >= 1 && m.lasso.iterations <= 64 && m.lasso.power % 2 == 1);
  LK_CHECK(m.config.key_dim() >= 2 && m.config.key_dim() <= 512 && m.config.key_dim() % 2 == 0);
  LK_CHECK(m.window_tokens >= 0 && m.window_tokens % 64 == 0);
  LK_CHECK(m.window_tokens == 0 || m.mechanism == Mechanism::kTaylorShift);
  for (const BundledLayer& layer : m.layers) {
    for (const BundledProjection& p : layer.projections) {
      LK_CHECK((p.a.data == nullptr) == (p.b.data == nullptr));
      LK_CHECK(p.a.data == nullptr || p.a.shape[0] == p.b.shape[1]);
    }
    const int64_t l = m.alignment_tokens;
    LK_CHECK(m.mechanism != Mechanism::kSuper || layer.alignment.size() == l * (l + 1) / 2);
  }
}

}  // namespace
}  // namespace lowkey

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const lowkey::Place place;
  lowkey::WriteFileOrDie(place.model.File("lowkey.json"),
                         {reinterpret_cast<const char*>(data), size});
  lowkey::Checkpoint checkpoint = place.checkpoint;
  lowkey::LoadAccount account;
  const absl::Status status = lowkey::OpenBundle(place.model.path(), account, checkpoint);
  LK_CHECK(status.ok() || !status.message().empty());
  for (const lowkey::BundledMechanism& mechanism : checkpoint.mechanisms) {
    lowkey::CheckMechanism(mechanism, checkpoint.config);
  }
  return 0;
}
