#ifndef LOWKEY_ENGINE_ATTENTION_PRINCIPAL_CODES_H_
#define LOWKEY_ENGINE_ATTENTION_PRINCIPAL_CODES_H_

#include <cstdint>

#include "engine/attention/atp/calibrated/token_index.h"
#include "engine/attention/standard/prefix_codes.h"
#include "engine/base/status_macros.h"

namespace lowkey {

// Holds all that `lowkey calibrate` finds for a model. Immutable: any thread may read.
struct PrincipalCodes {
  PrefixCodes prefixes;  // of all KV heads together, before RoPE: for stored prefixes of standard
  HeadCodes heads;       // by KV head, components after RoPE: for atp's basis calibrated

  int64_t size_bytes() const { return prefixes.size_bytes() + heads.size_bytes(); }
  // FAILED_PRECONDITION when the codes are for a model of another shape.
  absl::Status CheckFits(const AttentionGeometry& geometry) const {
    LK_RETURN_IF_ERROR(prefixes.CheckFits(geometry));
    return heads.CheckFits(geometry);
  }
};

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_ATTENTION_PRINCIPAL_CODES_H_
