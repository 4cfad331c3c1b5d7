// Hubs that lie, break and never end: each gives a clear error, and nothing of it gets a name in
// the cache.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "server/hub/fetch_model.h"
#include "tests/server/hub/fake_hub.h"
#include "tests/testing/temp_directory.h"

namespace lowkey {
namespace {

using ::testing::HasSubstr;
namespace fs = std::filesystem;

class HostileHubTest : public ::testing::Test {
 protected:
  HostileHubTest() {
    hub_.Add("config.json", "{}");
    hub_.Add("model.safetensors", weights_);
  }

  // Fetches the model, which must fail and leave no file under its name.
  absl::Status Fetch() {
    const absl::Status status =
        FetchModel(*ParseModelReference("hf:acme/model"), settings_, HubHooks()).status();
    EXPECT_FALSE(status.ok());
    EXPECT_FALSE(fs::exists(cache_.File("models--acme--model/blobs/" + Sha256(weights_))));
    EXPECT_FALSE(fs::exists(cache_.File("models--acme--model/refs/main")));
    return status;
  }
  std::string Message() { return std::string(Fetch().message()); }
  // Answers requests whose path has `part` so.
  void AnswerWith(const std::string& part, const HubAnswer& answer) {
    hub_.SetScript([part, answer](const HubRequest& request, int) {
      return absl::StrContains(request.path, part) ? std::optional(answer) : std::nullopt;
    });
  }
  void ListAs(const std::string& listing) { AnswerWith("/tree/", {Answer(200, listing)}); }

