#include "server/hub/selection.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/base/status_macros.h"

namespace lowkey {
namespace {

constexpr std::string_view kIndex = "model.safetensors.index.json";
constexpr std::string_view kSettings[] = {"config.json",         "generation_config.json",
                                          "tokenizer.json",      "tokenizer.model",
                                          "added_tokens.json",   "special_tokens_map.json",
                                          "vocab.json",          "tokenizer_config.json",
                                          "chat_template.jinja", "chat_template.json",
                                          "merges.txt",          "quantize_config.json",
                                          "lowkey.json",         kIndex,
                                          "model.safetensors"};
constexpr size_t kMaxListedNames = 20;
constexpr int64_t kMaxParts = 100'000;

using Files = std::vector<HubFile>;

std::string_view BaseName(std::string_view path) { return path.substr(path.rfind('/') + 1); }
std::string_view FolderOf(std::string_view path) {
  return path.substr(0, path.size() - BaseName(path).size());
}

// NAME-00002-of-00003.ENDING names part 2 of 3.
struct Part {
  std::string_view stem;  // with the folder
  int64_t number = 0, count = 0;
};

std::optional<Part> ParsePart(std::string_view path, std::string_view ending) {
  constexpr size_t kDigits = 5;
  constexpr std::string_view kOf = "-of-";
  constexpr size_t kTail = 1 + kDigits + kOf.size() + kDigits;
  if (!path.ends_with(ending)) return std::nullopt;
  path.remove_suffix(ending.size());
  if (path.size() <= kTail) return std::nullopt;
  const std::string_view tail = path.substr(path.size() - kTail);
  Part part{path.substr(0, path.size() - kTail)};
  const auto read = [](std::string_view digits, int64_t& number) {
    return std::all_of(digits.begin(), digits.end(), absl::ascii_isdigit) &&
           absl::SimpleAtoi(std::string(digits), &number) && number > 0 && number < kMaxParts;
  };
  if (tail[0] != '-' || tail.substr(1 + kDigits, kOf.size()) != kOf ||
      !read(tail.substr(1, kDigits), part.number) ||
      !read(tail.substr(kTail - kDigits), part.count)) {
    return std::nullopt;
  }
  return part;
}

absl::Status Missing(const ModelReference& reference, const std::string& problem) {
  return absl::NotFoundError(absl::StrCat(reference.Text(), ": ", problem));
}

// Checks that parts 1..count are all there; `parts` are in the order of their numbers.
absl::Status CheckParts(const ModelReference& reference, const Files& parts,
                        std::string_view ending) {
  const Part first = *ParsePart(parts.front().path, ending);
  for (int64_t i = 0; i < first.count; ++i) {
    const auto at = static_cast<size_t>(i);
    if (at < parts.size() && ParsePart(parts[at].path, ending)->number == i + 1) continue;
    return Missing(reference,
                   absl::StrFormat("part %d of %d of %s*%s is missing", i + 1, first.count,
                                   std::string(first.stem), std::string(ending)));
  }
  return absl::OkStatus();
}

bool Has(const Files& files, std::string_view path) {
  return std::any_of(files.begin(), files.end(), [&](const HubFile& f) { return f.path == path; });
}

absl::StatusOr<FileSelection> SelectDirectory(const ModelReference& reference, const Files& files) {
  const bool has_index = Has(files, kIndex), has_bundle = Has(files, "lowkey.json");
  std::map<std::pair<int64_t, std::string_view>, Files> shards;  // by their count and stem
  FileSelection selection;
  for (const HubFile& file : files) {
    const std::string_view path = file.path;
    const bool is_setting =
        std::find(std::begin(kSettings), std::end(kSettings), path) != std::end(kSettings);
    if (is_setting) {
      if (path != "model.safetensors" || !has_index) selection.files.push_back(file);
      continue;
    }
    if (path.find('/') != std::string_view::npos || !path.ends_with(".safetensors")) continue;
    const std::optional<Part> part = ParsePart(path, ".safetensors");
    if (has_index && part.has_value() && part->stem == "model") {
      shards[{part->count, part->stem}].push_back(file);
    } else if (has_bundle && !part.has_value() && !path.starts_with("consolidated")) {
      selection.files.push_back(file);
    }
  }
  if (has_index && shards.size() != 1) {
    return Missing(reference, absl::StrCat(std::string(kIndex), " and ", shards.size(),
                                           " sets of shards, expected one set named "
                                           "model-00001-of-00002.safetensors and so on"));
  }
  for (auto& [key, parts] : shards) {
    std::sort(parts.begin(), parts.end(),
              [](const HubFile& a, const HubFile& b) { return a.path < b.path; });
    LK_RETURN_IF_ERROR(CheckParts(reference, parts, ".safetensors"));
    selection.files.insert(selection.files.end(), parts.begin(), parts.end());
  }
  return selection;
}

// The models in GGUF by the path of their first part.
std::map<std::string, Files> GgufModels(const Files& files) {
  std::map<std::string, Files> models;
  for (const HubFile& file : files) {
    const std::string lower = absl::AsciiStrToLower(std::string(BaseName(file.path)));
    if (!lower.ends_with(".gguf") || lower.find("mmproj") != std::string::npos ||
        lower.find("imatrix") != std::string::npos) {
      continue;
    }
    const std::optional<Part> part = ParsePart(file.path, ".gguf");
    const std::string first =
        part.has_value()
            ? absl::StrFormat("%s-00001-of-%05d.gguf", std::string(part->stem), part->count)
            : file.path;
    models[first].push_back(file);
  }
  for (auto& [first, parts] : models) {
    std::sort(parts.begin(), parts.end(),
              [](const HubFile& a, const HubFile& b) { return a.path < b.path; });
  }
  return models;
}

// How well a path fits a QUANT: 0 not at all, 1 it has it, 2 it has it as a word.
int Fit(std::string_view path, std::string_view quant) {
  const std::string in = absl::AsciiStrToLower(std::string(path)),
                    word = absl::AsciiStrToLower(std::string(quant));
  const auto is_part_of_word = [](char c) { return absl::ascii_isalnum(c) || c == '_'; };
  int fit = 0;
  for (size_t at = in.find(word); at != std::string::npos; at = in.find(word, at + 1)) {
    const size_t end = at + word.size();
    const bool is_word = (at == 0 || !is_part_of_word(in[at - 1])) &&
                         (end == in.size() || !is_part_of_word(in[end]));
    fit = std::max(fit, is_word ? 2 : 1);
  }
  return fit;
}

std::string ListedNames(const std::map<std::string, Files>& models) {
  std::string text;
  size_t n = 0;
  for (const auto& [first, parts] : models) {
    if (n++ == kMaxListedNames) return absl::StrCat(text, " and ", models.size() - n + 1, " more");
    absl::StrAppend(&text, n == 1 ? "" : ", ", first);
  }
  return text;
}

absl::StatusOr<FileSelection> SelectGguf(const ModelReference& reference, const Files& files) {
  const std::map<std::string, Files> all = GgufModels(files);
  std::map<std::string, Files> chosen = all;
  for (const int fit : {1, 2}) {
    if (reference.quant.empty() || (fit == 2 && chosen.size() < 2)) break;
    std::map<std::string, Files> fitting = chosen;
    std::erase_if(fitting, [&](const auto& m) { return Fit(m.first, reference.quant) < fit; });
    if (fit == 1 || !fitting.empty()) chosen = std::move(fitting);
  }
  if (chosen.size() != 1) {
    const std::string problem =
        reference.quant.empty() ? "several GGUF models, expected a :QUANT that one of them has"
        : chosen.empty()        ? absl::StrCat("no GGUF file has \"", reference.quant, "\"")
                         : absl::StrCat("several GGUF models have \"", reference.quant, "\"");
    const std::map<std::string, Files>& listed = chosen.empty() ? all : chosen;
    return Missing(reference,
                   absl::StrCat(problem, " in its name; there ",
                                listed.empty() ? "is none" : "are ", ListedNames(listed)));
  }
  FileSelection selection{chosen.begin()->second, chosen.begin()->first};
  if (ParsePart(selection.main, ".gguf").has_value()) {
    LK_RETURN_IF_ERROR(CheckParts(reference, selection.files, ".gguf"));
  }
  const std::string folder(FolderOf(selection.main));
  if (Has(files, folder + "lowkey.json")) {
    for (const HubFile& file : files) {
      const std::string_view name = BaseName(file.path);
      const bool is_weights = name.ends_with(".safetensors") && !name.starts_with("model") &&
                              !name.starts_with("consolidated");
      if (FolderOf(file.path) == folder && (is_weights || name == "lowkey.json")) {
        selection.files.push_back(file);
      }
    }
  }
  return selection;
}

}  // namespace

absl::StatusOr<FileSelection> SelectFiles(const ModelReference& reference, const Files& files) {
  const bool has_weights = Has(files, "model.safetensors") || Has(files, kIndex);
  if (reference.quant.empty() && has_weights && Has(files, "config.json")) {
    return SelectDirectory(reference, files);
  }
  if (!reference.quant.empty() || !GgufModels(files).empty()) return SelectGguf(reference, files);
  return Missing(reference, absl::StrCat("no GGUF file, and not both config.json and "
                                         "model.safetensors (or its index); the repository has ",
                                         files.size(), " files"));
}

}  // namespace lowkey
