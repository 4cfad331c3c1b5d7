#include "server/config/common_flags.h"

#include <cmath>
#include <deque>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "engine/base/status_macros.h"
#include "engine/config/limits.h"
#include "engine/kernels/device/device.h"

namespace lowkey {
namespace {

constexpr char kDemoModel[] = "models/tales";

constexpr Flag kModelFlags[] = {
    {"model", "PATH", "",
     "a .gguf file, a directory with config.json and *.safetensors, or "
     "hf:OWNER/NAME[@REVISION][:QUANT], which is fetched into a cache [the demo model]"},
    {"offline", "", "", "take hf: models from the cache alone", FlagKind::kSwitch},
};
constexpr Flag kEngineFlags[] = {
    {"dtype", "TYPE", "auto",
     "weights: auto (as a GGUF file stores quantized ones; else bfloat16, or float32 where files "
     "are "
     "F32), float32, bfloat16, int8, float8",
     FlagKind::kValue, "auto,float32,bfloat16,int8,float8"},
    {"threads", "N", "0", "compute threads; 0: one for each core that it may use"},
    {"device", "NAME", "cpu", "where to compute: cpu, cuda:0, or auto: cuda:0 where there is one"},
};
constexpr Flag kServingFlags[] = {
    {"cache-bytes", "BYTES", "0",
     "key-value cache, such as 512M or 2G; 0: a quarter of free memory, at most 64 whole contexts"},
    {"max-batch-tokens", "N", "0", "tokens computed together in one step (0: 512; 2048 on a GPU)"},
    {"step-ms", "N", "100",
     "prompts come in chunks that let running streams wait no longer than this"},
    {"max-running", "N", "64", "sequences computed together in one step"},
    {"max-queued", "N", "256", "requests that may wait"},
    {"max-queued-tokens", "N", "1048576", "tokens of prompts that may wait"},
    {"max-wait", "TIME", "30", "refuse requests that would wait longer, judged by steps so far"},
    {"prefix-cache", "on|off", "on", "keep prompts in the cache for later ones that begin alike",
     FlagKind::kValue, "on,off"},
    {"prefix-dir", "FOLDER", "",
     "keep prompts of attention standard in files too, for later starts and other servers here "
     "[none]"},
    {"prefix-dir-bytes", "BYTES", "8G", "all files there; those used longest ago go first"},
    {"context", "N", "0", "tokens of prompt and output together; 0: the model's limit"},
};
constexpr Flag kDraftFlags[] = {
    {"draft", "NAME", "",
     "off, or lookup: try what followed the last tokens earlier in the text; same output [off]",
     FlagKind::kValue, "off,lookup"},
};
constexpr Flag kMechanismFlag = {
    "attention", "NAME", "",
    "standard, atp (older tokens at low rank), taylorshift, one of the model's, auto [standard]"};
constexpr Flag kNamedMechanismFlag = {
    "attention", "NAME", "",
    "standard, atp (older tokens at low rank), taylorshift, one of the model's [standard]"};
constexpr Flag kSelectionFlags[] = {
    {"objective", "NAME", "", "auto: least latency, least memory, or balanced [balanced]"},
    {"allow", "NAME,...", "", "auto: the mechanisms to choose among [all that the model has]"},
    {"approximate", "", "", "auto: approximate mechanisms too", FlagKind::kSwitch},
    {"max-perplexity-ratio", "X", "",
     "auto: the highest perplexity over standard's [the model's own, else 1.02]"},
};
constexpr Flag kSamplingFlags[] = {
    {"temperature", "T", "", "0..2; 0 takes the most likely token [0]"},
    {"top-k", "N", "", "draw from the N most likely tokens; 0: all [0]"},
    {"top-p", "P", "", "draw from the fewest tokens of probability P together [1]"},
    {"min-p", "P", "", "leave out tokens below P times the most likely [0]"},
    {"repetition-penalty", "X", "", "0..2, on tokens of prompt and output; 1: none [1]"},
    {"presence-penalty", "X", "", "-2..2, on tokens already generated [0]"},
    {"frequency-penalty", "X", "",
     "-2..2, on those tokens, for each time that they were generated [0]"},
    {"logit-bias", "ID:VALUE,...", "", "added to the logits of these token ids, -100..100"},
};
constexpr Flag kGenerationFlags[] = {
    {"system", "TEXT", "", "answer the prompt as a message after this system message"},
    {"max-new-tokens", "N", "", "tokens to generate [128, or what the context leaves]"},
    {"seed", "N", "", "same seed, same tokens [drawn by the server]"},
    {"n", "N", "", "choices to generate, 1..8 [1]"},
    {"priority", "N", "", "-100..100: higher ones of a tenant's requests begin first [0]"},
    {"stop", "TEXT", "", "end before this text", FlagKind::kRepeated},
    {"logprobs", "N", "", "report log-probabilities with N alternatives, 0..20"},
    {"ignore-eos", "", "", "go on past the model's end of sequence", FlagKind::kSwitch},
};
constexpr Flag kGeneralFlags[] = {
    {"json", "", "", "print one line of JSON instead", FlagKind::kSwitch},
    {"config", "FILE", "", "read flags from FILE"},
};

// Returns an option's default as users type it: a rank of 0.25 is "1/4".
std::string DefaultText(const AttentionOption& option) {
  const std::string text = OptionText(option.get({}));
  double fraction = 0;
  if (option.kind != OptionKind::kRank || !absl::SimpleAtod(text, &fraction)) return text;
  const double parts = std::round(1 / fraction);
  return fraction < 1 && parts * fraction == 1 ? absl::StrCat("1/", parts) : text;
}

// A flag for the mechanism, then those of every option of the table, then others; owns their help
// texts.
struct AttentionFlagList {
  AttentionFlagList(const Flag& mechanism, absl::Span<const Flag> others) {
    flags.push_back(mechanism);
    for (const AttentionOption& option : AttentionOptionTable()) {
      const bool is_switch = option.kind == OptionKind::kSwitch;
      std::string& help = helps.emplace_back(MechanismName(option.owner));
      absl::StrAppend(&help, ": ", std::string(option.help));
      if (option.names != nullptr) {
        absl::StrAppend(&help, ": ", ListNames(*option.names, option.traits.max));
      }
      if (!is_switch) absl::StrAppend(&help, " [", DefaultText(option), "]");
      const char* value_name = option.kind == OptionKind::kName            ? "NAME"
                               : option.kind == OptionKind::kInteger       ? "N"
                               : option.kind == OptionKind::kRank          ? "R"
                               : option.kind == OptionKind::kPrefixStorage ? "HOW"
                                                                           : "";
      flags.push_back(
          {option.flag, value_name, "", help, is_switch ? FlagKind::kSwitch : FlagKind::kValue});
    }
    flags.insert(flags.end(), others.begin(), others.end());
  }

