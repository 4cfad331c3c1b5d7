#include "engine/runtime/quantization/quantize_checkpoint.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "engine/base/load_account.h"
#include "engine/base/status_macros.h"
#include "engine/loader/safetensors.h"
#include "engine/loader/tensor_table.h"
#include "engine/runtime/model_setup.h"
#include "engine/runtime/quantization/input_moments.h"

namespace lowkey {
namespace {

// A linear map of a layer, by its tensor's name.
struct LayerMap {
  int64_t layer = 0;
  std::string name;
  LinearInput input = LinearInput::kQkv;
};

std::optional<LayerMap> ParseMap(absl::string_view tensor) {
  const TensorNames& names = kHuggingFaceNames;
  const std::pair<const char*, LinearInput> maps[] = {
      {names.q, LinearInput::kQkv},       {names.k, LinearInput::kQkv},
      {names.v, LinearInput::kQkv},       {names.o, LinearInput::kOutput},
      {names.gate, LinearInput::kGateUp}, {names.up, LinearInput::kGateUp},
      {names.down, LinearInput::kDown},
  };
  if (!absl::ConsumePrefix(&tensor, names.layers) || !absl::ConsumeSuffix(&tensor, ".weight")) {
    return std::nullopt;
  }
  const std::pair<absl::string_view, absl::string_view> parts =
      absl::StrSplit(tensor, absl::MaxSplits('.', 1));
  LayerMap map;
  if (!absl::SimpleAtoi(parts.first, &map.layer)) return std::nullopt;
  map.name = std::string(parts.second);
  for (const auto& [name, input] : maps) {
    if (map.name != name) continue;
    map.input = input;
    return map;
  }
  return std::nullopt;
}

// A tensor of the checkpoint, and of the file that is written.
struct Item {
  std::string name;
  TensorView view;
  std::optional<LayerMap> map;  // to be rounded
};

// Returns the tensors in the order in which they are written: those of a layer together.
std::vector<Item> ListItems(const TensorTable& table) {
  std::vector<Item> items;
  table.Each([&](const std::string& name, const TensorView& view) {
    items.push_back({name, view, ParseMap(name)});
  });
  std::stable_sort(items.begin(), items.end(), [](const Item& a, const Item& b) {
    const auto layer = [](const Item& item) { return item.map ? item.map->layer : -1; };
    return layer(a) < layer(b);
  });
  return items;
}

absl::Status CheckItem(const Item& item, int64_t group_size, const std::string& where) {
  const int64_t n_out = item.view.shape[0], n_in = item.view.shape[1];
  if (n_in % group_size != 0) {
    return absl::FailedPreconditionError(absl::StrCat(
        where, ": ", n_in, " inputs, expected groups of ", group_size, " to divide them"));
  }
  if (n_out % 8 != 0) {
    return absl::FailedPreconditionError(
        absl::StrCat(where, ": ", n_out, " outputs, expected a multiple of 8"));
  }
  return absl::OkStatus();
}

absl::Status CheckWeights(const Item& item, const std::string& where) {
  std::vector<float> row(item.view.shape[1]);
  for (int64_t i = 0; i < item.view.shape[0]; ++i) {
    LoadRow(item.view, i, row.data());
    for (const float x : row) {
      if (std::abs(x) <= kMaxWeight) continue;
      return absl::FailedPreconditionError(
          absl::StrCat(where, ": ", x, " in row ", i, ", expected numbers up to ", kMaxWeight));
    }
  }
  return absl::OkStatus();
}

std::vector<TensorSpec> SpecsOf(const std::vector<Item>& items, const Rounding& rounding) {
  std::vector<TensorSpec> specs;
  for (const Item& item : items) {
    if (!item.map.has_value()) {
      specs.push_back({item.name, item.view.dtype, item.view.shape});
      continue;
    }
    const int64_t n_out = item.view.shape[0], n_in = item.view.shape[1];
    const int64_t n_groups = n_in / rounding.group_size, in_word = 32 / rounding.bits;
    const std::string map(absl::StripSuffix(item.name, ".weight"));
    specs.push_back({absl::StrCat(map, ".g_idx"), DType::kI32, {n_in}});
    specs.push_back({absl::StrCat(map, ".qweight"), DType::kI32, {n_in / in_word, n_out}});
    specs.push_back({absl::StrCat(map, ".qzeros"), DType::kI32, {n_groups, n_out / in_word}});
    specs.push_back({absl::StrCat(map, ".scales"), DType::kF16, {n_groups, n_out}});
  }
  return specs;
}

template <typename T>
absl::Status Append(const std::vector<T>& values, SafetensorsWriter& writer) {
  return writer.Append(
      {reinterpret_cast<const std::byte*>(values.data()), values.size() * sizeof(T)});
}

absl::Status AppendRounded(const RoundedMatrix& rounded, int64_t n_in, int64_t group_size,
                           SafetensorsWriter& writer) {
  std::vector<int32_t> groups(n_in);
  for (int64_t i = 0; i < n_in; ++i) groups[i] = static_cast<int32_t>(i / group_size);
  LK_RETURN_IF_ERROR(Append(groups, writer));
  LK_RETURN_IF_ERROR(Append(rounded.codes, writer));
  LK_RETURN_IF_ERROR(Append(rounded.zeros, writer));
  return Append(rounded.scales, writer);
}

// Rounds and writes the maps of one checkpoint, some layers after others.
class Quantizer {
 public:
  Quantizer(const TensorTable& table, const ModelConfig& config, const QuantizeOptions& options,
            const CalibrationProgress& progress)
      : table_(table),
        config_(config),
        options_(options),
        progress_(progress),
        items_(ListItems(table)) {}

