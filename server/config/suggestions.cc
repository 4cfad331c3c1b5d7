#include "server/config/suggestions.h"

#include <algorithm>
#include <numeric>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"

namespace lowkey {
namespace {

// A name that is more edits away would be a guess.
constexpr size_t kMaxSuggestionDistance = 3;

struct Alias {
  std::string_view alias, name;
};

// Names that other programs give to our flags.
constexpr Alias kFlagAliases[] = {
    {"max-tokens", "max-new-tokens"},
    {"max-length", "max-new-tokens"},
    {"max-completion-tokens", "max-new-tokens"},
    {"n-predict", "max-new-tokens"},
    {"num-predict", "max-new-tokens"},
    {"temp", "temperature"},
    {"repeat-penalty", "repetition-penalty"},
    {"num-choices", "n"},
    {"best-of", "n"},
    {"system-prompt", "system"},
    {"mechanism", "attention"},
    {"ctx", "context"},
    {"ctx-size", "context"},
    {"n-ctx", "context"},
    {"max-model-len", "context"},
    {"n-threads", "threads"},
    {"jobs", "threads"},
    {"gpu", "device"},
    {"parallel", "max-running"},
    {"max-num-seqs", "max-running"},
    {"max-batch-size", "max-running"},
    {"kv-cache", "cache-bytes"},
    {"quantization", "dtype"},
    {"precision", "dtype"},
    {"listen", "host"},
    {"bind", "host"},
    {"url", "server"},
    {"endpoint", "server"},
    {"address", "server"},
    {"address", "host"},
    {"host", "server"},
    {"port", "server"},
    {"api-key", "tokens"},
    {"api-key", "token-file"},
    {"token", "token-file"},
    {"cert", "tls-cert"},
    {"key", "tls-key"},
    {"ca-cert", "tls-ca"},
    {"cacert", "tls-ca"},
};

constexpr Alias kCommandAliases[] = {
    {"run", "generate"},    {"complete", "generate"}, {"completions", "completion"},
    {"start", "serve"},     {"server", "serve"},      {"info", "inspect"},
    {"show", "inspect"},    {"perplexity", "eval"},   {"benchmark", "bench"},
    {"encode", "tokenize"}, {"decode", "tokenize"},   {"status", "health"},
};

size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i + 1);
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t substituted = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({substituted, row[j + 1] + 1, row[j] + 1});
    }
  }
  return row.back();
}

std::optional<std::string_view> Aliased(std::string_view text, absl::Span<const Alias> aliases,
                                        absl::Span<const std::string_view> names) {
  for (const Alias& alias : aliases) {
    if (alias.alias == text && std::find(names.begin(), names.end(), alias.name) != names.end()) {
      return alias.name;
    }
  }
  return std::nullopt;
}

std::vector<std::string> Words(std::string_view name) {
  return absl::StrSplit(std::string(name), '-', absl::SkipEmpty());
}

// Returns the first of the names that share the most words with `text`, at least half of them.
std::optional<std::string_view> SharingWords(std::string_view text,
                                             absl::Span<const std::string_view> names) {
  const std::vector<std::string> words = Words(text);
  std::optional<std::string_view> best;
  size_t most = std::max<size_t>(1, (words.size() + 1) / 2) - 1;
  for (std::string_view name : names) {
    const std::vector<std::string> others = Words(name);
    const auto n_shared =
        static_cast<size_t>(std::count_if(words.begin(), words.end(), [&](const auto& word) {
          return std::find(others.begin(), others.end(), word) != others.end();
        }));
    if (n_shared <= most) continue;
    most = n_shared;
    best = name;
  }
  return best;
}

}  // namespace

std::optional<std::string_view> NearestName(std::string_view text,
                                            absl::Span<const std::string_view> candidates) {
  std::optional<std::string_view> nearest;
  size_t best = std::min(kMaxSuggestionDistance, text.size() / 2 + 1) + 1;
  for (std::string_view candidate : candidates) {
    const bool is_beginning = text.size() >= 3 && candidate.starts_with(text);
    const size_t distance = is_beginning ? 1 : EditDistance(text, candidate);
    if (distance < best) {
      best = distance;
      nearest = candidate;
    }
  }
  return nearest;
}

std::optional<std::string_view> NearestFlag(std::string_view text,
                                            absl::Span<const std::string_view> flags) {
  const std::string plain =
      absl::StrReplaceAll(absl::AsciiStrToLower(std::string(text)), {{"_", "-"}});
  if (const auto name = Aliased(plain, kFlagAliases, flags)) return name;
  if (const auto name = NearestName(plain, flags)) return name;
  return SharingWords(plain, flags);
}

std::optional<std::string_view> NearestCommand(std::string_view text,
                                               absl::Span<const std::string_view> commands) {
  if (const auto name = Aliased(text, kCommandAliases, commands)) return name;
  return NearestName(text, commands);
}

std::string DidYouMean(std::optional<std::string_view> name, std::string_view prefix) {
  if (!name.has_value()) return "";
  return absl::StrCat("; did you mean ", std::string(prefix), std::string(*name), "?");
}

}  // namespace lowkey
