#include "server/hub/fetch_model.h"

#include <sys/stat.h>

#include <algorithm>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/base/prefixed.h"
#include "engine/base/status_macros.h"
#include "server/hub/model_cache.h"
#include "server/hub/part_file.h"
#include "server/hub/selection.h"

namespace lowkey {
namespace {

constexpr int kAttemptsWithCache = 2;
constexpr int64_t kMaxModelBytes = int64_t{1} << 50;

int64_t SizeOf(const std::string& path) {
  struct stat status = {};
  return stat(path.c_str(), &status) == 0 ? status.st_size : 0;
}

class Fetch {
 public:
  Fetch(const ModelReference& reference, const HubSettings& settings, const HubHooks& hooks)
      : reference_(reference),
        settings_(settings),
        hooks_(hooks),
        cache_(settings.cache, reference),
        client_(settings, reference, hooks) {}

  absl::StatusOr<std::string> Run() {
    if (settings_.is_offline) return FindInCache("the hub is not asked (--offline)");
    const bool has_commit = cache_.ReadRevision(reference_.revision).has_value();
    const absl::StatusOr<std::string> commit =
        client_.FindCommit(has_commit ? kAttemptsWithCache : settings_.max_attempts);
    if (absl::IsUnavailable(commit.status()) && has_commit) return FallBack(commit.status());
    if (!commit.ok()) return commit.status();
    const absl::StatusOr<FileSelection> chosen = Select(*commit);
    if (absl::IsUnavailable(chosen.status()) && has_commit) return FallBack(chosen.status());
    LK_ASSIGN_OR_RETURN(const FileSelection selection, chosen);
    LK_RETURN_IF_ERROR(Complete(*commit, selection));
    return MainPath(*commit, selection);
  }

 private:
  std::string MainPath(const std::string& commit, const FileSelection& selection) const {
    const std::string snapshot = cache_.SnapshotPath(commit);
    return selection.main.empty() ? snapshot : absl::StrCat(snapshot, "/", selection.main);
  }

  absl::StatusOr<std::string> FallBack(const absl::Status& failure) {
    absl::StatusOr<std::string> path = FindInCache("the hub cannot be reached");
    if (!path.ok()) return failure;
    hooks_.say(absl::StrCat(reference_.Text(), ": ", failure.message(), "; taking commit ",
                            *cache_.ReadRevision(reference_.revision), " from the cache"));
    return path;
  }

  absl::StatusOr<std::string> FindInCache(const std::string& reason) const {
    const auto missing = [&](const std::string& what) {
      return absl::NotFoundError(
          absl::StrCat(what, " is not in the cache ", settings_.cache, ", and ", reason));
    };
    const std::optional<std::string> commit = cache_.ReadRevision(reference_.revision);
    if (!commit.has_value()) return missing("the model");
    const std::vector<HubFile> files = cache_.ReadListing(*commit);
    if (files.empty()) return missing("the model");
    LK_ASSIGN_OR_RETURN(const FileSelection selection, SelectFiles(reference_, files));
    for (const HubFile& file : selection.files) {
      if (!cache_.HasFile(*commit, file)) return missing(file.path);
    }
    return MainPath(*commit, selection);
  }

  // Chooses the files by the hub's list. A commit never changes, so the cache's copy serves.
  absl::StatusOr<FileSelection> Select(const std::string& commit) {
    if (cache_.HasListing(commit)) {
      files_ = cache_.ReadListing(commit);
      const absl::StatusOr<FileSelection> selection = SelectFiles(reference_, files_);
      const bool has_digests = std::none_of(files_.begin(), files_.end(),
                                            [](const HubFile& f) { return f.digest.empty(); });
      if (selection.ok() && has_digests) return selection;
    }
    LK_ASSIGN_OR_RETURN(files_, client_.ListFiles(commit));
    return SelectFiles(reference_, files_);
  }