  absl::Status Open(const std::string& path) {
    for (const Item& item : items_) {
      if (!item.map.has_value()) continue;
      LK_RETURN_IF_ERROR(CheckItem(item, options_.rounding.group_size, table_.Where(item.name)));
      ++n_maps_;
    }
    const std::vector<TensorSpec> specs = SpecsOf(items_, options_.rounding);
    LK_ASSIGN_OR_RETURN(writer_, SafetensorsWriter::Create(path, specs));
    for (const TensorSpec& spec : specs) {
      report_.bytes_after += static_cast<int64_t>(TensorView{spec.dtype, spec.shape}.size_bytes());
    }
    return absl::OkStatus();
  }

  // Writes up to the maps of layer end_layer - 1. `moments` is nullptr: all inputs count alike.
  absl::Status WriteTo(int64_t end_layer, const InputMoments* moments, ThreadPool& pool) {
    for (; next_ < items_.size(); ++next_) {
      const Item& item = items_[next_];
      if (item.map.has_value() && item.map->layer >= end_layer) break;
      report_.bytes_before += static_cast<int64_t>(item.view.size_bytes());
      if (!item.map.has_value()) {
        LK_RETURN_IF_ERROR(writer_->Append({item.view.data, item.view.size_bytes()}));
        continue;
      }
      LK_RETURN_IF_ERROR(CheckWeights(item, table_.Where(item.name)));
      LK_ASSIGN_OR_RETURN(const ErrorMetric* metric, MetricFor(*item.map, moments, pool));
      const RoundedMatrix rounded = QuantizeMatrix(item.view, options_.rounding, *metric, pool);
      report_.maps.push_back(
          {item.map->layer, item.map->name, rounded.size > 0 ? rounded.error / rounded.size : 0});
      LK_RETURN_IF_ERROR(
          AppendRounded(rounded, item.view.shape[1], options_.rounding.group_size, *writer_));
      if (progress_.solving) {
        progress_.solving(static_cast<int64_t>(report_.maps.size()), n_maps_);
      }
    }
    return absl::OkStatus();
  }

  absl::StatusOr<QuantizeReport> Finish() {
    LK_RETURN_IF_ERROR(writer_->Finish());
    return std::move(report_);
  }