  std::vector<Flag> flags;
  std::deque<std::string> helps;
};

void ReadText(const FlagValues& flags, std::string_view name, std::optional<std::string>& to) {
  if (flags.Has(name)) to = flags.Text(name);
}

absl::StatusOr<EngineOptions::Dtype> ReadDtype(const FlagValues& flags) {
  constexpr EnumNames kNames = {"dtype", {"auto", "float32", "bfloat16", "int8", "float8"}};
  if (!flags.Has("dtype")) return EngineOptions::Dtype::kAuto;
  const absl::StatusOr<int32_t> value = FindValue(kNames, flags.Text("dtype"));
  if (!value.ok()) return flags.Error("dtype", ListNames(kNames));
  return static_cast<EngineOptions::Dtype>(*value);
}

// Returns nullptr for the CPU.
absl::StatusOr<std::shared_ptr<Device>> ReadDevice(const FlagValues& flags) {
  const std::string name = flags.Text("device");
  if (name.empty() || name == "cpu") return nullptr;
  auto device = OpenDevice(name == "auto" ? "cuda:0" : name);
  if (device.ok()) return *std::move(device);
  if (name == "auto") return nullptr;
  return absl::IsInvalidArgument(device.status())
             ? flags.Error("device", "cpu, auto, or cuda: and a number")
             : absl::Status(device.status().code(),
                            absl::StrCat("--device ", device.status().message()));
}

absl::Status ReadPrefixFiles(const FlagValues& flags, EngineOptions& options) {
  LK_ASSIGN_OR_RETURN(const std::optional<int64_t> max_bytes, flags.Bytes("prefix-dir-bytes"));
  options.prefix_files.max_bytes = max_bytes.value_or(0);
  if (options.prefix_files.max_bytes <= 0) return flags.Error("prefix-dir-bytes", "more than 0");
  options.prefix_files.folder = flags.Text("prefix-dir");
  if (options.prefix_files.folder.empty()) {
    return flags.IsGiven("prefix-dir-bytes")
               ? flags.Error("prefix-dir-bytes", "none without --prefix-dir")
               : absl::OkStatus();
  }
  if (options.device != nullptr) {
    return flags.Error("prefix-dir", "none with --device: files are for the CPU's cache alone");
  }
  if (!options.keeps_prefixes) return flags.Error("prefix-dir", "none with --prefix-cache off");
  return absl::OkStatus();
}

}  // namespace

absl::Span<const Flag> ModelFlags() { return kModelFlags; }
absl::Span<const Flag> EngineFlags() { return kEngineFlags; }
absl::Span<const Flag> ServingFlags() { return kServingFlags; }
absl::Span<const Flag> AttentionFlags() {
  static const auto* const list = new AttentionFlagList(kMechanismFlag, kSelectionFlags);
  return list->flags;
}
absl::Span<const Flag> NamedAttentionFlags() {
  static const auto* const list = new AttentionFlagList(kNamedMechanismFlag, {});
  return list->flags;
}
absl::Span<const Flag> SamplingFlags() { return kSamplingFlags; }
absl::Span<const Flag> GenerationFlags() { return kGenerationFlags; }
absl::Span<const Flag> DraftFlags() { return kDraftFlags; }
absl::Span<const Flag> GeneralFlags() { return kGeneralFlags; }

absl::StatusOr<EngineOptions> ReadEngineOptions(const FlagValues& flags) {
  EngineOptions options;
  LK_ASSIGN_OR_RETURN(options.dtype, ReadDtype(flags));
  LK_RETURN_IF_ERROR(flags.ReadInt("threads", {0, 1024}, options.n_threads));
  LK_ASSIGN_OR_RETURN(options.device, ReadDevice(flags));
  if (options.device != nullptr) options.max_batch_tokens = 2048;
  return options;
}

absl::StatusOr<EngineOptions> ReadServingOptions(const FlagValues& flags) {
  LK_ASSIGN_OR_RETURN(EngineOptions options, ReadEngineOptions(flags));
  LK_ASSIGN_OR_RETURN(const std::optional<int64_t> cache_bytes, flags.Bytes("cache-bytes"));
  options.cache_bytes = cache_bytes.value_or(0);
  int32_t max_batch_tokens = 0;
  LK_RETURN_IF_ERROR(flags.ReadInt("max-batch-tokens", {0}, max_batch_tokens));
  if (max_batch_tokens > 0) options.max_batch_tokens = max_batch_tokens;
  int32_t step_ms = 0;
  LK_RETURN_IF_ERROR(flags.ReadInt("step-ms", {1}, step_ms));
  options.step_target = absl::Milliseconds(step_ms);
  LK_RETURN_IF_ERROR(flags.ReadInt("max-running", {1}, options.max_running_seqs));
  LK_RETURN_IF_ERROR(flags.ReadInt("max-queued", {1}, options.max_queued_requests));
  LK_RETURN_IF_ERROR(
      flags.ReadInt("max-queued-tokens", {1, int64_t{1} << 40}, options.max_queued_prompt_tokens));
  LK_RETURN_IF_ERROR(flags.ReadSeconds("max-wait", options.max_wait));
  if (options.max_wait <= absl::ZeroDuration()) {
    return flags.Error("max-wait", "more than 0 seconds");
  }
  const std::string prefix_cache = flags.Text("prefix-cache");
  if (prefix_cache != "on" && prefix_cache != "off")
    return flags.Error("prefix-cache", "on or off");
  options.keeps_prefixes = prefix_cache == "on";
  LK_RETURN_IF_ERROR(ReadPrefixFiles(flags, options));
  LK_RETURN_IF_ERROR(flags.ReadInt("context", {0}, options.context_tokens));
  return options;
}

absl::StatusOr<SamplingChoice> ReadSampling(const FlagValues& flags) {
  SamplingChoice sampling;
  LK_RETURN_IF_ERROR(flags.ReadNumber("temperature", sampling.temperature));
  LK_RETURN_IF_ERROR(flags.ReadInt("top-k", {0}, sampling.top_k));
  LK_RETURN_IF_ERROR(flags.ReadNumber("top-p", sampling.top_p));
  LK_RETURN_IF_ERROR(flags.ReadNumber("min-p", sampling.min_p));
  LK_RETURN_IF_ERROR(flags.ReadNumber("repetition-penalty", sampling.repetition_penalty));
  LK_RETURN_IF_ERROR(flags.ReadNumber("presence-penalty", sampling.presence_penalty));
  LK_RETURN_IF_ERROR(flags.ReadNumber("frequency-penalty", sampling.frequency_penalty));
  LK_ASSIGN_OR_RETURN(sampling.logit_bias, flags.IdBiases("logit-bias"));
  return sampling;
}

absl::StatusOr<AttentionChoice> ReadAttention(const FlagValues& flags) {
  AttentionChoice attention;
  ReadText(flags, "attention", attention.mechanism);
  for (const AttentionOption& option : AttentionOptionTable()) {
    if (!flags.Has(option.flag)) continue;
    OptionValue& value = attention.options[std::string(option.name)];
    if (option.kind == OptionKind::kInteger) {
      LK_RETURN_IF_ERROR(flags.ReadInt(option.flag, {option.traits.min, option.traits.max},
                                       value.emplace<int32_t>()));
    } else if (option.kind == OptionKind::kSwitch) {
      value = flags.Switch(option.flag);
    } else {
      value = flags.Text(option.flag);
    }
  }
  ReadText(flags, "objective", attention.objective);
  if (flags.Has("allow")) {
    attention.allowed = absl::StrSplit(flags.Text("allow"), ',', absl::SkipEmpty());
  }
  if (flags.Has("approximate")) attention.allow_approximate = flags.Switch("approximate");
  LK_ASSIGN_OR_RETURN(attention.max_perplexity_ratio, flags.Number("max-perplexity-ratio"));
  return attention;
}

absl::StatusOr<AttentionChoice> ParseAttention(const std::vector<std::string>& words,
                                               absl::Span<const Flag> known) {
  CommandSpec spec;
  spec.positional = "NAME";
  spec.groups = {{"Attention", known}};
  FlagSources none;
  none.environment = [](const std::string&) { return std::nullopt; };
  LK_ASSIGN_OR_RETURN(const FlagValues flags, ParseFlags(spec, words, {}, none));
  LK_ASSIGN_OR_RETURN(AttentionChoice choice, ReadAttention(flags));
  if (flags.positional().size() > 1) {
    return absl::InvalidArgumentError("attention: more than one name");
  }
  if (!flags.positional().empty()) choice.mechanism = flags.positional()[0];
  return choice;
}

absl::StatusOr<GenerationRequest> ReadGeneration(const FlagValues& flags) {
  GenerationRequest request;
  LK_ASSIGN_OR_RETURN(request.sampling, ReadSampling(flags));
  LK_ASSIGN_OR_RETURN(request.sampling.seed, flags.Seed("seed"));
  LK_ASSIGN_OR_RETURN(request.attention, ReadAttention(flags));
  LK_RETURN_IF_ERROR(flags.ReadInt("max-new-tokens", {0}, request.max_new_tokens));
  LK_RETURN_IF_ERROR(flags.ReadInt("n", {1, kMaxChoices}, request.n));
  LK_RETURN_IF_ERROR(flags.ReadInt("logprobs", {0}, request.logprobs));
  LK_RETURN_IF_ERROR(flags.ReadInt("priority", {-kMaxPriority, kMaxPriority}, request.priority));
  ReadText(flags, "draft", request.draft);
  request.stop_texts = flags.Texts("stop");
  request.ignore_eos = flags.Switch("ignore-eos");
  return request;
}

absl::StatusOr<std::string> ModelDirectory(const FlagValues& flags) {
  if (flags.IsGiven("model")) return flags.Text("model");
  namespace fs = std::filesystem;
  std::error_code error;
  const fs::path folder = fs::read_symlink("/proc/self/exe", error).parent_path();
  std::vector<std::string> tried;
  for (const fs::path& place : {folder / "../share/lowkey" / kDemoModel, folder / ".." / kDemoModel,
                                fs::path(kDemoModel)}) {
    const fs::path directory = place.lexically_normal();
    if (fs::is_regular_file(directory / "config.json", error)) return directory.string();
    tried.push_back(directory.string());
  }
  return absl::NotFoundError(
      absl::StrCat("no --model given and no demo model found in ", absl::StrJoin(tried, ", ")));
}

}  // namespace lowkey
