#include "engine/loader/bundle.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "engine/base/json.h"
#include "engine/base/round_up.h"
#include "engine/base/status_macros.h"
#include "engine/loader/bundle_quality.h"
#include "engine/loader/checkpoint.h"
#include "engine/loader/tensor_table.h"

namespace lowkey {
namespace {

using nlohmann::json;

constexpr int64_t kMaxAlignmentTokens = int64_t{1} << 16;
constexpr int64_t kMaxLoraRank = 4096;
constexpr int64_t kMaxKeyDim = 512;
constexpr int64_t kMaxWindowTokens = int64_t{1} << 20;

// Reads one entry of "mechanisms" and takes its tensors.
class EntryReader {
 public:
  EntryReader(const std::string& directory, LoadAccount& account, const Checkpoint& checkpoint,
              JsonFields fields)
      : directory_(directory),
        account_(account),
        base_(checkpoint.config),
        fields_(std::move(fields)) {}

  absl::StatusOr<BundledMechanism> Read();
  const std::vector<std::shared_ptr<const MappedFile>>& files() const { return files_; }

 private:
  absl::Status ReadKind();
  absl::Status ReadHeads();
  absl::Status CheckKvHeads() const;
  absl::Status ReadLasso();
  absl::Status ReadTaylorShift();
  absl::Status ReadScoreDim();
  absl::Status ReadTensors();
  absl::Status CheckOwnTensors() const;
  absl::Status TakeProjection(TensorTable& table, int64_t layer, int which);
  absl::Status TakeLayer(TensorTable& table, int64_t layer);
  absl::Status TakeTemperatures(TensorTable& table, const char* name, int64_t layer,
                                TensorView BundledLayer::*temperatures);

