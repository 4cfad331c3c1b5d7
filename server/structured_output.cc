#include "server/structured_output.h"

#include "absl/strings/str_cat.h"
#include "engine/base/prefixed.h"
#include "engine/base/status_macros.h"
#include "server/grammar/compile.h"

namespace lowkey {
namespace {

using Kind = ResponseFormat::Kind;

// Distinct for distinct formats and tenants.
std::string KeyOf(const ResponseFormat& format, const std::string& tenant) {
  std::string key = absl::StrCat(tenant.size(), " ", tenant, static_cast<int>(format.kind), " ");
  if (format.kind != Kind::kChoice) return key + format.text;
  for (const std::string& choice : format.choices)
    absl::StrAppend(&key, choice.size(), " ", choice);
  return key;
}

const char* NameOf(Kind kind) {
  switch (kind) {
    case Kind::kJsonObject:
      return "json_object";
    case Kind::kJsonSchema:
      return "json_schema";
    case Kind::kRegex:
      return "regex";
    case Kind::kChoice:
      return "choice";
    case Kind::kGrammar:
      break;
  }
  return "grammar";
}

absl::StatusOr<std::shared_ptr<const grammar::Grammar>> CompileGrammar(const ResponseFormat& format,
                                                                       Interrupt& interrupt) {
  grammar::Budget budget(&interrupt);
  LK_RETURN_IF_ERROR(budget.Charge(1));
  switch (format.kind) {
    case Kind::kJsonObject:
      return grammar::CompileJsonObject(budget);
    case Kind::kJsonSchema:
      return grammar::CompileJsonSchema(format.text, budget);
    case Kind::kRegex:
      return grammar::CompileRegex(format.text, budget);
    case Kind::kChoice:
      return grammar::CompileChoice(format.choices, budget);
    case Kind::kGrammar:
      break;
  }
  return grammar::CompileEbnf(format.text, budget);
}

absl::Status CheckSize(const ResponseFormat& format) {
  size_t n_bytes = format.text.size();
  for (const std::string& choice : format.choices) n_bytes += choice.size() + 1;
  return grammar::CheckGrammarBytes(NameOf(format.kind), n_bytes);
}

}  // namespace

std::shared_ptr<const grammar::Vocabulary> StructuredOutput::VocabularyOnce() {
  absl::MutexLock lock(&mutex_);
  if (vocabulary_ == nullptr) {
    vocabulary_ = std::make_shared<const grammar::Vocabulary>(tokenizer_, vocab_size_, end_tokens_);
  }
  return vocabulary_;
}

StructuredOutput::Factory StructuredOutput::Find(const std::string& key) {
  absl::MutexLock lock(&mutex_);
  const auto found = found_.find(key);
  if (found == found_.end()) return nullptr;
  entries_.splice(entries_.begin(), entries_, found->second);
  return found->second->factory;
}

void StructuredOutput::Keep(Entry entry) {
  absl::MutexLock lock(&mutex_);
  if (found_.contains(entry.key)) return;  // another thread was faster
  size_bytes_ += entry.size_bytes;
  entries_.push_front(std::move(entry));
  found_[entries_.front().key] = entries_.begin();
  while (size_bytes_ > kMaxCachedBytes && entries_.size() > 1) {
    size_bytes_ -= entries_.back().size_bytes;
    found_.erase(entries_.back().key);
    entries_.pop_back();
  }
}

int64_t StructuredOutput::cached_bytes() const {
  absl::MutexLock lock(&mutex_);
  return size_bytes_;
}

absl::StatusOr<std::shared_ptr<const TokenConstraintFactory>> StructuredOutput::Compile(
    const ResponseFormat& format, const std::string& tenant, Interrupt& interrupt) {
  if (end_tokens_.empty()) {
    return absl::FailedPreconditionError(
        "response_format: the model has no end-of-sequence token, expected one that ends the text");
  }
  LK_RETURN_IF_ERROR(Prefixed("response_format", CheckSize(format)));
  std::string key = KeyOf(format, tenant);
  if (Factory found = Find(key); found != nullptr) return found;
  absl::StatusOr<std::shared_ptr<const grammar::Grammar>> compiled =
      CompileGrammar(format, interrupt);
  if (absl::IsInvalidArgument(compiled.status())) {
    return Prefixed("response_format", compiled.status());
  }
  LK_RETURN_IF_ERROR(compiled.status());
  const int64_t size_bytes = (*compiled)->size_bytes() + 2 * static_cast<int64_t>(key.size()) + 256;
  auto factory = std::make_shared<const grammar::GrammarConstraintFactory>(
      grammar::ConstraintParts{*std::move(compiled), VocabularyOnce(), masks_, &tokenizer_});
  Keep({std::move(key), factory, size_bytes});
  return factory;
}

}  // namespace lowkey