 private:
  // Maps with the same inputs share a metric, which is made once where they follow one another.
  absl::StatusOr<const ErrorMetric*> MetricFor(const LayerMap& map, const InputMoments* moments,
                                               ThreadPool& pool) {
    const std::pair key(map.layer, map.input);
    if (const auto found = metrics_.find(key); found != metrics_.end()) return &found->second;
    if (!metrics_.empty() && metrics_.begin()->first.first != map.layer) metrics_.clear();
    if (moments == nullptr) {
      return &metrics_.emplace(key, EqualInputs(InputDim(config_, map.input))).first->second;
    }
    std::optional<ErrorMetric> metric =
        MetricOf(moments->of(map.layer, map.input).SecondMoment(), pool);
    if (!metric.has_value()) {
      return absl::FailedPreconditionError(
          absl::StrCat("layer ", map.layer, ": the inputs of ", map.name, " are not finite"));
    }
    return &metrics_.emplace(key, *std::move(metric)).first->second;
  }

  const TensorTable& table_;
  const ModelConfig& config_;
  const QuantizeOptions& options_;
  const CalibrationProgress& progress_;
  const std::vector<Item> items_;
  std::optional<SafetensorsWriter> writer_;
  size_t next_ = 0;
  int64_t n_maps_ = 0;
  std::map<std::pair<int64_t, LinearInput>, ErrorMetric> metrics_;  // of one layer
  QuantizeReport report_;
};

absl::Status WriteByTexts(std::shared_ptr<const Checkpoint> checkpoint, TokenTexts texts,
                          const QuantizeOptions& options, const CalibrationProgress& progress,
                          Quantizer& quantizer) {
  const ModelConfig config = checkpoint->config;
  LK_ASSIGN_OR_RETURN(const auto reader, MakeTextReader(std::move(checkpoint), texts,
                                                        options.engine, progress.loading));
  const int64_t layers_at_once = std::clamp<int64_t>(
      options.moment_bytes / InputMoments::LayerBytes(config), 1, config.n_layers);
  const int64_t n_passes = (config.n_layers + layers_at_once - 1) / layers_at_once;
  for (int64_t pass = 0; pass < n_passes; ++pass) {
    const int64_t first = pass * layers_at_once;
    const int64_t end = std::min<int64_t>(config.n_layers, first + layers_at_once);
    InputMoments moments(config, first, end);
    LK_RETURN_IF_ERROR(reader->Observe(
        [&](int64_t layer, LinearInput input, const float* x, int64_t ld, int64_t n_rows) {
          moments.Add(layer, input, x, ld, n_rows, reader->pool());
        }));
    LK_RETURN_IF_ERROR(ReadTexts(*reader, texts, [&](int64_t done, int64_t all) {
      if (progress.reading) progress.reading(pass * all + done, n_passes * all);
    }));
    LK_RETURN_IF_ERROR(quantizer.WriteTo(end, &moments, reader->pool()));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<QuantizeReport> QuantizeCheckpoint(const ModelFiles& files,
                                                  std::shared_ptr<const Checkpoint> checkpoint,
                                                  TokenTexts texts, const QuantizeOptions& options,
                                                  const std::string& path,
                                                  const CalibrationProgress& progress) {
  if (files.gguf != nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat(files.path, ": a GGUF file, expected a directory in Hugging Face layout"));
  }
  bool is_packed = false;
  EachMatrix(*checkpoint,
             [&](const TensorView& m) { is_packed = is_packed || m.grouped != nullptr; });
  if (is_packed) {
    return absl::FailedPreconditionError(
        absl::StrCat(files.path, ": its maps are quantized already, expected F32, F16 or BF16"));
  }
  LoadAccount account;
  LK_ASSIGN_OR_RETURN(const TensorTable table,
                      TensorTable::OpenDirectory(files.directory, account));
  const ModelConfig config = checkpoint->config;
  Quantizer quantizer(table, config, options, progress);
  LK_RETURN_IF_ERROR(quantizer.Open(path));
  if (texts.empty()) {
    ThreadPool pool(ResolveThreads(options.engine.n_threads));
    LK_RETURN_IF_ERROR(quantizer.WriteTo(config.n_layers, nullptr, pool));
  } else {
    LK_RETURN_IF_ERROR(WriteByTexts(std::move(checkpoint), texts, options, progress, quantizer));
  }
  return quantizer.Finish();
}

}  // namespace lowkey
