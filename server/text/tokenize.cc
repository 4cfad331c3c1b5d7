// TextService::Tokenize, Render and Detokenize, which need no engine.
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/prefixed.h"
#include "engine/base/status_macros.h"
#include "server/request/limits.h"
#include "server/text/text_service.h"

namespace lowkey {
namespace {

// The memory of one id and its piece in an answer, beside the piece's own bytes.
constexpr size_t kIdBytes = sizeof(int32_t) + sizeof(std::string) + sizeof(void*);

// RESOURCE_EXHAUSTED if the ids and their pieces would take over kMaxTextAnswerBytes.
absl::Status CheckAnswerBytes(const Tokenizer& tokenizer, const TokenList& tokens) {
  size_t n_bytes = 0;
  for (const int32_t token : tokens) {
    LK_ASSIGN_OR_RETURN(const std::string_view piece, tokenizer.IdToPiece(token));
    // Short strings lie within their objects.
    n_bytes += kIdBytes + (piece.size() < sizeof(std::string) / 2 ? 0 : piece.size() + 1);
    if (n_bytes > kMaxTextAnswerBytes) {
      return absl::ResourceExhaustedError(
          absl::StrCat("token_ids and pieces: over ", kMaxTextAnswerBytes,
                       " bytes of memory, expected at most that; split the text"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<TokenizeResult> TextService::Tokenize(const TokenizeRequest& request) const {
  LK_RETURN_IF_ERROR(CheckModel(request.model));
  LK_ASSIGN_OR_RETURN(const std::unique_ptr<LiveRequests::Claim> claim, TakeId(request.tenant, ""));
  Interrupt interrupt = InterruptOf(request.deadline, request.is_cancelled);
  TokenizeResult result;
  if (const auto* text = std::get_if<std::string>(&request.input)) {
    if (text->size() > kMaxTokenizeBytes) {
      return absl::InvalidArgumentError(
          absl::StrCat("text: ", text->size(), " bytes, expected at most ", kMaxTokenizeBytes));
    }
    EncodeOptions options;
    options.add_eos = false;
    // A model without bos has none to add.
    if (!request.add_bos) options.add_bos = false;
    options.interrupt = &interrupt;
    LK_ASSIGN_OR_RETURN(result.tokens, Prefixed("text", tokenizer_.Encode(*text, options)));
  } else {
    LK_ASSIGN_OR_RETURN(ChatPrompt prompt,
                        TokenizeChat(std::get<Conversation>(request.input),
                                     {.max_bytes = kMaxTokenizeBytes, .interrupt = &interrupt}));
    result = {std::move(prompt.tokens), std::move(prompt.text)};
  }
  if (request.is_charged) claim->Charge(static_cast<int64_t>(result.tokens.size()));
  LK_RETURN_IF_ERROR(CheckAnswerBytes(tokenizer_, result.tokens));
  return result;
}

absl::StatusOr<std::string> TextService::Render(const Conversation& conversation,
                                                const Tenant& tenant) const {
  // Only who may send a request now may have a template run.
  LK_RETURN_IF_ERROR(TakeId(tenant, "").status());
  LK_ASSIGN_OR_RETURN(RenderedChat rendered,
                      RenderChat(conversation, options_.chat_templates, tokenizer_));
  return std::move(rendered.text);
}

absl::StatusOr<std::string> TextService::Detokenize(const DetokenizeRequest& request) const {
  LK_RETURN_IF_ERROR(CheckModel(request.model));
  const size_t n = request.tokens.size();
  if (n > size_t{kMaxDetokenizeIds}) {
    return absl::InvalidArgumentError(
        absl::StrCat("token_ids: ", n, " ids, expected at most ", kMaxDetokenizeIds));
  }
  LK_ASSIGN_OR_RETURN(const std::unique_ptr<LiveRequests::Claim> claim, TakeId(request.tenant, ""));
  LK_RETURN_IF_ERROR(CheckTokens("token_ids", request.tokens));
  claim->Charge(static_cast<int64_t>(n));
  Interrupt interrupt = InterruptOf(request.deadline, request.is_cancelled);
  LK_RETURN_IF_ERROR(interrupt.Count());
  return tokenizer_.Decode(request.tokens, {.max_bytes = kMaxTextAnswerBytes});
}

}  // namespace lowkey
