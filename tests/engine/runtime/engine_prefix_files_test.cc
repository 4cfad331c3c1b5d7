// Prefixes in files outlive the engine, and change no output: whatever becomes of the files.
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "engine/runtime/prefix_files/piece_folder.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/engine/runtime/calibration/coded_model.h"
#include "tests/engine/runtime/collecting_sink.h"
#include "tests/testing/temp_directory.h"

namespace lowkey {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

struct Case {
  std::string name;
  AttentionOptions attention;
  int32_t piece_tokens = kPageTokens;
};

std::vector<Case> Cases() {
  std::vector<Case> cases = {{"exact", {}}, {"int8", {}}, {"int3", {}}, {"coded", {}, 512}};
  cases[1].attention.standard.storage = CacheStorage::kInt8;
  cases[2].attention.standard.storage = CacheStorage::kInt3;
  cases[3].attention.standard.prefix_storage.centibits = kDefaultCentibits;
  return cases;
}

EngineRequest Request(int n_prompt, int n_new, int variant = 0) {
  EngineRequest r;
  for (int i = 0; i < n_prompt; ++i) {
    r.prompt.push_back(3 + (i * i * 31 + i * (variant + 7) + variant * 17) % 93);
  }
  r.max_new_tokens = n_new;
  r.sampling.logprobs = 0;
  return r;
}

PieceKey KeyOf(const fs::path& file) {
  const std::string digits = file.stem().string();
  PieceKey key;
  for (size_t i = 0; i < key.size(); ++i) {
    key[i] = static_cast<uint8_t>(std::stoi(digits.substr(2 * i, 2), nullptr, 16));
  }
  return key;
}

class EnginePrefixFilesTest : public ::testing::Test {
 protected:
  // Starts an engine anew: the one before it has written its prefixes by then.
  void Start(EngineOptions options = {}, const std::string& folder = "files") {
    engine_ = nullptr;
    options.n_threads = 2;
    options.codes = codes_;
    if (options.cache_bytes == 0) options.cache_bytes = 64 << 20;
    if (!folder.empty()) options.prefix_files.folder = temp_.File(folder);
    options.prefix_files.on_error = [this](const absl::Status& status) {
      errors_.push_back(status.ToString());
    };
    auto engine = CreateEngine(coded_.checkpoint(), options, nullptr);
    ASSERT_TRUE(engine.ok()) << engine.status();
    engine_ = *std::move(engine);
  }

  std::shared_ptr<Collected> Submit(const EngineRequest& request) {
    auto to = std::make_shared<Collected>();
    const auto id = engine_->Submit(request, std::make_unique<CollectingSink>(to));
    EXPECT_TRUE(id.ok()) << id.status();
    last_id_ = id.value_or(0);
    return to;
  }

  std::shared_ptr<Collected> Run(const EngineRequest& request) {
    auto got = Submit(request);
    EXPECT_TRUE(got->Wait().status.ok()) << got->final_event->status;
    return got;
  }

  static void ExpectSame(const Collected& a, const Collected& b) {
    EXPECT_EQ(a.tokens, b.tokens);
    EXPECT_EQ(a.logprobs, b.logprobs);
  }

  std::vector<fs::path> Files(const std::string& folder = "files") const {
    std::vector<fs::path> files;
    for (const auto& entry : fs::directory_iterator(temp_.File(folder))) {
      if (entry.path().extension() == ".piece") files.push_back(entry.path());
    }
    std::sort(files.begin(), files.end());
    return files;
  }

  // Returns once the engine has written so many files.
  void WaitForFiles(size_t n) const {
    while (Files().size() < n) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }

