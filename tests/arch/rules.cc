#include "tests/arch/rules.h"

#include <algorithm>
#include <array>
#include <fstream>
#include <optional>
#include <utility>

namespace lowkey::arch {
namespace {

namespace fs = std::filesystem;

constexpr int kMaxLines = 500, kMaxFunctionLines = 60, kMaxFolderFiles = 27;
constexpr int kMaxColumns = 100;

constexpr std::string_view kCodeFolders[] = {"bench",  "client",    "engine", "proto",
                                             "server", "tokenizer", "tools"};
constexpr std::string_view kTopFolders[] = {"bench",     "client", "cmake",   "deploy", "docs",
                                            "engine",    "models", "proto",   "server", "tests",
                                            "tokenizer", "tools",  "training"};

// Rooms inside of top folders, by the beginnings of their files' paths; the first that fits counts.
constexpr std::pair<std::string_view, std::string_view> kRooms[] = {
    {"client/report/", "client/report"},
    {"server/auth/", "server/auth"},
    {"server/config/", "server/config"},
    {"server/api/lowkey/convert_attention.cc", "server/convert"},
    {"server/api/lowkey/convert_request.", "server/convert"},
    {"server/api/", "server/api"},
    {"server/front/", "server/front"},
    {"server/grammar/", "server/grammar"},
    {"server/http/", "server/http"},
    {"server/hub/", "server/hub"},
    {"server/log/", "server/log"},
    {"server/metrics/", "server/metrics"},
    {"server/model_files/", "server/model_files"},
    {"server/net/address.", "server/address"},
    {"server/net/", "server/net"},
    {"server/request/", "server/request"},
    {"server/rpc/", "server/rpc"},
    {"server/text/", "server/text"},
    {"server/trace/", "server/trace"},
    {"server/version.h", "server/version"},
    {"server/all_commands.", "main"},
    {"server/main.cc", "main"},
    {"server/serve.cc", "main"},
    {"server/serve_options.", "main"},
    {"server/version.cc", "main"},
};

// Headers of an outside library, by the beginning or the end of what stands in the #include, and
// the folders that may know them.
struct Confined {
  std::string_view library;
  std::vector<std::string_view> prefixes, suffixes, folders;
};

const std::vector<Confined>& ConfinedLibraries() {
  static const auto* const libraries = new std::vector<Confined>{
      {"CUDA",
       {"cuda", "cublas", "cudnn", "cutlass", "cub/", "nccl", "nvtx", "nvrtc", "thrust/"},
       {},
       {"engine/kernels/cuda/"}},
      {"the machine's clock",
       {"absl/time/clock.h"},
       {},
       {"bench/", "engine/base/clock.cc", "server/front/front.cc", "server/hub/"}},
      {"gRPC", {"grpc/grpc", "grpc/support/", "grpcpp/"}, {".grpc.pb.h"}, {"client/"}},
      {"protobuf", {"google/protobuf/"}, {".pb.h"}, {"client/", "server/api/", "server/rpc/"}},
      {"Prometheus", {"prometheus/"}, {}, {"server/metrics/"}},
      {"OpenSSL",
       {"openssl/"},
       {},
       {"client/load/", "engine/runtime/prefix_files/", "server/auth/", "server/hub/",
        "server/net/"}},
      {"Asio", {"boost/asio"}, {}, {"server/net/"}},
      {"nghttp2", {"nghttp2/"}, {}, {"server/http/"}},
      {"libcurl", {"curl/"}, {}, {"server/hub/", "server/trace/"}},
      {"JSON", {"nlohmann/"}, {}, {"bench/", "client/", "engine/base/json", "server/", "tools/"}},
  };
  return *libraries;
}

bool IsSource(const fs::path& path) {
  static const std::set<std::string> kEndings = {".cc", ".h", ".cu", ".cuh", ".inc"};
  return kEndings.contains(path.extension().string());
}

template <typename List>
bool Contains(const List& list, std::string_view text) {
  return std::find(std::begin(list), std::end(list), text) != std::end(list);
}

struct Include {
  std::string target;
  bool quoted = false;
};

// What `#include "x"` or `#include <x>` names; nothing for any other line.
std::optional<Include> ParseInclude(std::string_view line) {
  const auto skip_blanks = [&line] {
    const size_t begin = line.find_first_not_of(" \t");
    line.remove_prefix(begin == std::string_view::npos ? line.size() : begin);
  };
  skip_blanks();
  if (!line.starts_with('#')) return std::nullopt;
  line.remove_prefix(1);
  skip_blanks();
  if (!line.starts_with("include")) return std::nullopt;
  line.remove_prefix(7);
  skip_blanks();
  if (line.empty() || (line[0] != '"' && line[0] != '<')) return std::nullopt;
  const bool quoted = line[0] == '"';
  line.remove_prefix(1);
  const size_t end = line.find(quoted ? '"' : '>');
  if (end == std::string_view::npos) return std::nullopt;
  return Include{std::string(line.substr(0, end)), quoted};
}

// "lowkey/v1/admin.pb.h" is generated from proto; everything else is named by its own path.
std::string TargetModule(std::string_view target) {
  if (target.starts_with("lowkey/")) return "proto";
  return ModuleOf(target);
}

// Measures functions by their braces, as clang-format indents them: a line that is a brace alone
// ends what began on the last line of the same indentation. Blocks inside of a function are shorter
// than the function; types and namespaces end otherwise ("};", "}  // namespace").
class FunctionRuler {
 public:
  // Returns the lines of the function that `line` ends, 0 for any other line.
  int LinesEndedBy(const std::string& line) {
    ++line_number_;
    const size_t indent = line.find_first_not_of(' ');
    if (indent >= begins_.size() || line.compare(indent, 2, "//") == 0) return 0;
    if (line.compare(indent, std::string::npos, "}") == 0)
      return line_number_ - begins_[indent] + 1;
    begins_[indent] = line_number_;
    return 0;
  }

