#include "server/text/structured_output.h"

#include "absl/strings/str_cat.h"
#include "engine/base/prefixed.h"
#include "engine/base/status_macros.h"
#include "server/grammar/compile.h"
#include "server/text/tool_call_grammar.h"

namespace lowkey {
namespace {

using Kind = ResponseFormat::Kind;

void AppendText(const std::string& text, std::string& key) {
  absl::StrAppend(&key, text.size(), " ", text);
}

void AppendMarks(const CallMarks& marks, std::string& key) {
  absl::StrAppend(&key, marks.size(), " ");
  for (const CallMark& mark : marks) {
    absl::StrAppend(&key, static_cast<int>(mark.kind), " ");
    AppendText(mark.text, key);
  }
}

void AppendCalls(const ToolCallsForm& form, std::string& key) {
  absl::StrAppend(&key, form.most_calls, " ", static_cast<int>(form.reasoning), " ");
  for (const CallMarks* marks : {&form.begin, &form.separator, &form.end}) AppendMarks(*marks, key);
  for (const ToolCallsForm::Tool& tool : form.tools) {
    AppendMarks(tool.begin, key);
    AppendText(tool.schema, key);
    AppendMarks(tool.end, key);
  }
}

// Distinct for distinct formats and tenants.
std::string KeyOf(const ResponseFormat& format, const std::string& tenant) {
  std::string key = absl::StrCat(tenant.size(), " ", tenant, static_cast<int>(format.kind), " ");
  if (format.kind == Kind::kToolCalls) {
    AppendCalls(format.calls, key);
  } else if (format.kind == Kind::kChoice) {
    for (const std::string& choice : format.choices) AppendText(choice, key);
  } else {
    key += format.text;
  }
  return key;
}

// What errors call the request's field.
const char* FieldOf(const ResponseFormat& format) {
  return format.kind == Kind::kToolCalls ? "tools" : "response_format";
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
    case Kind::kToolCalls:
      return "parameters";
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
    case Kind::kToolCalls:
      return CompileToolCalls(format.calls, budget);
    case Kind::kGrammar:
      break;
  }
  return grammar::CompileEbnf(format.text, budget);
}

}  // namespace

absl::Status StructuredOutput::CheckSize(const ResponseFormat& format) {
  size_t n_bytes = format.text.size();
  for (const std::string& choice : format.choices) n_bytes += choice.size() + 1;
  for (const ToolCallsForm::Tool& tool : format.calls.tools) n_bytes += tool.schema.size();
  return Prefixed(FieldOf(format), grammar::CheckGrammarBytes(NameOf(format.kind), n_bytes));
}

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
  while (size_bytes_ > max_cached_bytes_ && entries_.size() > 1) {
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
        absl::StrCat(FieldOf(format),
                     ": the model has no end-of-sequence token, expected one that ends the text"));
  }
  LK_RETURN_IF_ERROR(CheckSize(format));
  std::string key = KeyOf(format, tenant);
  if (Factory found = Find(key); found != nullptr) return found;
  absl::StatusOr<std::shared_ptr<const grammar::Grammar>> compiled =
      CompileGrammar(format, interrupt);
  // Errors of tools name their own field.
  if (absl::IsInvalidArgument(compiled.status()) && format.kind != Kind::kToolCalls) {
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