  absl::Status Complete(const std::string& commit, const FileSelection& selection) {
    const auto is_there = [&](const HubFile& file) { return cache_.HasFile(commit, file); };
    const bool is_whole = std::all_of(selection.files.begin(), selection.files.end(), is_there);
    if (is_whole && cache_.HasListing(commit) &&
        cache_.ReadRevision(reference_.revision) == commit) {
      return absl::OkStatus();
    }
    LK_ASSIGN_OR_RETURN(const CacheLock lock, cache_.Lock(hooks_.is_stopped, [&] {
      hooks_.say(absl::StrCat(reference_.Text(), ": waiting for another process that fetches it"));
    }));
    LK_RETURN_IF_ERROR(cache_.MakeFolders(commit));
    LK_RETURN_IF_ERROR(DownloadMissing(commit, selection));
    LK_RETURN_IF_ERROR(cache_.WriteListing(commit, files_));
    if (IsCommit(reference_.revision)) return absl::OkStatus();
    return cache_.WriteRevision(reference_.revision, commit);
  }

  absl::Status DownloadMissing(const std::string& commit, const FileSelection& selection) {
    int64_t n_total = 0, n_missing = 0, n_done = 0;
    std::set<std::string> counted;  // equal files share a blob
    std::vector<HubFile> missing;
    for (const HubFile& file : selection.files) {
      if (file.n_bytes > kMaxModelBytes - n_total) {
        return absl::DataLossError(absl::StrCat("the files have over ", kMaxModelBytes, " bytes"));
      }
      if (cache_.HasFile(commit, file)) continue;
      n_total += file.n_bytes;
      missing.push_back(file);
      if (cache_.HasBlob(file) || !counted.insert(file.digest).second) continue;
      n_missing += std::max<int64_t>(file.n_bytes - SizeOf(cache_.PartPath(file)), 0);
    }
    if (missing.empty()) return absl::OkStatus();
    LK_RETURN_IF_ERROR(cache_.CheckSpace(n_missing));
    hooks_.say(absl::StrFormat("fetching %s: %d files, %.1f MiB, into %s", reference_.Text(),
                               missing.size(), static_cast<double>(n_missing) / 0x1p20,
                               settings_.cache));
    for (const HubFile& file : missing) {
      if (!cache_.HasBlob(file)) LK_RETURN_IF_ERROR(DownloadFile(commit, file, n_done, n_total));
      LK_RETURN_IF_ERROR(cache_.LinkFile(commit, file));
      n_done += file.n_bytes;
      hooks_.show(n_done, n_total);
    }
    return absl::OkStatus();
  }

  absl::Status DownloadFile(const std::string& commit, const HubFile& file, int64_t n_done,
                            int64_t n_total) {
    LK_ASSIGN_OR_RETURN(PartFile part,
                        PartFile::Open(cache_.PartPath(file), file, hooks_.is_stopped));
    // Wrong bytes may come from a part that a crash left half-written: once more from the
    // beginning.
    bool may_repeat = part.n_bytes() > 0;
    while (true) {
      LK_RETURN_IF_ERROR(client_.Download(commit, part, n_done, n_total));
      const absl::Status status = Prefixed(file.path, part.Finish(cache_.BlobPath(file)));
      if (!absl::IsDataLoss(status) || !std::exchange(may_repeat, false)) return status;
      hooks_.say(absl::StrCat(reference_.Text(), ": ", status.message(), "; fetching it again"));
    }
  }

  const ModelReference& reference_;
  const HubSettings& settings_;
  const HubHooks& hooks_;
  const ModelCache cache_;
  HubClient client_;
  std::vector<HubFile> files_;
};

}  // namespace

absl::StatusOr<std::string> FetchModel(const ModelReference& reference, const HubSettings& settings,
                                       const HubHooks& hooks) {
  Fetch fetch(reference, settings, hooks);
  return Prefixed(reference.Text(), fetch.Run());
}

}  // namespace lowkey