  const std::string& directory_;
  LoadAccount& account_;
  const ModelConfig& base_;
  const JsonFields fields_;
  BundledMechanism out_;
  std::vector<std::shared_ptr<const MappedFile>> files_;
};

absl::Status EntryReader::ReadKind() {
  LK_ASSIGN_OR_RETURN(const auto name, fields_.String("name"));
  const auto mechanism = ParseMechanism(name.value_or(""));
  if (!mechanism.ok() || *mechanism == Mechanism::kStandard) {
    return fields_.Error("name",
                         "atp, taylorshift, optimised, efficient, super or lasso (standard is the "
                         "checkpoint itself)");
  }
  out_.mechanism = *mechanism;
  LK_ASSIGN_OR_RETURN(const auto over, fields_.String("over"));
  if (out_.mechanism == Mechanism::kSuper) {
    const auto parsed = ParseMechanism(over.value_or("efficient"));
    if (!parsed.ok() || (*parsed != Mechanism::kEfficient && *parsed != Mechanism::kOptimised &&
                         *parsed != Mechanism::kStandard)) {
      return fields_.Error("over", "efficient, optimised or standard");
    }
    out_.over = *parsed;
    LK_ASSIGN_OR_RETURN(out_.alignment_tokens,
                        fields_.RequiredInt("alignment_tokens", {1, kMaxAlignmentTokens}));
  } else if (over.has_value()) {
    return fields_.Error("over", "no such field but in super");
  }
  out_.use = ProjectionsOf(out_.mechanism, out_.over);
  return absl::OkStatus();
}

absl::Status EntryReader::ReadHeads() {
  out_.config = base_;
  LK_ASSIGN_OR_RETURN(const auto n_heads, fields_.Int("n_heads", {1, 1024}));
  LK_ASSIGN_OR_RETURN(const auto n_kv_heads, fields_.Int("n_kv_heads", {1, 1024}));
  ModelConfig& c = out_.config;
  if (!out_.use.slices_input) {
    if (n_heads.has_value()) return fields_.Error("n_heads", "none: this mechanism has the base's");
    if (n_kv_heads.has_value() && out_.mechanism != Mechanism::kTaylorShift) {
      return fields_.Error("n_kv_heads", "none: this mechanism has the base's");
    }
    c.n_kv_heads = static_cast<int32_t>(n_kv_heads.value_or(c.n_kv_heads));
    // The checkpoint's biases are those of its own heads.
    if (c.n_kv_heads != base_.n_kv_heads) c.attention_bias = false;
    return CheckKvHeads();
  }
  c.n_heads = static_cast<int32_t>(n_heads.value_or(base_.n_heads));
  if (c.hidden_dim % (2 * c.n_heads) != 0 || c.hidden_dim / c.n_heads > 512) {
    return absl::InvalidArgumentError(
        absl::StrCat(fields_.name(), ": n_heads: ", c.n_heads, ", expected heads of an even size",
                     " of at most 512 that together have hidden_size = ", c.hidden_dim));
  }
  c.head_dim = c.hidden_dim / c.n_heads;
  if (n_kv_heads.has_value() && !out_.use.Has(Projection::kQ)) {
    return fields_.Error("n_kv_heads", "none: this mechanism has no queries that share heads");
  }
  c.n_kv_heads = static_cast<int32_t>(n_kv_heads.value_or(c.n_heads));
  LK_RETURN_IF_ERROR(CheckKvHeads());
  if (c.head_dim != base_.head_dim && std::holds_alternative<RopeFactors>(c.rope_scaling)) {
    return absl::InvalidArgumentError(
        absl::StrCat(fields_.name(), ": heads of ", c.head_dim, ", expected ", base_.head_dim,
                     ": the checkpoint gives a rotation factor for each pair of a head"));
  }
  // Slices of x have neither: keys would be treated unlike queries.
  c.attention_bias = c.output_bias = c.qk_norm = false;
  return absl::OkStatus();
}

absl::Status EntryReader::CheckKvHeads() const {
  const ModelConfig& c = out_.config;
  if (c.n_heads % c.n_kv_heads == 0) return absl::OkStatus();
  return fields_.Error("n_kv_heads", absl::StrCat("a divisor of n_heads = ", c.n_heads));
}

// Queries and keys of another size leave out what the checkpoint has for its own: biases and norms.
absl::Status EntryReader::ReadScoreDim() {
  LK_ASSIGN_OR_RETURN(const auto score_dim, fields_.Int("score_dim", {2, kMaxKeyDim}));
  ModelConfig& c = out_.config;
  if (!score_dim.has_value() || *score_dim == c.head_dim) return absl::OkStatus();
  if (*score_dim % 2 != 0) return fields_.Error("score_dim", "an even number: pairs are rotated");
  if (std::holds_alternative<RopeFactors>(c.rope_scaling)) {
    return fields_.Error("score_dim",
                         absl::StrCat(c.head_dim,
                                      ": the checkpoint gives a rotation factor for each pair of a "
                                      "head"));
  }
  c.score_dim = static_cast<int32_t>(*score_dim);
  c.attention_bias = c.qk_norm = false;
  return absl::OkStatus();
}

absl::Status EntryReader::ReadTaylorShift() {
  if (out_.mechanism != Mechanism::kTaylorShift) {
    for (const char* field : {"score_dim", "window_tokens", "variant"}) {
      if (fields_.Find(field) != nullptr) {
        return fields_.Error(field, "no such field but in taylorshift");
      }
    }
    return absl::OkStatus();
  }
  LK_RETURN_IF_ERROR(ReadScoreDim());
  LK_ASSIGN_OR_RETURN(const auto window, fields_.Int("window_tokens", {0, kMaxWindowTokens}));
  out_.window_tokens = window.value_or(0);
  if (out_.window_tokens % kPageTokens != 0) {
    return fields_.Error("window_tokens", absl::StrCat("a multiple of ", kPageTokens));
  }
  LK_ASSIGN_OR_RETURN(const auto variant, fields_.String("variant"));
  if (variant == "normalized") out_.variant = TaylorVariant::kNormalized;
  if (variant == "plain") out_.variant = TaylorVariant::kPlain;
  if (variant.has_value() && !out_.variant.has_value()) {
    return fields_.Error("variant", "normalized or plain");
  }
  return absl::OkStatus();
}

absl::Status EntryReader::ReadLasso() {
  LK_ASSIGN_OR_RETURN(const auto lasso, fields_.Object("lasso"));
  if (!lasso.has_value()) return absl::OkStatus();
  if (out_.mechanism != Mechanism::kLasso)
    return fields_.Error("lasso", "no such field but in lasso");
  LassoOptions& c = out_.lasso;
  LK_ASSIGN_OR_RETURN(const auto form, lasso->String("form"));
  if (form.has_value() && *form != "vanilla" && *form != "efficient") {
    return lasso->Error("form", "vanilla or efficient");
  }
  if (form == "vanilla") c.form = LassoForm::kVanilla;
  const auto number = [&](const char* key, float& value) -> absl::Status {
    LK_ASSIGN_OR_RETURN(const auto read, lasso->Number(key, {1e-6, 1e6}));
    if (read.has_value()) value = static_cast<float>(*read);
    return absl::OkStatus();
  };
  const auto count = [&](const char* key, Range<int64_t> range, int32_t& value) -> absl::Status {
    LK_ASSIGN_OR_RETURN(const auto read, lasso->Int(key, range));
    if (read.has_value()) value = static_cast<int32_t>(*read);
    return absl::OkStatus();
  };
  LK_RETURN_IF_ERROR(number("lambda", c.lambda));
  LK_RETURN_IF_ERROR(number("rho", c.rho));
  LK_RETURN_IF_ERROR(number("clamp", c.clamp));
  LK_RETURN_IF_ERROR(count("iterations", {1, 64}, c.iterations));
  LK_RETURN_IF_ERROR(count("power", {1, 15}, c.power));
  if (c.power % 2 == 0) return lasso->Error("power", "an odd number: signs must survive it");
  return count("extra_tokens", {0, 4096}, c.extra_tokens);
}

absl::Status EntryReader::TakeProjection(TensorTable& table, int64_t layer, int which) {
  const ModelConfig& c = out_.config;
  const int64_t attended = int64_t{c.n_heads} * c.head_dim;
  const int64_t out_dim[] = {int64_t{c.n_heads} * c.key_dim(), int64_t{c.n_kv_heads} * c.key_dim(),
                             int64_t{c.n_kv_heads} * c.head_dim, c.hidden_dim};
  const int64_t in_dim[] = {c.hidden_dim, c.hidden_dim, c.hidden_dim, attended};
  const std::vector<int64_t> shape = {out_dim[which], in_dim[which]};
  const std::string name = absl::StrCat("layers.", layer, ".", kProjectionNames[which]);
  BundledProjection& projection = out_.layers[layer].projections[which];
  const std::string a = name + ".lora_a", b = name + ".lora_b";
  const bool has_lora = table.Has(a) || table.Has(b);
  const auto is = [which](Projection p) { return which == static_cast<int>(p); };
  const bool is_kv = is(Projection::kK) || is(Projection::kV);
  const bool is_scored = is(Projection::kQ) || is(Projection::kK);
  const bool base_fits = c.n_heads == base_.n_heads && c.head_dim == base_.head_dim &&
                         (!is_kv || c.n_kv_heads == base_.n_kv_heads) &&
                         (!is_scored || c.key_dim() == base_.key_dim()) &&
                         c.attention_bias == base_.attention_bias &&
                         c.output_bias == base_.output_bias && c.qk_norm == base_.qk_norm;
  if (table.Has(name) || !base_fits) {
    out_.has_own_projections = true;
    LK_ASSIGN_OR_RETURN(projection.full, table.Take(name, shape));
    return absl::OkStatus();
  }
  if (!has_lora) return absl::OkStatus();
  out_.has_own_projections = true;
  LK_ASSIGN_OR_RETURN(const int64_t rank, table.Rows(a, 1, kMaxLoraRank));
  LK_ASSIGN_OR_RETURN(projection.a, table.Take(a, {rank, in_dim[which]}));
  LK_ASSIGN_OR_RETURN(projection.b, table.Take(b, {out_dim[which], rank}));
  return absl::OkStatus();
}

// Takes tensors that are in every layer or in none.
absl::Status EntryReader::TakeTemperatures(TensorTable& table, const char* name, int64_t layer,
                                           TensorView BundledLayer::*temperatures) {
  const bool in_all =
      table.Has(absl::StrCat("layers.0.", name)) || (out_.layers[0].*temperatures).data != nullptr;
  if (!in_all) return absl::OkStatus();
  LK_ASSIGN_OR_RETURN(out_.layers[layer].*temperatures,
                      table.Take(absl::StrCat("layers.", layer, ".", name), {out_.config.n_heads}));
  return absl::OkStatus();
}

absl::Status EntryReader::TakeLayer(TensorTable& table, int64_t layer) {
  for (int which = 0; which < kNumProjections; ++which) {
    if (out_.use.has[which]) LK_RETURN_IF_ERROR(TakeProjection(table, layer, which));
  }
  if (out_.mechanism == Mechanism::kTaylorShift) {
    LK_RETURN_IF_ERROR(TakeTemperatures(table, "tau", layer, &BundledLayer::tau));
    if (out_.window_tokens > 0) {
      LK_RETURN_IF_ERROR(TakeTemperatures(table, "tau_window", layer, &BundledLayer::tau_window));
    }
  }
  if (out_.mechanism == Mechanism::kSuper) {
    const int64_t l = out_.alignment_tokens;
    LK_ASSIGN_OR_RETURN(out_.layers[layer].alignment,
                        table.Take(absl::StrCat("layers.", layer, ".wa"), {l * (l + 1) / 2}));
  }
  return absl::OkStatus();
}

// Another function than the one that the checkpoint was trained for takes weights of its own.
absl::Status EntryReader::CheckOwnTensors() const {
  const BundledLayer& first = out_.layers[0];
  const bool has_own = out_.has_own_projections || first.alignment.data != nullptr ||
                       first.tau.data != nullptr || first.tau_window.data != nullptr;
  if (has_own || out_.mechanism == Mechanism::kAtp) return absl::OkStatus();
  return fields_.Error("weights", absl::StrCat("a file with tensors of its own: ",
                                               std::string(MechanismName(out_.mechanism)),
                                               " computes another function than the checkpoint's"));
}

absl::Status EntryReader::ReadTensors() {
  LK_ASSIGN_OR_RETURN(const auto weights, fields_.String("weights"));
  out_.layers.resize(base_.n_layers);
  TensorTable table(fields_.name());
  if (weights.has_value()) {
    LK_ASSIGN_OR_RETURN(table, TensorTable::OpenFile(directory_, *weights, account_));
  }
  for (int64_t i = 0; i < base_.n_layers; ++i) LK_RETURN_IF_ERROR(TakeLayer(table, i));
  files_ = table.files();
  LK_RETURN_IF_ERROR(table.CheckNothingLeft(
      [](std::string_view) { return false; },
      absl::StrCat(std::string(MechanismName(out_.mechanism)), " has no such weight")));
  LK_RETURN_IF_ERROR(CheckOwnTensors());
  // Slices stand in for the checkpoint's keys or values, which its own set has.
  if (out_.use.slices_input) out_.has_own_projections = true;
  return absl::OkStatus();
}

absl::StatusOr<BundledMechanism> EntryReader::Read() {
  LK_RETURN_IF_ERROR(ReadKind());
  LK_RETURN_IF_ERROR(ReadHeads());
  LK_RETURN_IF_ERROR(ReadLasso());
  LK_RETURN_IF_ERROR(ReadTaylorShift());
  LK_ASSIGN_OR_RETURN(const auto scale, fields_.Number("lora_scale", {-1e6, 1e6}));
  out_.lora_scale = scale.value_or(1.0);
  LK_ASSIGN_OR_RETURN(out_.perplexity_ratios, ReadPerplexityRatios(fields_));
  LK_RETURN_IF_ERROR(ReadTensors());
  return std::move(out_);
}

absl::Status CheckKnownFields(const json& entry, const JsonFields& fields) {
  static constexpr const char* kKnown[] = {
      "name",          "over",       "weights",          "n_heads",
      "lasso",         "n_kv_heads", "alignment_tokens", "score_dim",
      "window_tokens", "variant",    "lora_scale",       "perplexity_ratio"};
  for (const auto& [key, value] : entry.items()) {
    if (std::find(std::begin(kKnown), std::end(kKnown), key) == std::end(kKnown)) {
      return absl::InvalidArgumentError(
          absl::StrCat(fields.name(), ": ", ShortText(key), ": unknown field"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status OpenBundle(const std::string& directory, LoadAccount& account,
                        Checkpoint& checkpoint) {
  const auto file = MappedFile::Open(absl::StrCat(directory, "/", kBundleFile), kMaxBundleBytes);
  if (absl::IsNotFound(file.status())) return absl::OkStatus();
  LK_RETURN_IF_ERROR(file.status());
  LK_ASSIGN_OR_RETURN(const json root,
                      ParseJsonObject((*file)->text(), kBundleFile, account, kMaxBundleDepth));
  const JsonFields fields(root, kBundleFile);
  LK_RETURN_IF_ERROR(fields.RequiredInt("format", {1, 1}).status());
  LK_ASSIGN_OR_RETURN(checkpoint.measured, ReadMeasuredQuality(fields));
  LK_ASSIGN_OR_RETURN(checkpoint.max_perplexity_ratio,
                      fields.Number("max_perplexity_ratio", {1.0, 1e6}));
  const json* entries = fields.Find("mechanisms");
  if (entries == nullptr || !entries->is_array() || entries->size() > 16) {
    return fields.Error("mechanisms", "an array of at most 16 objects");
  }
  absl::flat_hash_set<Mechanism> seen;
  for (size_t i = 0; i < entries->size(); ++i) {
    const json& entry = (*entries)[i];
    const JsonFields entry_fields(entry, absl::StrCat(kBundleFile, ": mechanisms[", i, "]"));
    if (!entry.is_object()) {
      return absl::InvalidArgumentError(absl::StrCat(entry_fields.name(), ": expected an object"));
    }
    LK_RETURN_IF_ERROR(CheckKnownFields(entry, entry_fields));
    EntryReader reader(directory, account, checkpoint, entry_fields);
    LK_ASSIGN_OR_RETURN(BundledMechanism mechanism, reader.Read());
    if (!seen.insert(mechanism.mechanism).second) {
      return entry_fields.Error("name", "each mechanism once");
    }
    for (const auto& weights : reader.files()) checkpoint.files.push_back(weights);
    checkpoint.mechanisms.push_back(std::move(mechanism));
  }
  return absl::OkStatus();
}

}  // namespace lowkey
