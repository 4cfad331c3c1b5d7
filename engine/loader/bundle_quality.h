#ifndef LOWKEY_ENGINE_LOADER_BUNDLE_QUALITY_H_
#define LOWKEY_ENGINE_LOADER_BUNDLE_QUALITY_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/base/json.h"
#include "engine/config/perplexity_ratios.h"

namespace lowkey {

inline constexpr char kBundleFile[] = "lowkey.json";
inline constexpr size_t kMaxBundleBytes = size_t{1} << 20;
inline constexpr int kMaxBundleDepth = 6;

// Fields of lowkey.json about quality, which are untrusted. INVALID_ARGUMENT names field, value and
// range.

// Reads the field `perplexity_ratio`: a number, or an object of numbers by window length such as
// {"512": 1.01, "2048": 1.03}. Empty where the field is absent.
absl::StatusOr<PerplexityRatios> ReadPerplexityRatios(const JsonFields& fields);

// Reads the bundle's field `measured`: mechanisms with options whose quality was measured, such as
// {"mechanism": "atp", "options": {"rank": "16"}, "perplexity_ratio": {"2048": 1.01},
//  "recalled_digits": {"4096": 0.84}, "copied_tokens": {"4096": 0.94}, "right_answers": 0.41}.
absl::StatusOr<std::vector<MeasuredQuality>> ReadMeasuredQuality(const JsonFields& bundle);

// Adds what was measured to lowkey.json in the model's directory, which is made where it is
// missing. An entry of the same mechanism and options takes what is new. INVALID_ARGUMENT for a
// file that is no bundle; UNAVAILABLE when it cannot be written.
absl::Status RecordQuality(const std::string& directory,
                           const std::vector<MeasuredQuality>& measured);

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_LOADER_BUNDLE_QUALITY_H_
