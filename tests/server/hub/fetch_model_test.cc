#include "server/hub/fetch_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/server/hub/fake_hub.h"
#include "tests/testing/temp_directory.h"

namespace lowkey {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
namespace fs = std::filesystem;

class FetchModelTest : public ::testing::Test {
 protected:
  FetchModelTest() {
    hub_.Add("config.json", "{\"model_type\": \"llama\"}");
    hub_.Add("model.safetensors", weights_);
    hub_.Add("README.md", "not needed");
    hooks_.is_stopped = [this] { return is_stopped_; };
    hooks_.show = [this](int64_t done, int64_t total) {
      EXPECT_LE(done, total);
      shown_ = done;
      total_ = total;
    };
    hooks_.say = [this](const std::string& line) { said_.push_back(line); };
  }

  absl::StatusOr<std::string> Fetch(const std::string& text = "hf:acme/model") {
    return FetchModel(*ParseModelReference(text), settings_, hooks_);
  }
  std::string Blobs() const { return cache_.File("models--acme--model/blobs/"); }
  // The one file in blobs whose name ends in .part.
  std::string PartPath() const { return Blobs() + Sha256(weights_) + ".part"; }
  // Breaks the weights' download off after `n_bytes` of the file, once.
  void BreakOffOnce(size_t n_bytes) {
    hub_.SetScript([this, n_bytes](const HubRequest& request, int n_before) {
      std::optional<HubAnswer> answer;
      if (absl::EndsWith(request.path, ".safetensors") && n_before == 0) {
        answer = hub_.Right(request);
        answer->bytes.resize(answer->bytes.find("\r\n\r\n") + 4 + n_bytes);
      }
      return answer;
    });
  }