  const CodedModel coded_;
  const std::shared_ptr<const PrincipalCodes> codes_ = coded_.Calibrate();
  const TempDirectory temp_;
  std::vector<std::string> errors_;
  std::unique_ptr<Engine> engine_;
  RequestId last_id_ = 0;
};

TEST_F(EnginePrefixFilesTest, APromptIsFoundAfterARestartToTheBit) {
  for (const Case& c : Cases()) {
    SCOPED_TRACE(c.name);
    EngineRequest request = Request(1300, 20);
    request.attention = c.attention;
    Start({}, "");
    const auto expected = Run(request);
    Start();
    EXPECT_EQ(Run(request)->final_event->n_cached_tokens, 0);
    EXPECT_EQ(engine_->Stats().n_prefix_file_tokens, 0);
    Start();
    const int32_t n_cached = 1299 / c.piece_tokens * c.piece_tokens;
    for (int turn = 0; turn < 2; ++turn) {  // from files, then from memory
      const auto got = Run(request);
      EXPECT_EQ(got->final_event->n_cached_tokens, n_cached);
      EXPECT_EQ(got->final_event->attention.n_coded_tokens,
                expected->final_event->attention.n_coded_tokens);
      ExpectSame(*got, *expected);
      EXPECT_EQ(engine_->Stats().n_prefix_file_tokens, n_cached);
    }
    const EngineStats stats = engine_->Stats();
    EXPECT_GT(stats.n_prefix_file_bytes_read, 0);
    EXPECT_EQ(stats.n_prefix_file_errors, 0);
    EXPECT_EQ(stats.cache_bytes_used, 0);
  }
}

TEST_F(EnginePrefixFilesTest, AnAnswerIsFoundByTheNextTurn) {
  Start();
  EngineRequest request = Request(100, 60);
  const auto answer = Run(request);
  request.prompt.insert(request.prompt.end(), answer->tokens[0].begin(), answer->tokens[0].end());
  request.max_new_tokens = 5;
  Start();
  EXPECT_EQ(Run(request)->final_event->n_cached_tokens, 128);
}

TEST_F(EnginePrefixFilesTest, MemoryAndFilesAddUp) {
  Start();
  EngineRequest request = Request(1000, 1);
  const auto expected = Run(request);
  Start();
  EngineRequest first = request;
  first.prompt.resize(300);
  EXPECT_EQ(Run(first)->final_event->n_cached_tokens, 256);
  const auto got = Run(request);
  EXPECT_EQ(got->final_event->n_cached_tokens, 960);
  EXPECT_EQ(engine_->Stats().n_prefix_file_tokens, 960);
  ExpectSame(*got, *expected);
}

TEST_F(EnginePrefixFilesTest, NoPrefixPassesBetweenTenantsOptionsBuildsOrModels) {
  Start();
  EngineRequest request = Request(300, 2);
  request.tenant = "a";
  Run(request);
  Start();
  EngineRequest other = request;
  other.tenant = "b";
  EXPECT_EQ(Run(other)->final_event->n_cached_tokens, 0);
  other = request;
  other.attention.standard.storage = CacheStorage::kInt4;
  EXPECT_EQ(Run(other)->final_event->n_cached_tokens, 0);
  EngineOptions options;
  options.prefix_files.build = "another";
  Start(options);
  EXPECT_EQ(Run(request)->final_event->n_cached_tokens, 0);
  options = {};
  options.dtype = EngineOptions::Dtype::kBFloat16;
  Start(options);
  EXPECT_EQ(Run(request)->final_event->n_cached_tokens, 0);
  const CodedModel model(2);
  options = {};
  options.n_threads = 2;
  options.cache_bytes = 64 << 20;
  options.prefix_files.folder = temp_.File("files");
  engine_ = CreateEngine(model.checkpoint(), options, nullptr).value();
  EXPECT_EQ(Run(request)->final_event->n_cached_tokens, 0);
  Start();
  EXPECT_EQ(Run(request)->final_event->n_cached_tokens, 256);
}

TEST_F(EnginePrefixFilesTest, AWrongFileEndsThePrefixAndIsReported) {
  const EngineRequest request = Request(700, 4);
  Start();
  const auto expected = Run(request);
  Start();
  const std::vector<fs::path> files = Files();
  ASSERT_EQ(files.size(), 10u);
  for (const fs::path& file : files) {
    std::string bytes = ReadFileOrDie(file);
    bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] + 1);
    WriteFileOrDie(file, bytes);
  }
  const auto got = Run(request);
  EXPECT_EQ(got->final_event->n_cached_tokens, 0);
  ExpectSame(*got, *expected);
  EXPECT_EQ(engine_->Stats().n_prefix_file_errors, 1);
  engine_ = nullptr;
  ASSERT_EQ(errors_.size(), 1u);
  EXPECT_THAT(errors_[0], HasSubstr("its digest is not that of its bytes"));
  // The first file is written anew; the second one is still wrong.
  Start();
  EXPECT_EQ(Run(request)->final_event->n_cached_tokens, 64);
}

// A stranger may write files whose digests are right.
TEST_F(EnginePrefixFilesTest, BytesThatCannotBeAPieceAreNotTaken) {
  for (const Case& c : {Cases()[0], Cases()[3]}) {
    SCOPED_TRACE(c.name);
    EngineRequest request = Request(600, 2);
    request.attention = c.attention;
    Start({}, c.name);
    Run(request);
    Start({}, c.name);
    auto folder = PieceFolder::Open(temp_.File(c.name), 1 << 30);
    ASSERT_TRUE(folder.ok());
    for (const fs::path& file : Files(c.name)) {
      const PieceKey key = KeyOf(file);
      const Buffer piece = **folder->Read(key, absl::Now(), 1 << 30);
      std::vector<std::byte> bytes(piece.data(), piece.data() + piece.size_bytes());
      bytes.pop_back();
      ASSERT_TRUE(folder->Write(key, absl::Now(), bytes).ok());
    }
    EXPECT_EQ(Run(request)->final_event->n_cached_tokens, 0);
  }
}

