#include "server/config/machine_profile.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/base/contained.h"
#include "engine/base/files.h"
#include "engine/base/fnv1a.h"
#include "engine/base/machine.h"
#include "engine/config/attention_option_table.h"
#include "engine/kernels/kernels.h"
#include "engine/runtime/measure_rates.h"
#include "server/config/profile.h"

namespace lowkey {
namespace {

constexpr int64_t kLengths[] = {256, 1024, 4096};
// A change of what is measured, or of what rates mean, takes another number.
constexpr int kFormat = 5;

// The options that a request may be given: what was measured for quality, and the defaults.
std::vector<AttentionOptions> OptionsOf(const Checkpoint& checkpoint) {
  std::vector<AttentionOptions> options(1);
  for (const BundledMechanism& m : checkpoint.mechanisms) {
    if (m.mechanism == Mechanism::kAtp) continue;
    const std::vector<AttentionOptions> equal = EqualOptions(m.mechanism);
    options.insert(options.end(), equal.begin(), equal.end());
  }
  for (const MeasuredQuality& m : checkpoint.measured) {
    bool is_new = !m.ratios.empty();
    for (const AttentionOptions& o : options) {
      is_new = is_new && AttentionLabel(o) != AttentionLabel(m.options);
    }
    if (is_new) options.push_back(m.options);
  }
  return options;
}

absl::StatusOr<SelectionProfile> Measure(const Checkpoint& checkpoint,
                                         const EngineOptions& engine) {
  RateOptions options;
  options.engine = engine;
  options.mechanisms = OptionsOf(checkpoint);
  options.n_decode_runs = 51;  // requests may run beside the measurement
  for (const int64_t n : kLengths) {
    if (n <= checkpoint.config.context_tokens) options.lengths.push_back(n);
  }
  if (options.lengths.empty()) options.lengths = {64};
  auto rates = MeasureRates(checkpoint, options, nullptr);
  if (!rates.ok()) return rates.status();
  return std::move(rates->profile);
}

// Replaces the file as a whole, so that another server never reads a part.
void Save(const std::string& path, const SelectionProfile& profile) {
  if (path.empty()) return;
  std::error_code ignored;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), ignored);
  const std::string partial = absl::StrCat(path, ".", getpid());
  std::ofstream(partial) << ProfileJson(profile);
  std::filesystem::rename(partial, path, ignored);
}

}  // namespace

std::string ProfileCachePath(const Checkpoint& checkpoint, const EngineOptions& options) {
  const char *cache = std::getenv("XDG_CACHE_HOME"), *home = std::getenv("HOME");
  std::string directory;
  if (cache != nullptr && *cache != '\0') {
    directory = cache;
  } else if (home != nullptr && *home != '\0') {
    directory = absl::StrCat(home, "/.cache");
  } else {
    return "";
  }
  const ModelConfig& c = checkpoint.config;
  std::string key = absl::StrCat(kFormat, "/", MachineName(), "/", std::string(Kernels().name), "/",
                                 options.n_threads, "/", static_cast<int>(options.dtype), "/",
                                 std::string(DTypeName(checkpoint.layers[0].q_proj.dtype)));
  absl::StrAppend(&key, "/", c.hidden_dim, "/", c.n_layers, "/", c.n_heads, "/", c.n_kv_heads, "/",
                  c.head_dim, "/", c.context_tokens);
  for (const AttentionOptions& o : OptionsOf(checkpoint)) {
    absl::StrAppend(&key, "/", AttentionLabel(o));
  }
  if (options.codes != nullptr) absl::StrAppend(&key, "/calibrated");
  Fnv1a hash;
  hash.Add(key.data(), key.size());
  return absl::StrFormat("%s/lowkey/profile-%016x.json", directory, hash.value());
}

MachineProfile::MachineProfile(std::shared_ptr<const Checkpoint> checkpoint,
                               const EngineOptions& options,
                               std::function<void(SelectionProfile)> use) {
  // A device is its engine's alone: nobody else may queue work there.
  if (OptionsOf(*checkpoint).size() < 2 || options.device != nullptr) return;
  const std::string path = ProfileCachePath(*checkpoint, options);
  if (const auto text = ReadWholeFile(path, kMaxProfileBytes); text.ok()) {
    if (auto profile = ParseProfile(*text, path); profile.ok()) {
      use(*std::move(profile));
      return;
    }
  }
  const auto measure = [checkpoint = std::move(checkpoint), options, path, use = std::move(use)] {
    auto profile = Measure(*checkpoint, options);
    if (!profile.ok()) return;
    Save(path, *profile);
    profile->name = path.empty() ? "measured" : std::filesystem::path(path).filename().string();
    use(*std::move(profile));
  };
  // The server serves without the profile where memory or threads are short.
  try {
    thread_ = std::thread([measure] { RunContained(measure); });
  } catch (const std::system_error&) {
  }
}

MachineProfile::~MachineProfile() {
  if (thread_.joinable()) thread_.join();
}

}  // namespace lowkey
