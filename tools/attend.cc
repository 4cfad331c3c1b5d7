// lowkey attend: computes one mechanism over given tensors.
#include <cstdio>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "engine/base/tensor.h"
#include "engine/runtime/inspect.h"
#include "server/config/command.h"
#include "server/config/common_flags.h"
#include "server/config/json_text.h"
#include "server/config/terminal/terminal.h"
#include "tools/commands.h"
#include "tools/tensor_file.h"

namespace lowkey {
namespace {

constexpr Flag kAttendFlags[] = {
    {"inputs", "FILE", "",
     "safetensors with q, k, v, or with x and what the mechanism has of wq, wk, wv, wa, tau"},
    {"output", "FILE", "", "safetensors file to write: out [n_heads, n, head_dim], F32"},
};
constexpr Flag kProjectFlags[] = {
    {"heads", "N", "0", "with x and weights: query heads"},
    {"kv-heads", "N", "0", "with x and weights: key and value heads"},
    {"over", "NAME", "efficient", "super: whose keys and values: efficient, optimised, standard"},
    {"rope-theta", "X", "10000", "with x and weights: base of the rotation; 0: none"},
};
constexpr Flag kRunFlags[] = {
    {"prompt-tokens", "N", "0", "rows that count as the prompt (matters to atp); 0: all"},
    {"chunk", "N", "512", "rows computed together in one step"},
    {"dtype", "TYPE", "float32", "the cache: float32, bfloat16"},
    {"threads", "N", "1", "compute threads"},
};

// Returns the flags of attention but --prefix-storage, which needs the calibration of a model.
absl::Span<const Flag> AttendedFlags() {
  static const auto* const flags = [] {
    auto* const list = new std::vector<Flag>();
    for (const Flag& flag : NamedAttentionFlags()) {
      if (flag.name != "prefix-storage") list->push_back(flag);
    }
    return list;
  }();
  return *flags;
}

absl::Status ReadRunOptions(const FlagValues& flags, AttendInputs& inputs) {
  LK_ASSIGN_OR_RETURN(const AttentionChoice attention, ReadAttention(flags));
  LK_ASSIGN_OR_RETURN(inputs.attention, ResolveAttention(attention, {}));
  LK_ASSIGN_OR_RETURN(const EngineOptions engine, ReadEngineOptions(flags));
  if (engine.dtype == EngineOptions::Dtype::kInt8 ||
      engine.dtype == EngineOptions::Dtype::kFloat8) {
    return flags.Error("dtype", "float32 or bfloat16");
  }
  inputs.cache_dtype = engine.dtype;
  inputs.n_threads = engine.n_threads;
  inputs.device = engine.device;
  LK_RETURN_IF_ERROR(flags.ReadInt("prompt-tokens", {0, int64_t{1} << 40}, inputs.n_prompt_tokens));
  return flags.ReadInt("chunk", {1, 1 << 20}, inputs.chunk_tokens);
}

absl::StatusOr<AttendTensors> ReadInputs(const FlagValues& flags, AttendInputs& inputs) {
  ProjectOptions options;
  LK_ASSIGN_OR_RETURN(inputs.over, ParseMechanism(flags.Text("over")));
  options.use = ProjectionsOf(inputs.attention.mechanism, inputs.over);
  LK_RETURN_IF_ERROR(flags.ReadInt("heads", {0, 1024}, options.n_heads));
  LK_RETURN_IF_ERROR(flags.ReadInt("kv-heads", {0, 1024}, options.n_kv_heads));
  LK_RETURN_IF_ERROR(flags.ReadNumber("rope-theta", options.rope_theta));
  inputs.rope_theta = options.rope_theta;
  return ReadAttendTensors(flags.Text("inputs"), options);
}

void PrintOutcome(const FlagValues& flags, const AttendInputs& inputs,
                  const AttendOutputs& outputs) {
  const std::string mechanism(MechanismName(inputs.attention.mechanism));
  if (flags.Switch("json")) {
    nlohmann::ordered_json json = {{"output", flags.Text("output")}, {"mechanism", mechanism}};
    if (inputs.attention.mechanism == Mechanism::kAtp) json["rank"] = outputs.rank;
    json["cache_bytes"] = outputs.cache_bytes;
    json["standard_cache_bytes"] = outputs.standard_cache_bytes;
    std::printf("%s\n", JsonLine(json).c_str());
    return;
  }
  std::string rank = mechanism;
  if (inputs.attention.mechanism == Mechanism::kAtp) {
    absl::StrAppend(&rank, ", rank ", outputs.rank);
  }
  PrintNow(AlignedRows({{"mechanism", rank},
                        {"out", ShapeString({inputs.n_heads, inputs.n_tokens, inputs.head_dim})},
                        {"cache bytes", CountText(outputs.cache_bytes)},
                        {"standard's", CountText(outputs.standard_cache_bytes)}},
                       StyleOf(stdout)));
}

absl::Status RunAttend(const FlagValues& flags) {
  LK_RETURN_IF_ERROR(flags.RequireFiles({"inputs", "output"}));
  AttendInputs inputs;
  LK_RETURN_IF_ERROR(ReadRunOptions(flags, inputs));
  LK_ASSIGN_OR_RETURN(const AttendTensors tensors, ReadInputs(flags, inputs));
  if (!tensors.q.values.empty() && !tensors.k.values.empty()) {
    inputs.n_heads = tensors.q.shape[0];
    inputs.n_kv_heads = tensors.k.shape[0];
    inputs.n_tokens = tensors.q.shape[1];
    inputs.head_dim = tensors.q.shape[2];
  } else {
    LK_RETURN_IF_ERROR(flags.ReadInt("heads", {1, 1024}, inputs.n_heads));
    inputs.n_kv_heads = inputs.n_heads;
    inputs.n_tokens = tensors.x.shape[0];
    inputs.head_dim = tensors.x.shape[1] / inputs.n_heads;
  }
  inputs.x = tensors.x.values;
  inputs.alignment = tensors.wa.values;
  inputs.q = tensors.q.values;
  inputs.k = tensors.k.values;
  inputs.v = tensors.v.values;
  inputs.tau = tensors.tau.values;
  LK_ASSIGN_OR_RETURN(const AttendOutputs outputs, Attend(inputs));
  LK_RETURN_IF_ERROR(WriteFloats(flags.Text("output"), "out",
                                 {inputs.n_heads, inputs.n_tokens, inputs.head_dim}, outputs.out));
  PrintOutcome(flags, inputs, outputs);
  return absl::OkStatus();
}

}  // namespace

Command AttendCommand() {
  Command command("attend", "attention of given tensors, as safetensors", RunAttend);
  command.spec.description =
      "Runs one attention mechanism over tensors of a file: q [n_heads, n, head_dim], k and v "
      "[n_kv_heads, n, head_dim] after RoPE; or x [n, hidden], wq [hidden, n_heads * head_dim], "
      "wk and wv [hidden, n_kv_heads * head_dim], of which optimised has no wv, efficient only wq "
      "and lasso none; wa [l, l] for super, tau [n_heads] for taylorshift. Writes out [n_heads, "
      "n, head_dim] and prints the bytes the cache held. Needs no model and no server.";
  command.spec.groups = {{"Files", kAttendFlags},
                         {"Projection", kProjectFlags},
                         {"Attention", AttendedFlags()},
                         {"Computation", kRunFlags},
                         {"General", GeneralFlags()}};
  command.spec.examples = {
      "lowkey attend --inputs qkv.safetensors --output out.safetensors",
      "lowkey attend --inputs qkv.safetensors --output low.safetensors --attention atp --rank 16 "
      "--prefill compressed",
      "lowkey attend --inputs qkv.safetensors --output shifted.safetensors --attention taylorshift",
      "lowkey attend --inputs x.safetensors --heads 8 --kv-heads 2 --output out.safetensors",
      "lowkey attend --inputs x.safetensors --heads 8 --kv-heads 8 --attention efficient --output "
      "out.safetensors",
  };
  return command;
}

}  // namespace lowkey