 private:
  int line_number_ = 0;
  std::array<int, 5> begins_ = {};  // the last line of each indentation
};

// Returns the number of characters of a line in UTF-8.
int NumCharacters(std::string_view line) {
  const auto begins = [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; };
  return static_cast<int>(std::count_if(line.begin(), line.end(), begins));
}

std::string List(const std::set<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

class Checker {
 public:
  explicit Checker(fs::path root) : root_(std::move(root)), allowed_(Closure(DirectEdges())) {}

  std::vector<std::string> Run() {
    CheckTopFolders();
    std::vector<std::string> files;
    for (std::string_view folder : kCodeFolders) CollectFiles(folder, files);
    std::sort(files.begin(), files.end());
    CheckFolderSizes(files);
    for (const std::string& file : files) CheckFile(file);
    CollectFiles("tests", files);
    for (const std::string& file : files) CheckWidth(file);
    return std::move(violations_);
  }

 private:
  void CheckTopFolders() {
    std::set<std::string> names;
    for (const fs::directory_entry& entry : fs::directory_iterator(root_)) {
      if (entry.is_directory()) names.insert(entry.path().filename().string());
    }
    for (const std::string& name : names) {
      if (name.starts_with('.') || name.starts_with("build") || name == "__pycache__") continue;
      if (!Contains(kTopFolders, name)) Report(name + "/: top-level folder not in the plan");
    }
  }

  void CollectFiles(std::string_view folder, std::vector<std::string>& files) {
    if (!fs::is_directory(root_ / folder)) return;
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(root_ / folder)) {
      const std::string path = entry.path().lexically_relative(root_).generic_string();
      const std::string name = entry.path().filename().string();
      if (entry.is_directory() && (name == "common" || name == "utils")) {
        Report(path + "/: name a folder for what it holds");
      }
      if (entry.is_regular_file() && IsSource(entry.path())) files.push_back(path);
    }
  }

  void CheckFolderSizes(const std::vector<std::string>& files) {
    std::map<std::string, int> sizes;
    for (const std::string& file : files) ++sizes[file.substr(0, file.rfind('/'))];
    for (const auto& [folder, n_files] : sizes) {
      if (n_files > kMaxFolderFiles)
        Report(OverLimit(folder + "/", n_files, "files", kMaxFolderFiles));
    }
  }

  void CheckFile(const std::string& path) {
    const std::string module = ModuleOf(path);
    if (!allowed_.contains(module)) Report(path + ": folder " + module + " is not in the plan");
    std::ifstream in(root_ / path);
    std::string line;
    int n_lines = 0;
    FunctionRuler ruler;
    while (std::getline(in, line)) {
      ++n_lines;
      if (const int n = ruler.LinesEndedBy(line); n > kMaxFunctionLines) {
        const std::string where = path + ":" + std::to_string(n_lines - n + 1);
        Report(OverLimit(where, n, "lines of a function", kMaxFunctionLines));
      }
      const std::optional<Include> include = ParseInclude(line);
      if (!include.has_value()) continue;
      const std::string where = path + ":" + std::to_string(n_lines) + ": includes ";
      CheckDirection(module, *include, where);
      CheckLibraries(path, *include, where);
    }
    if (n_lines > kMaxLines) {
      Report(OverLimit(path, n_lines, "lines", kMaxLines));
    }
  }

  void CheckWidth(const std::string& path) {
    std::ifstream in(root_ / path);
    std::string line;
    for (int number = 1; std::getline(in, line); ++number) {
      const int n = NumCharacters(line);
      if (n <= kMaxColumns) continue;
      Report(OverLimit(path + ":" + std::to_string(number), n, "columns", kMaxColumns));
    }
  }

  void CheckDirection(const std::string& module, const Include& include, const std::string& where) {
    const std::string& target = include.target;
    if (include.quoted && (target.find('/') == std::string::npos || target.starts_with('.'))) {
      Report(where + target + ", expected its path from the root");
      return;
    }
    const std::string target_module = TargetModule(target);
    const bool is_ours = allowed_.contains(target_module) || target.starts_with("tests/") ||
                         target.starts_with("engine/");
    if (!is_ours) return;
    const auto allowed = allowed_.find(module);
    if (allowed == allowed_.end()) return;
    if (!allowed->second.contains(target_module)) {
      Report(where + target + ", but " + module + " may include only " + List(allowed->second));
    }
  }

  void CheckLibraries(const std::string& path, const Include& include, const std::string& where) {
    const std::string& target = include.target;
    for (const Confined& library : ConfinedLibraries()) {
      const auto starts = [&](std::string_view prefix) { return target.starts_with(prefix); };
      const auto ends = [&](std::string_view suffix) { return target.ends_with(suffix); };
      const auto holds = [&](std::string_view folder) { return path.starts_with(folder); };
      if (!std::any_of(library.prefixes.begin(), library.prefixes.end(), starts) &&
          !std::any_of(library.suffixes.begin(), library.suffixes.end(), ends)) {
        continue;
      }
      if (std::any_of(library.folders.begin(), library.folders.end(), holds)) continue;
      std::string folders;
      for (std::string_view folder : library.folders) folders.append(" ").append(folder);
      Report(where + target + ", but " + std::string(library.library) + " headers belong only in" +
             folders);
    }
  }

  static std::string OverLimit(const std::string& where, int n, const std::string& noun,
                               int limit) {
    return where + ": " + std::to_string(n) + " " + noun + ", limit " + std::to_string(limit);
  }

  void Report(std::string violation) { violations_.push_back(std::move(violation)); }

  const fs::path root_;
  const Edges allowed_;
  std::vector<std::string> violations_;
};

}  // namespace

const Edges& DirectEdges() {
  static const auto* const edges = new Edges{
      {"engine/base", {}},
      {"engine/config", {"engine/base"}},
      {"engine/kernels", {"engine/base"}},
      {"engine/lowrank", {"engine/kernels"}},
      {"engine/sampler", {"engine/config", "engine/kernels"}},
      {"engine/loader", {"engine/config"}},
      {"engine/cache", {"engine/base"}},
      {"engine/scheduler", {"engine/cache"}},
      {"engine/attention", {"engine/config", "engine/kernels", "engine/lowrank", "engine/cache"}},
      {"engine/model", {"engine/attention", "engine/loader"}},
      {"engine/runtime", {"engine/model", "engine/sampler", "engine/scheduler"}},
      {"tokenizer", {"engine/base"}},
      {"proto", {}},
      {"bench", {"engine/runtime", "client/report", "server/config", "server/grammar"}},
      {"server/text", {"server/grammar", "server/metrics"}},
      {"server/log", {"server/trace"}},
      {"server/grammar", {"engine/sampler", "tokenizer"}},
      {"server/version", {}},
      {"server/request", {"engine/runtime", "tokenizer"}},
      {"server/config", {"server/hub", "server/request", "server/model_files"}},
      {"server/hub", {"engine/base"}},
      {"server/model_files", {"engine/loader", "tokenizer"}},
      {"server/auth", {"server/config"}},
      {"server/address", {"engine/base"}},
      {"server/net", {"server/address", "server/auth"}},
      {"server/http", {"server/net"}},
      {"server/rpc", {"server/http", "server/request", "proto"}},
      {"server/convert", {"server/request", "proto"}},
      {"server/api", {"server/text", "server/log", "server/convert", "server/rpc"}},
      {"server/front", {"server/api"}},
      {"server/metrics", {"server/request", "server/net", "server/version"}},
      {"server/trace", {"server/request"}},
      {"client/report", {"engine/base", "server/version"}},
      {"client", {"client/report", "server/address", "server/auth", "server/convert"}},
      {"tools", {"client/report", "server/config"}},
      {"main", {"client", "tools", "server/front"}},
  };
  return *edges;
}

Edges Closure(const Edges& edges) {
  Edges closure = edges;
  for (auto& [module, reached] : closure) reached.insert(module);
  // One round follows every path of one more step; no path has more steps than there are modules.
  for (size_t round = 0; round < edges.size(); ++round) {
    for (auto& [module, reached] : closure) {
      const std::set<std::string> now = reached;
      for (const std::string& step : now) {
        if (const auto it = closure.find(step); it != closure.end()) {
          reached.insert(it->second.begin(), it->second.end());
        }
      }
    }
  }
  return closure;
}

std::string ModuleOf(std::string_view path) {
  const size_t first = path.find('/');
  if (first == std::string_view::npos) return std::string(path);
  for (const auto& [beginning, room] : kRooms) {
    if (path.starts_with(beginning)) return std::string(room);
  }
  if (path.substr(0, first) != "engine") return std::string(path.substr(0, first));
  return std::string(path.substr(0, path.find('/', first + 1)));
}

std::vector<std::string> CheckTree(const std::filesystem::path& root) {
  return Checker(root).Run();
}

}  // namespace lowkey::arch