  const std::string weights_ = NoiseBytes(100'000);
  FakeHub hub_;
  TempDirectory cache_;
  HubSettings settings_ = hub_.Settings(cache_.path());
};

TEST_F(HostileHubTest, WrongBytes) {
  hub_.Corrupt("model.safetensors", NoiseBytes(weights_.size(), 2));
  const absl::Status status = Fetch();
  EXPECT_TRUE(absl::IsDataLoss(status));
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("model.safetensors: 100000 bytes with SHA-256"));
}

TEST_F(HostileHubTest, WrongBytesOfASmallFile) {
  hub_.Corrupt("config.json", "[]");
  EXPECT_THAT(Message(), HasSubstr("config.json: 2 bytes with git's SHA-1"));
}

TEST_F(HostileHubTest, AnotherLengthThanListed) {
  hub_.Corrupt("model.safetensors", weights_ + "x");
  EXPECT_THAT(Message(), HasSubstr("the answer has 100001 bytes, expected the 100000"));
  hub_.Corrupt("model.safetensors", weights_.substr(1));
  EXPECT_THAT(Message(), HasSubstr("the answer has 99999 bytes"));
}

TEST_F(HostileHubTest, MoreBytesThanListedWithoutALength) {
  AnswerWith("safetensors", {.bytes = "HTTP/1.1 200 OK\r\n\r\n", .endless = weights_});
  EXPECT_THAT(Message(), HasSubstr("more bytes come than the 100000 that the hub lists"));
  const fs::path part = cache_.File("models--acme--model/blobs/" + Sha256(weights_) + ".part");
  EXPECT_LE(fs::file_size(part), weights_.size());
}

TEST_F(HostileHubTest, FewerBytesThanListedWithoutALength) {
  settings_.max_attempts = 3;
  AnswerWith("safetensors", {"HTTP/1.1 200 OK\r\n\r\nshort"});
  EXPECT_THAT(Message(), HasSubstr("the answer ends after byte 5 of 100000"));
  EXPECT_EQ(hub_.n_requests("safetensors"), 3u);
}

TEST_F(HostileHubTest, ARangeThatWasNotAskedFor) {
  settings_.max_attempts = 2;
  for (const std::string range : {"bytes 0-99999/100000", "bytes 7-99999/100000", "bytes 5-6/7", "",
                                  "bytes 5-99999/*", "lines 5-99999/100000"}) {
    fs::remove_all(cache_.path());
    hub_.SetScript([this, range](const HubRequest& request, int) -> std::optional<HubAnswer> {
      if (!absl::StrContains(request.path, "safetensors")) return std::nullopt;
      HubAnswer answer = hub_.Right(request);
      if (request.FirstByte() == 0) {
        answer.bytes.resize(answer.bytes.find("\r\n\r\n") + 9);
        return answer;
      }
      return HubAnswer{
          Answer(206, weights_.substr(5), absl::StrCat("Content-Range: ", range, "\r\n"))};
    });
    EXPECT_THAT(Message(), HasSubstr("expected bytes 5-99999/100000")) << range;
  }
}

TEST_F(HostileHubTest, PathsThatLeaveTheCache) {
  for (const std::string path : {"../../../../evil.gguf", "/tmp/evil.gguf", "a\\u0000.gguf"}) {
    ListAs(absl::StrReplaceAll(hub_.Listing(), {{"model.safetensors", path}}));
    EXPECT_THAT(Message(), HasSubstr("expected a relative path")) << path;
  }
  EXPECT_EQ(hub_.n_file_bytes(), 0u);
}

TEST_F(HostileHubTest, SizesThatNoDiskHas) {
  ListAs(absl::StrReplaceAll(hub_.Listing(), {{"100000", "1000000000000000"}}));
  const absl::Status status = Fetch();
  EXPECT_TRUE(absl::IsResourceExhausted(status));
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("bytes are free, expected 1000000000000002"));
  EXPECT_EQ(hub_.n_file_bytes(), 0u);
  ListAs(absl::StrReplaceAll(hub_.Listing(), {{"100000", "99999999999999999999999"}}));
  EXPECT_TRUE(absl::IsDataLoss(Fetch()));
}

TEST_F(HostileHubTest, ListsThatAreNone) {
  for (const std::string text : {"", "{}", "[1]", "<html>", "[", "[]]", "null"}) {
    ListAs(text);
    EXPECT_TRUE(absl::IsDataLoss(Fetch())) << text;
  }
  ListAs("[]");
  EXPECT_TRUE(absl::IsNotFound(Fetch()));
}

TEST_F(HostileHubTest, AnEndlessList) {
  AnswerWith("/tree/", {.bytes = "HTTP/1.1 200 OK\r\n\r\n[", .endless = std::string(65536, ' ')});
  EXPECT_THAT(Message(), HasSubstr("the answer is over 8388608 bytes"));
}

TEST_F(HostileHubTest, EndlessPages) {
  hub_.SetScript([](const HubRequest& request, int) -> std::optional<HubAnswer> {
    if (!absl::StrContains(request.path, "/tree/")) return std::nullopt;
    return HubAnswer{Answer(200, "[]", "Link: <" + request.path + ">; rel=\"next\"\r\n")};
  });
  EXPECT_THAT(Message(), HasSubstr("more than 1000 pages"));
}

TEST_F(HostileHubTest, ANextPageElsewhere) {
  AnswerWith("/tree/", {Answer(200, "[]", "Link: <https://evil.example/x>; rel=\"next\"\r\n")});
  EXPECT_THAT(Message(), HasSubstr("its next page is not at"));
}

TEST_F(HostileHubTest, RevisionsThatAreNone) {
  for (const std::string text : {"{}", "[]", "{\"sha\": \"../../x\"}", "<html>", ""}) {
    AnswerWith("/revision/", {Answer(200, text)});
    EXPECT_TRUE(absl::IsDataLoss(Fetch())) << text;
  }
}

TEST_F(HostileHubTest, RefusalsAreNotRepeated) {
  const std::pair<int, std::string> kRefusals[] = {
      {401, "there is no token: set HF_TOKEN"}, {403, "accept its terms"}, {404, "no such model"}};
  for (const auto& [status, words] : kRefusals) {
    const size_t n = hub_.requests().size();
    AnswerWith("/revision/", {Answer(status, "")});
    EXPECT_THAT(Message(), HasSubstr(words));
    EXPECT_EQ(hub_.requests().size(), n + 1);
  }
}

TEST_F(HostileHubTest, BusyHubsAreAskedAgain) {
  for (const int status : {429, 500, 502, 503}) {
    const size_t n = hub_.requests().size();
    AnswerWith("/revision/", {Answer(status, "")});
    EXPECT_TRUE(absl::IsUnavailable(Fetch()));
    EXPECT_EQ(hub_.requests().size(), n + 5);
  }
}

TEST_F(HostileHubTest, AHubThatWantsHoursIsNotWaitedFor) {
  AnswerWith("/revision/", {Answer(429, "", "Retry-After: 3600\r\n")});
  EXPECT_THAT(Message(), HasSubstr("it asks to try again after 1h"));
  EXPECT_EQ(hub_.requests().size(), 1u);
}

TEST_F(HostileHubTest, ALoopOfRedirects) {
  AnswerWith("safetensors", {Answer(302, "",
                                    absl::StrCat("Location: /acme/model/resolve/", FakeHub::kCommit,
                                                 "/model.safetensors\r\n"))});
  EXPECT_THAT(Message(), HasSubstr("more than 5 redirects"));
}

TEST_F(HostileHubTest, ABusyHubRecovers) {
  hub_.SetScript([](const HubRequest&, int n_before) -> std::optional<HubAnswer> {
    if (n_before > 0) return std::nullopt;
    return HubAnswer{Answer(503, "")};
  });
  EXPECT_TRUE(FetchModel(*ParseModelReference("hf:acme/model"), settings_, HubHooks()).ok());
}

}  // namespace
}  // namespace lowkey
