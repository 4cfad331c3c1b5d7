#include "bench/random_bundle.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "engine/base/tensor.h"
#include "engine/config/projections.h"
#include "engine/loader/safetensors.h"
#include "nlohmann/json.hpp"

namespace lowkey {
namespace {

using Json = nlohmann::ordered_json;

// Tensors of one file and the memory that they are in.
class RandomTensors {
 public:
  explicit RandomTensors(uint64_t seed) : rng_(seed) {}

  void AddMatrix(const std::string& name, int64_t n_out, int64_t n_in, float deviation) {
    std::normal_distribution<float> normal(0, deviation);
    std::vector<float> values(n_out * n_in);
    for (float& x : values) x = normal(rng_);
    Add(name, {n_out, n_in}, std::move(values));
  }

  // Rows of the lower triangle: mostly a token's own value, less of the ones before it.
  void AddAlignment(const std::string& name, int64_t n_tokens) {
    std::normal_distribution<float> normal(0, 0.3f);
    std::vector<float> values;
    for (int64_t i = 0; i < n_tokens; ++i) {
      for (int64_t j = 0; j <= i; ++j) {
        const auto distance = static_cast<float>(i - j);
        values.push_back((j == i ? 0.7f : normal(rng_) / (1 + distance * distance)));
      }
    }
    const auto size = static_cast<int64_t>(values.size());
    Add(name, {size}, std::move(values));
  }

  void AddTemperatures(const std::string& name, int64_t n_heads) {
    std::uniform_real_distribution<float> uniform(0.5f, 3.0f);
    std::vector<float> values(n_heads);
    for (float& x : values) x = uniform(rng_);
    Add(name, {n_heads}, std::move(values));
  }

  absl::Status Write(const std::string& path) const { return WriteSafetensors(path, tensors_); }

 private:
  void Add(const std::string& name, std::vector<int64_t> shape, std::vector<float> values) {
    // Moving a vector keeps its elements where they are.
    memory_.push_back(std::move(values));
    TensorView view;
    view.shape = std::move(shape);
    view.data = reinterpret_cast<const std::byte*>(memory_.back().data());
    tensors_.emplace_back(name, view);
  }

  std::mt19937_64 rng_;
  std::vector<std::vector<float>> memory_;
  std::vector<std::pair<std::string, TensorView>> tensors_;
};

absl::Status WriteTensors(const std::string& path, const RandomMechanism& m, const ModelConfig& c,
                          uint64_t seed) {
  const ProjectionUse use = ProjectionsOf(m.mechanism, m.over);
  const int64_t hidden = c.hidden_dim;
  const int64_t n_heads = m.n_heads > 0 ? m.n_heads : c.n_heads;
  const int64_t head_dim = use.slices_input ? hidden / n_heads : c.head_dim;
  const int64_t n_kv_heads = m.n_kv_heads > 0   ? m.n_kv_heads
                             : use.slices_input ? n_heads
                                                : c.n_kv_heads;
  const int64_t key_dim = m.score_dim > 0 ? m.score_dim : head_dim;
  const int64_t width[] = {n_heads * key_dim, n_kv_heads * key_dim, n_kv_heads * head_dim};
  RandomTensors tensors(seed);
  const auto projection = [&](const std::string& name, int64_t n_out, int64_t n_in, float gain) {
    if (m.lora_rank == 0) {
      tensors.AddMatrix(name, n_out, n_in, gain / std::sqrt(static_cast<float>(n_in)));
      return;
    }
    tensors.AddMatrix(name + ".lora_a", m.lora_rank, n_in, 1 / std::sqrt(static_cast<float>(n_in)));
    tensors.AddMatrix(name + ".lora_b", n_out, m.lora_rank,
                      0.3f * gain / std::sqrt(static_cast<float>(m.lora_rank)));
  };
  for (int32_t i = 0; i < c.n_layers; ++i) {
    const std::string prefix = absl::StrCat("layers.", i, ".");
    for (int p = 0; p < static_cast<int>(Projection::kO); ++p) {
      if (use.has[p]) projection(prefix + kProjectionNames[p], width[p], hidden, 1.0f);
    }
    projection(prefix + "wo", hidden, n_heads * head_dim,
               1 / std::sqrt(2.0f * static_cast<float>(c.n_layers)));
    if (m.mechanism == Mechanism::kSuper) {
      tensors.AddAlignment(prefix + "wa", m.alignment_tokens);
    }
    if (m.mechanism == Mechanism::kTaylorShift) tensors.AddTemperatures(prefix + "tau", n_heads);
    if (m.window_tokens > 0) tensors.AddTemperatures(prefix + "tau_window", n_heads);
  }
  return tensors.Write(path);
}

Json EntryJson(const RandomMechanism& m, const std::string& weights) {
  Json json = {{"name", std::string(MechanismName(m.mechanism))}, {"weights", weights}};
  if (m.n_heads > 0) json["n_heads"] = m.n_heads;
  if (m.n_kv_heads > 0) json["n_kv_heads"] = m.n_kv_heads;
  if (m.lora_rank > 0) json["lora_scale"] = 1.0;
  if (m.perplexity_ratio.has_value()) json["perplexity_ratio"] = *m.perplexity_ratio;
  if (m.score_dim > 0) json["score_dim"] = m.score_dim;
  if (m.window_tokens > 0) json["window_tokens"] = m.window_tokens;
  if (m.variant.has_value()) json["variant"] = std::string(NameOf(*m.variant));
  if (m.mechanism == Mechanism::kSuper) {
    json["over"] = std::string(MechanismName(m.over));
    json["alignment_tokens"] = m.alignment_tokens;
  }
  if (m.mechanism == Mechanism::kLasso) {
    json["lasso"] = {{"form", m.lasso.form == LassoForm::kVanilla ? "vanilla" : "efficient"},
                     {"lambda", m.lasso.lambda},
                     {"rho", m.lasso.rho},
                     {"iterations", m.lasso.iterations},
                     {"clamp", m.lasso.clamp},
                     {"power", m.lasso.power},
                     {"extra_tokens", m.lasso.extra_tokens}};
  }
  return json;
}

}  // namespace

absl::Status WriteRandomBundle(const std::string& directory, const RandomBundleOptions& options) {
  Json json = {{"format", 1}, {"mechanisms", Json::array()}};
  uint64_t seed = options.seed;
  for (const RandomMechanism& m : options.mechanisms) {
    const std::string file = absl::StrCat(std::string(MechanismName(m.mechanism)), ".safetensors");
    LK_RETURN_IF_ERROR(WriteTensors(absl::StrCat(directory, "/", file), m, options.config, ++seed));
    json["mechanisms"].push_back(EntryJson(m, file));
  }
  const std::string path = absl::StrCat(directory, "/lowkey.json");
  std::ofstream out(path, std::ios::binary);
  out << json.dump(2) << "\n";
  out.close();
  if (!out) return absl::UnavailableError(absl::StrCat(path, ": cannot be written"));
  return absl::OkStatus();
}

}  // namespace lowkey
