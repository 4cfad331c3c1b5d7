#ifndef LOWKEY_TESTS_ENGINE_RUNTIME_ATTENTION_VARIANTS_H_
#define LOWKEY_TESTS_ENGINE_RUNTIME_ATTENTION_VARIANTS_H_

#include <functional>
#include <string>
#include <vector>

#include "engine/config/attention_options.h"
#include "tests/testing/test_device.h"

namespace lowkey {

// Ways of attending that differ in what a sequence holds.
struct AttentionVariant {
  std::string name;
  AttentionOptions options;
};

inline std::vector<AttentionVariant> AttentionVariants() {
  std::vector<AttentionVariant> all;
  const auto add = [&](std::string name, Mechanism mechanism,
                       const std::function<void(AttentionOptions&)>& edit = nullptr) {
    AttentionVariant v{std::move(name), {}};
    v.options.mechanism = mechanism;
    v.options.atp.block_tokens = 64;
    v.options.atp.window_blocks = 0;
    v.options.atp.rank = RankFixed{4};
    if (edit) edit(v.options);
    all.push_back(v);
  };
  using O = AttentionOptions;
  add("standard", Mechanism::kStandard);
  add("int8", Mechanism::kStandard, [](O& o) { o.standard.storage = CacheStorage::kInt8; });
  add("int4", Mechanism::kStandard, [](O& o) { o.standard.storage = CacheStorage::kInt4; });
  if (TestDevice() == nullptr) {  // devices have no int3
    add("int3", Mechanism::kStandard, [](O& o) { o.standard.storage = CacheStorage::kInt3; });
  }
  add("atp", Mechanism::kAtp);
  add("atp kv window refine", Mechanism::kAtp, [](O& o) {
    o.atp.basis = AtpBasis::kKv;
    o.atp.window_blocks = 1;
    o.atp.refine_tokens = 8;
    o.atp.kept_storage = AtpStorage::kInt8;
  });
  add("atp calibrated", Mechanism::kAtp, [](O& o) {
    o.atp.basis = AtpBasis::kCalibrated;
    o.atp.rank = AtpOptions().rank;
    o.atp.refine_tokens = 8;
    o.atp.kept_storage = AtpStorage::kInt4;
  });
  add("atp calibrated rest", Mechanism::kAtp, [](O& o) {
    o.atp.basis = AtpBasis::kCalibrated;
    o.atp.rank = AtpOptions().rank;
    o.atp.refine_tokens = 8;
    o.atp.kept_storage = AtpStorage::kRest;
  });
  add("atp compressed", Mechanism::kAtp, [](O& o) { o.atp.prefill = AtpPrefill::kCompressed; });
  add("atp input", Mechanism::kAtp, [](O& o) { o.atp.basis = AtpBasis::kInput; });
  add("atp blocks of 128", Mechanism::kAtp, [](O& o) { o.atp.block_tokens = 128; });
  add("atp merge", Mechanism::kAtp, [](O& o) {
    o.atp.readout = AtpReadout::kLinear;
    o.atp.merge = true;
  });
  for (const auto form : {TaylorForm::kDirect, TaylorForm::kRecurrent, TaylorForm::kAuto}) {
    add("taylorshift " + std::string(NameOf(form)), Mechanism::kTaylorShift,
        [form](O& o) { o.taylorshift.form = form; });
  }
  add("optimised", Mechanism::kOptimised);
  add("efficient", Mechanism::kEfficient);
  add("efficient without keys", Mechanism::kEfficient,
      [](O& o) { o.efficient.key_storage = KeyStorage::kNone; });
  add("super", Mechanism::kSuper);
  add("lasso", Mechanism::kLasso);
  return all;
}

}  // namespace lowkey

#endif  // LOWKEY_TESTS_ENGINE_RUNTIME_ATTENTION_VARIANTS_H_
