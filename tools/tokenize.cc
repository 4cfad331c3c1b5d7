// lowkey tokenize: converts text to token ids and back, without a server.
#include <cstdio>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/base/status_macros.h"
#include "server/config/command.h"
#include "server/config/common_flags.h"
#include "server/config/json_text.h"
#include "server/config/opened_model.h"
#include "server/config/terminal/terminal.h"
#include "server/config/user_files.h"
#include "tokenizer/tokenizer.h"
#include "tools/commands.h"

namespace lowkey {
namespace {

constexpr Flag kTokenizeFlags[] = {
    {"decode", "", "", "token ids in, text out", FlagKind::kSwitch},
    {"pieces", "", "", "print each id with its piece, one a line", FlagKind::kSwitch},
    {"no-bos", "", "", "do not begin with the beginning-of-sequence token", FlagKind::kSwitch},
};

absl::Status Decode(const FlagValues& flags, const Tokenizer& tokenizer, const std::string& text) {
  LK_ASSIGN_OR_RETURN(const std::vector<int32_t> ids,
                      ParseTokenIds(text, "token ids", tokenizer.vocab_size()));
  LK_ASSIGN_OR_RETURN(const std::string decoded, tokenizer.Decode(ids));
  if (flags.Switch("json")) {
    std::printf("{\"text\":%s}\n", JsonString(decoded).c_str());
  } else {
    std::printf("%s\n", (IsTerminal(stdout) ? TerminalSafe(decoded) : decoded).c_str());
  }
  return absl::OkStatus();
}

absl::Status Encode(const FlagValues& flags, const Tokenizer& tokenizer, const std::string& text) {
  EncodeOptions options;
  options.add_eos = false;
  if (flags.Switch("no-bos")) options.add_bos = false;
  LK_ASSIGN_OR_RETURN(const std::vector<int32_t> ids, tokenizer.Encode(text, options));
  std::vector<std::string> pieces;
  for (int32_t id : ids) {
    LK_ASSIGN_OR_RETURN(const std::string_view piece, tokenizer.IdToPiece(id));
    pieces.emplace_back(piece);
  }
  if (flags.Switch("json")) {
    std::vector<std::string> quoted;
    for (const std::string& piece : pieces) quoted.push_back(JsonString(piece));
    std::printf("{\"token_ids\":[%s],\"pieces\":[%s]}\n", absl::StrJoin(ids, ",").c_str(),
                absl::StrJoin(quoted, ",").c_str());
  } else if (flags.Switch("pieces")) {
    for (size_t i = 0; i < ids.size(); ++i) {
      std::printf("%8d  %s\n", ids[i], TerminalSafe(pieces[i]).c_str());
    }
  } else {
    std::printf("%s\n", absl::StrJoin(ids, " ").c_str());
  }
  return absl::OkStatus();
}

absl::Status RunTokenize(const FlagValues& flags) {
  LK_ASSIGN_OR_RETURN(const OpenedModel model, OpenedModel::Open(flags));
  LK_ASSIGN_OR_RETURN(const std::unique_ptr<Tokenizer> tokenizer, model.MakeTokenizer());
  LK_ASSIGN_OR_RETURN(const std::string text, TextArgument(flags, Tokenizer::kMaxTextBytes));
  return flags.Switch("decode") ? Decode(flags, *tokenizer, text) : Encode(flags, *tokenizer, text);
}

}  // namespace

Command TokenizeCommand() {
  Command command("tokenize", "text to token ids, and back", RunTokenize);
  command.spec.positional = "[TEXT]";
  command.spec.description =
      "Prints the token ids of TEXT (or standard input), as a prompt would have them. With "
      "--decode, TEXT is token ids and the output is their text. No server is needed.";
  command.spec.groups = {
      {"Model", ModelFlags()}, {"Tokens", kTokenizeFlags}, {"General", GeneralFlags()}};
  command.spec.examples = {
      "lowkey tokenize \"Once upon a time\"",
      "lowkey tokenize --pieces < story.txt",
      "lowkey tokenize --decode 1 403 407 261",
  };
  return command;
}

}  // namespace lowkey
