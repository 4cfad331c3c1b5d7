// lowkey logits: computes logits of token ids, to compare the engine with other implementations.
#include <cstdio>
#include <string>
#include <vector>

#include "engine/base/prefixed.h"
#include "engine/base/status_macros.h"
#include "engine/loader/safetensors.h"
#include "engine/runtime/inspect.h"
#include "server/config/calibration_flags.h"
#include "server/config/command.h"
#include "server/config/common_flags.h"
#include "server/config/json_text.h"
#include "server/config/opened_model.h"
#include "server/config/terminal/terminal.h"
#include "server/config/user_files.h"
#include "tools/commands.h"
#include "tools/tensor_file.h"

namespace lowkey {
namespace {

constexpr Flag kLogitsFlags[] = {
    {"tokens-file", "FILE", "", "token ids separated by white space; - is standard input"},
    {"output", "FILE", "", "safetensors file to write: logits [n_tokens, vocab_size], F32"},
    {"chunk", "N", "512", "tokens computed together in one step"},
    {"prompt-tokens", "N", "0",
     "tokens of the prompt: those behind it are given one by one, and only theirs written; 0: all"},
};

absl::Status RunLogits(const FlagValues& flags) {
  LK_RETURN_IF_ERROR(flags.RequireFiles({"tokens-file", "output"}));
  LogitsOptions options;
  LK_ASSIGN_OR_RETURN(options.engine, ReadEngineOptions(flags));
  LK_ASSIGN_OR_RETURN(const AttentionChoice attention, ReadAttention(flags));
  LK_ASSIGN_OR_RETURN(options.attention, ResolveAttention(attention, {}));
  LK_RETURN_IF_ERROR(flags.ReadInt("chunk", {1, 1 << 20}, options.chunk_tokens));
  LK_RETURN_IF_ERROR(
      flags.ReadInt("prompt-tokens", {0, int64_t{1} << 40}, options.n_prompt_tokens));
  LK_RETURN_IF_ERROR(CheckWritable(flags, {"output"}));
  LK_ASSIGN_OR_RETURN(const OpenedModel model, OpenedModel::Open(flags));
  LK_ASSIGN_OR_RETURN(const auto weights, model.Weights());
  LK_RETURN_IF_ERROR(ReadCalibration(flags, model, *weights, options.engine));
  const int32_t vocab_size = weights->config.vocab_size;
  LK_ASSIGN_OR_RETURN(
      const std::vector<int32_t> tokens,
      Prefixed("--tokens-file", ReadTokenFile(flags.Text("tokens-file"), vocab_size)));
  LK_ASSIGN_OR_RETURN(const std::vector<float> logits, ComputeLogits(weights, tokens, options));
  const auto n_tokens = static_cast<int64_t>(logits.size()) / vocab_size;
  const std::string output = flags.Text("output");
  LK_RETURN_IF_ERROR(WriteFloats(output, "logits", {n_tokens, vocab_size}, logits));
  if (flags.Switch("json")) {
    std::printf("{\"output\":%s,\"n_tokens\":%lld,\"vocab_size\":%d}\n", JsonString(output).c_str(),
                static_cast<long long>(n_tokens), vocab_size);
  } else {
    std::fprintf(stderr, "%s: logits [%s, %s]\n", output.c_str(), CountText(n_tokens).c_str(),
                 CountText(vocab_size).c_str());
  }
  return absl::OkStatus();
}

}  // namespace

Command LogitsCommand() {
  Command command("logits", "token ids in, logits out as safetensors", RunLogits);
  command.spec.description =
      "Computes the logits after every token of a list and writes them as safetensors. Needs no "
      "tokenizer and no server: a way to compare the engine with any other implementation.";
  command.spec.groups = {{"Files", kLogitsFlags},
                         {"Model", ModelFlags()},
                         {"Engine", EngineFlags()},
                         {"Calibration of the model", CalibrationFlags()},
                         {"Attention", NamedAttentionFlags()},
                         {"General", GeneralFlags()}};
  command.spec.examples = {
      "lowkey tokenize \"Once upon a time\" > ids.txt",
      "lowkey logits --tokens-file ids.txt --output logits.safetensors --dtype float32",
      "lowkey logits --tokens-file ids.txt --output low.safetensors --attention atp --rank 16",
  };
  return command;
}

}  // namespace lowkey