  const std::string weights_ = NoiseBytes(500'000);
  FakeHub hub_;
  TempDirectory cache_;
  HubSettings settings_ = hub_.Settings(cache_.path());
  HubHooks hooks_;
  bool is_stopped_ = false;
  int64_t shown_ = 0, total_ = 0;
  std::vector<std::string> said_;
};

TEST_F(FetchModelTest, BringsWhatAModelNeeds) {
  const auto path = Fetch();
  ASSERT_TRUE(path.ok()) << path.status();
  EXPECT_EQ(*path, cache_.File(absl::StrCat("models--acme--model/snapshots/", FakeHub::kCommit)));
  EXPECT_EQ(ReadFileOrDie(*path + "/model.safetensors"), weights_);
  EXPECT_EQ(ReadFileOrDie(*path + "/config.json"), "{\"model_type\": \"llama\"}");
  EXPECT_FALSE(fs::exists(*path + "/README.md"));
  EXPECT_EQ(ReadFileOrDie(cache_.File("models--acme--model/refs/main")), FakeHub::kCommit);
  EXPECT_EQ(shown_, total_);
  EXPECT_EQ(total_, static_cast<int64_t>(weights_.size()) + 23);
}

TEST_F(FetchModelTest, ASecondTimeOnlyTheRevisionIsAskedFor) {
  ASSERT_TRUE(Fetch().ok());
  const size_t n = hub_.requests().size();
  ASSERT_TRUE(Fetch().ok());
  EXPECT_EQ(hub_.requests().size(), n + 1);
  ASSERT_TRUE(Fetch(absl::StrCat("hf:acme/model@", FakeHub::kCommit)).ok());
  EXPECT_EQ(hub_.requests().size(), n + 1);  // a commit's name says everything
}

TEST_F(FetchModelTest, GoesOnAfterABreakAtAnyPoint) {
  for (const size_t n : {size_t{0}, size_t{1}, size_t{65'536}, weights_.size() - 1}) {
    fs::remove_all(cache_.path());
    const size_t before = hub_.n_file_bytes();
    const size_t n_requests = hub_.n_requests("safetensors");
    hub_.SetScript([this, n, n_requests](const HubRequest& request, int) {
      std::optional<HubAnswer> answer;
      if (absl::EndsWith(request.path, ".safetensors") &&
          hub_.n_requests("safetensors") == n_requests + 1) {
        answer = hub_.Right(request);
        answer->bytes.resize(answer->bytes.find("\r\n\r\n") + 4 + n);
      }
      return answer;
    });
    const auto path = Fetch();
    ASSERT_TRUE(path.ok()) << path.status();
    EXPECT_EQ(ReadFileOrDie(*path + "/model.safetensors"), weights_);
    EXPECT_EQ(hub_.n_file_bytes() - before, weights_.size() + 23) << "no byte comes twice";
  }
  EXPECT_THAT(said_, Contains(HasSubstr("trying again")));
}

TEST_F(FetchModelTest, GoesOnInTheNextProcess) {
  settings_.max_attempts = 1;
  BreakOffOnce(123'456);
  const auto failed = Fetch();
  EXPECT_TRUE(absl::IsUnavailable(failed.status())) << failed.status();
  EXPECT_EQ(fs::file_size(PartPath()), 123'456u);
  EXPECT_FALSE(fs::exists(cache_.File("models--acme--model/refs/main")));
  ASSERT_TRUE(Fetch().ok());
  EXPECT_EQ(hub_.requests().back().Field("range"), "bytes=123456-");
  EXPECT_EQ(hub_.n_file_bytes(), weights_.size() + 23);
}

TEST_F(FetchModelTest, AStopLeavesAPart) {
  hub_.SetScript([this](const HubRequest& request, int n_before) {
    std::optional<HubAnswer> answer;
    if (absl::EndsWith(request.path, ".safetensors") && n_before == 0) {
      answer = hub_.Right(request);
      answer->bytes.resize(200'000);
      answer->stays_open = true;
    }
    return answer;
  });
  hooks_.show = [this](int64_t done, int64_t) { is_stopped_ = done > 150'000; };
  EXPECT_TRUE(absl::IsCancelled(Fetch().status()));
  EXPECT_GT(fs::file_size(PartPath()), 100'000u);
  is_stopped_ = false;
  hooks_.show = [](int64_t, int64_t) {};
  EXPECT_TRUE(Fetch().ok());
  EXPECT_NE(hub_.requests().back().Field("range"), "");
}

TEST_F(FetchModelTest, AHubWithoutRangesSendsTheWholeAgain) {
  ASSERT_TRUE(fs::create_directories(Blobs()));
  WriteFileOrDie(PartPath(), weights_.substr(0, 1000));
  hub_.SetScript([this](const HubRequest& request, int) {
    HubRequest whole = request;
    whole.fields.erase("range");
    return hub_.Right(whole);
  });
  const auto path = Fetch();
  ASSERT_TRUE(path.ok()) << path.status();
  EXPECT_EQ(ReadFileOrDie(*path + "/model.safetensors"), weights_);
}

TEST_F(FetchModelTest, ASpoiledPartIsFetchedAgain) {
  ASSERT_TRUE(fs::create_directories(Blobs()));
  WriteFileOrDie(PartPath(), std::string(1000, 'x'));
  const auto path = Fetch();
  ASSERT_TRUE(path.ok()) << path.status();
  EXPECT_EQ(ReadFileOrDie(*path + "/model.safetensors"), weights_);
  EXPECT_THAT(said_, Contains(HasSubstr("fetching it again")));
}

TEST_F(FetchModelTest, OfflineTakesTheCacheAlone) {
  settings_.is_offline = true;
  EXPECT_THAT(std::string(Fetch().status().message()),
              HasSubstr("hf:acme/model: the model is not in the cache"));
  settings_.is_offline = false;
  const auto path = Fetch();
  const size_t n = hub_.requests().size();
  settings_.is_offline = true;
  EXPECT_EQ(*Fetch(), *path);
  EXPECT_EQ(hub_.requests().size(), n);
  EXPECT_TRUE(absl::IsNotFound(Fetch("hf:acme/model@other").status()));
  fs::remove(*path + "/model.safetensors");
  EXPECT_THAT(std::string(Fetch().status().message()),
              HasSubstr("model.safetensors is not in the cache"));
}

TEST_F(FetchModelTest, OfflineTakesWhatAnotherProgramFetched) {
  const auto path = Fetch();
  fs::remove_all(cache_.File("models--acme--model/lowkey"));
  settings_.is_offline = true;
  EXPECT_EQ(*Fetch(), *path);
}

TEST_F(FetchModelTest, AnUnreachableHubIsReplacedByTheCache) {
  EXPECT_TRUE(Fetch().ok());
  settings_.endpoint = "http://127.0.0.1:1";
  EXPECT_TRUE(Fetch().ok());
  EXPECT_THAT(said_, Contains(HasSubstr("from the cache")));
  EXPECT_TRUE(absl::IsUnavailable(Fetch("hf:acme/model@other").status()));
}

TEST_F(FetchModelTest, ANewCommitFetchesOnlyWhatChanged) {
  ASSERT_TRUE(Fetch().ok());
  const size_t before = hub_.n_file_bytes();
  const std::string other(40, 'e');
  hub_.SetScript([other](const HubRequest& request, int) -> std::optional<HubAnswer> {
    if (!absl::StrContains(request.path, "/revision/")) return std::nullopt;
    return HubAnswer{Answer(200, "{\"sha\": \"" + other + "\"}")};
  });
  const auto path = Fetch();
  ASSERT_TRUE(path.ok()) << path.status();
  EXPECT_THAT(*path, HasSubstr(other));
  EXPECT_EQ(hub_.n_file_bytes(), before);
  EXPECT_EQ(ReadFileOrDie(*path + "/model.safetensors"), weights_);
}

TEST_F(FetchModelTest, AQuantNamesAGguf) {
  hub_.Add("m-Q4_0.gguf", "four");
  hub_.Add("m-Q8_0.gguf", "eight");
  const auto path = Fetch("hf:acme/model:Q8_0");
  ASSERT_TRUE(path.ok()) << path.status();
  EXPECT_THAT(*path, HasSubstr("/m-Q8_0.gguf"));
  EXPECT_EQ(ReadFileOrDie(*path), "eight");
  EXPECT_EQ(hub_.n_file_bytes(), 5u);
  EXPECT_TRUE(absl::IsNotFound(Fetch("hf:acme/model:Q5").status()));
}

TEST_F(FetchModelTest, TwoAtOnceFetchEveryByteOnce) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([this] {
      const auto path = FetchModel(*ParseModelReference("hf:acme/model"), settings_, HubHooks());
      EXPECT_TRUE(path.ok()) << path.status();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(hub_.n_file_bytes(), weights_.size() + 23);
}

TEST_F(FetchModelTest, ListsComeInPages) {
  hub_.SetScript([this](const HubRequest& request, int) -> std::optional<HubAnswer> {
    if (!absl::StrContains(request.path, "/tree/")) return std::nullopt;
    if (absl::StrContains(request.path, "cursor=2")) return hub_.Right(request);
    return HubAnswer{Answer(
        200, "[]",
        absl::StrCat("Link: <", hub_.endpoint(), request.path, "&cursor=2>; rel=\"next\"\r\n"))};
  });
  EXPECT_TRUE(Fetch().ok());
  EXPECT_EQ(hub_.n_requests("/tree/"), 2u);
}

}  // namespace
}  // namespace lowkey
