// Implements `lowkey quantize`: writes a model of 4 or 8 bits a weight.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>
#include <system_error>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_format.h"
#include "engine/base/files.h"
#include "engine/base/json.h"
#include "engine/base/status_macros.h"
#include "engine/loader/mapped_file.h"
#include "engine/runtime/calibration/principal_code_file.h"
#include "engine/runtime/quantization/quantize_checkpoint.h"
#include "server/config/command.h"
#include "server/config/common_flags.h"
#include "server/config/json_text.h"
#include "server/config/opened_model.h"
#include "server/config/terminal/layout.h"
#include "server/config/terminal/terminal.h"
#include "server/config/user_files.h"
#include "tools/calibration/texts.h"
#include "tools/commands.h"

namespace lowkey {
namespace {

namespace fs = std::filesystem;

constexpr Flag kQuantizeFlags[] = {
    {"output", "DIR", "", "write the model here: a folder that is new or empty"},
    {"bits", "N", "4", "bits of a weight's code: 4 or 8"},
    {"group", "N", "32", "inputs that share a scale: 32, 64 or 128"},
    {"plain", "", "", "read no texts: every input counts the same", FlagKind::kSwitch},
    kPieceFlag,
};
constexpr size_t kMaxConfigBytes = size_t{1} << 20;

absl::Status MakeFolder(const FlagValues& flags, const std::string& path) {
  std::error_code error;
  if (path.empty()) return flags.Error("output", "a folder to write to");
  if (fs::exists(path, error) && !(fs::is_directory(path, error) && fs::is_empty(path, error))) {
    return flags.Error("output", "a folder that is new or empty");
  }
  fs::create_directories(path, error);
  return error ? FileError(path, "cannot be made", error.value()) : absl::OkStatus();
}

// Returns whether a file of the model holds its old weights or says something of them alone.
bool IsReplaced(const std::string& name) {
  for (const char* ending : {".bin", ".pt", ".pth", ".gguf", ".onnx", ".h5", ".msgpack"}) {
    if (absl::EndsWith(name, ending)) return true;
  }
  return name == "config.json" || name == "principal.safetensors" ||
         name == "model.safetensors.index.json" ||
         (absl::StartsWith(name, "model") && absl::EndsWith(name, ".safetensors"));
}

// Copies the tokenizer, chat templates, and what else lies beside the weights.
absl::Status CopyOtherFiles(const std::string& from, const std::string& to) {
  std::error_code error;
  for (const fs::directory_entry& entry : fs::directory_iterator(from, error)) {
    const std::string name = entry.path().filename().string();
    std::error_code failed;  // a link to nothing is no file
    if (!entry.is_regular_file(failed) || IsReplaced(name)) continue;
    fs::copy_file(entry.path(), fs::path(to) / name, failed);
    if (failed) return FileError(entry.path().string(), "cannot be copied", failed.value());
  }
  return error ? FileError(from, "cannot be read", error.value()) : absl::OkStatus();
}

// Writes the model's config.json with a description of how its maps are packed. Last of all: a
// folder without it is no model.
absl::Status WriteConfig(const std::string& from, const std::string& to, const Rounding& rounding) {
  LK_ASSIGN_OR_RETURN(const auto file, MappedFile::Open(from + "/config.json", kMaxConfigBytes));
  auto config = nlohmann::ordered_json::parse(file->text(), nullptr, false);
  if (!config.is_object()) return absl::FailedPreconditionError("config.json: no object");
  config["quantization_config"] = {
      {"quant_method", "gptq"},    {"bits", rounding.bits}, {"group_size", rounding.group_size},
      {"sym", rounding.bits == 8}, {"desc_act", false},     {"checkpoint_format", "gptq"},
      {"lm_head", false},          {"pack_dtype", "int32"}};
  return WriteTextFile(to + "/config.json", config.dump(2) + "\n");
}

// The maps of one name, over the layers.
struct MapErrors {
  std::string name;
  std::vector<double> shares;
};

std::vector<MapErrors> ByName(const std::vector<QuantizedMap>& maps) {
  std::vector<MapErrors> result;
  for (const QuantizedMap& map : maps) {
    auto found = std::find_if(result.begin(), result.end(),
                              [&](const MapErrors& m) { return m.name == map.name; });
    if (found == result.end()) found = result.insert(result.end(), {map.name, {}});
    found->shares.push_back(map.error_share);
  }
  return result;
}

void PrintErrors(const std::vector<QuantizedMap>& maps) {
  Table table({"map", "error: least", "median", "most"}, 1, StyleOf(stdout).columns);
  std::vector<std::vector<std::string>> rows;
  for (MapErrors& map : ByName(maps)) {
    std::sort(map.shares.begin(), map.shares.end());
    const auto percent = [](double share) { return absl::StrFormat("%.2f%%", 100 * share); };
    rows.push_back({map.name, percent(map.shares.front()),
                    percent(map.shares[map.shares.size() / 2]), percent(map.shares.back())});
  }
  for (const auto& row : rows) table.Widen(row);
  PrintHeader(table);
  for (const auto& row : rows) PrintNow(table.Row(row));
}

void PrintJson(const std::string& output, int64_t n_tokens, const QuantizeOptions& options,
               const QuantizeReport& report) {
  auto maps = nlohmann::ordered_json::array();
  for (const QuantizedMap& map : report.maps) {
    maps.push_back({{"layer", map.layer}, {"name", map.name}, {"error_share", map.error_share}});
  }
  const nlohmann::ordered_json json = {{"output", output},
                                       {"tokens", n_tokens},
                                       {"bits", options.rounding.bits},
                                       {"group_size", options.rounding.group_size},
                                       {"bytes_before", report.bytes_before},
                                       {"bytes_after", report.bytes_after},
                                       {"maps", maps}};
  std::printf("%s\n", JsonLine(json).c_str());
}

absl::Status ReadRounding(const FlagValues& flags, Rounding& rounding) {
  int64_t bits = 0;
  LK_RETURN_IF_ERROR(flags.ReadInt("bits", {4, 8}, bits));
  LK_RETURN_IF_ERROR(flags.ReadInt("group", {32, 128}, rounding.group_size));
  if (bits != 4 && bits != 8) return flags.Error("bits", "4 or 8");
  if (rounding.group_size % 32 != 0 || rounding.group_size == 96) {
    return flags.Error("group", "32, 64 or 128");
  }
  rounding.bits = static_cast<int>(bits);
  return absl::OkStatus();
}

absl::Status RunQuantize(const FlagValues& flags) {
  QuantizeOptions options;
  LK_ASSIGN_OR_RETURN(options.engine, ReadEngineOptions(flags));
  if (options.engine.device != nullptr) return flags.Error("device", "cpu");
  LK_RETURN_IF_ERROR(ReadRounding(flags, options.rounding));
  const bool is_plain = flags.Switch("plain");
  if (is_plain && !flags.positional().empty()) {
    return flags.Error("plain", "no texts beside it");
  }
  const std::string output = flags.Text("output");
  LK_ASSIGN_OR_RETURN(const OpenedModel model, OpenedModel::Open(flags));
  LK_ASSIGN_OR_RETURN(const auto weights, model.Weights());
  CalibrationTexts texts;
  if (!is_plain) {
    LK_ASSIGN_OR_RETURN(texts, ReadCalibrationTexts(flags, model, *weights));
  }
  LK_RETURN_IF_ERROR(MakeFolder(flags, output));
  auto bars = std::make_unique<CalibrationBars>("maps");
  LK_ASSIGN_OR_RETURN(const QuantizeReport report,
                      QuantizeCheckpoint(model.files(), weights, texts.pieces, options,
                                         output + "/model.safetensors", bars->Callbacks()));
  bars.reset();
  LK_RETURN_IF_ERROR(CopyOtherFiles(model.files().directory, output));
  LK_RETURN_IF_ERROR(WriteConfig(model.files().directory, output, options.rounding));
  if (flags.Switch("json")) {
    PrintJson(output, texts.n_tokens, options, report);
    return absl::OkStatus();
  }
  std::fprintf(stderr, "%s: %s of tensors, before %s\n", output.c_str(),
               BytesText(report.bytes_after).c_str(), BytesText(report.bytes_before).c_str());
  PrintErrors(report.maps);
  return absl::OkStatus();
}

}  // namespace

Command QuantizeCommand() {
  Command command("quantize", "write a model of 4 or 8 bits a weight", RunQuantize);
  command.spec.positional = "[FILE...]";
  command.spec.description =
      "Rounds the linear maps of a model in Hugging Face layout to 4 or 8 bits by GPTQ, "
      "which reads texts through the model to see what the maps are multiplied with, and "
      "writes a checkpoint that lowkey and other engines serve. Without FILE a built-in "
      "sample of many kinds of text is read. The table shows the share of the maps' outputs "
      "that the rounding changes; what that costs in predictions, `lowkey eval perplexity` "
      "measures. Embeddings, norms and the last map stay as they are.";
  command.spec.groups = {{"Quantization", kQuantizeFlags},
                         {"Model", ModelFlags()},
                         {"Engine", EngineFlags()},
                         {"General", GeneralFlags()}};
  command.spec.examples = {
      "lowkey quantize --model ~/models/llama --output ~/models/llama-int4",
      "lowkey quantize --model hf:OWNER/NAME --output small --group 32 story.txt program.cc",
      "lowkey quantize --model ~/models/llama --output quick --plain",
  };
  return command;
}

}  // namespace lowkey