TEST_F(EnginePrefixFilesTest, EveryChangeOfACodedPieceIsRefusedOrHarmless) {
  EngineRequest request = Request(600, 2);
  request.attention = Cases()[3].attention;
  Start();
  Run(request);
  engine_ = nullptr;
  const fs::path file = Files().at(0);
  const PieceKey key = KeyOf(file);
  auto folder = PieceFolder::Open(temp_.File("files"), 1 << 30);
  ASSERT_TRUE(folder.ok());
  const Buffer piece = **folder->Read(key, absl::Now(), 1 << 30);
  const std::vector<std::byte> whole(piece.data(), piece.data() + piece.size_bytes());
  std::mt19937 rng(1);
  for (int round = 0; round < 60; ++round) {
    std::vector<std::byte> bytes = whole;
    // The first numbers are the ends of the shares.
    const size_t most = round % 2 == 0 ? 64 : bytes.size();
    for (int i = 0; i < 3; ++i) bytes[rng() % most] = static_cast<std::byte>(rng());
    if (round % 5 == 0) bytes.resize(rng() % bytes.size());
    ASSERT_TRUE(folder->Write(key, absl::Now(), bytes).ok());
    Start();
    Run(request);
  }
}

TEST_F(EnginePrefixFilesTest, ManyAtOnceInASmallCacheGiveTheSameTokens) {
  std::vector<EngineRequest> requests;
  for (int i = 0; i < 12; ++i) requests.push_back(Request(500 + 60 * (i % 4), 30, i % 6));
  Start({}, "");
  std::vector<std::shared_ptr<Collected>> expected;
  for (const EngineRequest& request : requests) expected.push_back(Run(request));
  EngineOptions options;
  options.cache_bytes = 3 * expected[3]->final_event->attention.peak_cache_bytes;
  int64_t n_from_files = 0;
  for (int turn = 0; turn < 3; ++turn) {
    Start(options);
    std::vector<std::shared_ptr<Collected>> got;
    for (const EngineRequest& request : requests) got.push_back(Submit(request));
    for (size_t i = 0; i < requests.size(); ++i) {
      EXPECT_TRUE(got[i]->Wait().status.ok()) << got[i]->final_event->status;
      ExpectSame(*got[i], *expected[i]);
    }
    n_from_files += engine_->Stats().n_prefix_file_tokens;
    EXPECT_EQ(engine_->Stats().cache_bytes_used, 0);
  }
  EXPECT_GT(n_from_files, 0);
}

TEST_F(EnginePrefixFilesTest, ARequestThatEndsWhileItsFilesAreReadHarmsNobody) {
  const EngineRequest request = Request(2000, 2);
  Start();
  const auto expected = Run(request);
  for (int i = 0; i < 20; ++i) {
    Start();
    const auto cancelled = Submit(request);
    engine_->Cancel(last_id_);
    EngineRequest late = request;
    late.deadline = absl::Now();
    const auto expired =
        engine_->Submit(late, std::make_unique<CollectingSink>(std::make_shared<Collected>()));
    if (i % 2 == 0) ExpectSame(*Run(request), *expected);
    EXPECT_NE(cancelled->Wait().status.code(), absl::StatusCode::kInternal);
  }
}

TEST_F(EnginePrefixFilesTest, FilesStayWithinTheirLimit) {
  EngineOptions options;
  Start(options);
  Run(Request(65, 1));
  WaitForFiles(1);
  const auto piece_bytes = static_cast<int64_t>(fs::file_size(Files()[0]));
  options.prefix_files.max_bytes = 10 * piece_bytes;
  Start(options);
  for (int i = 0; i < 5; ++i) Run(Request(600, 1, i));
  engine_ = nullptr;
  EXPECT_LE(Files().size(), 10u);
  EXPECT_GE(Files().size(), 8u);
  EXPECT_TRUE(errors_.empty());
}

TEST_F(EnginePrefixFilesTest, AFolderThatVanishesIsReportedAndRequestsGoOn) {
  Start();
  fs::remove_all(temp_.File("files"));
  const auto got = Run(Request(300, 3));
  while (engine_->Stats().n_prefix_file_errors == 0) Run(Request(10, 1));
  engine_ = nullptr;
  ASSERT_FALSE(errors_.empty());
  EXPECT_THAT(errors_[0], HasSubstr("cannot be made"));
}

TEST_F(EnginePrefixFilesTest, WithoutPrefixesThereAreNoFiles) {
  EngineOptions options;
  options.keeps_prefixes = false;
  Start(options);
  Run(Request(300, 3));
  EXPECT_FALSE(fs::exists(temp_.File("files")));
}

TEST_F(EnginePrefixFilesTest, AFolderThatCannotBeUsedIsRefused) {
  WriteFileOrDie(temp_.File("file"), "x");
  EngineOptions options;
  options.cache_bytes = 64 << 20;
  options.prefix_files.folder = temp_.File("file");
  EXPECT_EQ(CreateEngine(coded_.checkpoint(), options, nullptr).status().code(),
            absl::StatusCode::kFailedPrecondition);
}

}  // namespace
}  // namespace lowkey
