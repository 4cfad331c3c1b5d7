// The real `lowkey` binary as a user runs it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>

#include "absl/strings/str_split.h"
#include "engine/loader/safetensors.h"
#include "server/config/terminal/layout.h"
#include "tests/integration/child_process.h"
#include "tests/integration/running_server.h"
#include "tests/integration/terminal_process.h"
#include "tests/testing/source_path.h"

namespace lowkey {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

struct Ran {
  int code = 0;
  std::string output, errors;
};

Ran RunLowkey(std::vector<std::string> arguments, const std::vector<std::string>& environment = {},
              const std::string& input = "") {
  arguments.insert(arguments.begin(), LOWKEY_BINARY);
  ChildProcess child(arguments, environment, input);
  const int code = child.Wait();
  return {code, child.output(), child.errors()};
}

class BinaryTest : public ::testing::Test {
 protected:
  BinaryTest() : model_(ServedModelOptions()) {
    std::filesystem::copy_file(SourcePath("models/tales/tokenizer.model"),
                               model_.File("tokenizer.model"));
  }

  // Starts `lowkey serve --port 0 MORE` and learns its address.
  void Serve(const std::vector<std::string>& more = {}) {
    std::vector<std::string> arguments = {LOWKEY_BINARY, "serve",         "--port", "0",
                                          "--model",     model_.path(),   "--json", "--threads",
                                          "1",           "--cache-bytes", "64M"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    server_ = std::make_unique<ChildProcess>(arguments);
    ASSERT_TRUE(server_->WaitForOutput("\n"));
    const auto ready = nlohmann::json::parse(server_->output());
    EXPECT_EQ(ready["event"], "ready");
    EXPECT_GT(ready["ready_ms"], 0.0);
    port_ = std::to_string(ready["port"].get<int>());
    address_ = "127.0.0.1:" + port_;
  }

  TinyModel model_;
  std::unique_ptr<ChildProcess> server_;
  std::string port_, address_;
};

TEST_F(BinaryTest, ServesGeneratesReportsAndStopsOnSigterm) {
  Serve({"--log-requests"});
  EXPECT_EQ(RunLowkey({"health", "--server", address_}).code, 0);
  const Ran text = RunLowkey({"generate", "--server", address_, "--max-new-tokens", "8",
                              "--ignore-eos", "--seed", "7", "Once upon a time"});
  EXPECT_EQ(text.code, 0) << text.errors;
  EXPECT_GT(text.output.size(), 1u);
  for (const char* line : {"mechanism  standard (default, exact)", "% of standard's", "8 generated",
                           "tokens/s", "seed       7", "finish     length"}) {
    EXPECT_THAT(text.errors, HasSubstr(line));
  }
  EXPECT_THAT(text.errors, Not(HasSubstr("\033"))) << "colors in a file";
  const Ran json = RunLowkey({"generate", "--server", address_, "--max-new-tokens", "8",
                              "--ignore-eos", "--json", "--attention", "atp", "--rank", "1/4"},
                             {}, "Once upon a time");
  EXPECT_EQ(json.code, 0) << json.errors;
  const auto response = nlohmann::json::parse(json.output);
  EXPECT_EQ(response["final"]["attention"]["mechanism"], "atp");
  EXPECT_EQ(response["final"]["usage"]["generated_tokens"], 8);
  EXPECT_EQ(response["choices"][0]["text"].get<std::string>() + "\n", text.output);
  EXPECT_THAT(json.output, Not(HasSubstr("top_logprobs"))) << "nobody asked for alternatives";
  server_->Signal(SIGTERM);
  EXPECT_EQ(server_->Wait(), 0);
  EXPECT_THAT(server_->errors(), HasSubstr("\"method\":\"GenerateStream\""));
  EXPECT_THAT(server_->errors(), Not(HasSubstr("upon")));
  EXPECT_EQ(RunLowkey({"health", "--server", address_}).code, 1);
}

// The gRPC library names its threads, which are for clients alone.
TEST_F(BinaryTest, ServesWithoutThreadsOfTheGrpcLibrary) {
  Serve();
  EXPECT_EQ(RunLowkey({"generate", "--server", address_, "--max-new-tokens", "2", "Once"}).code, 0);
  const std::string tasks = "/proc/" + std::to_string(server_->pid()) + "/task";
  int n_threads = 0;
  for (const auto& task : std::filesystem::directory_iterator(tasks)) {
    std::string name;
    std::getline(std::ifstream(task.path() / "comm"), name);
    EXPECT_EQ(name, "lowkey");
    ++n_threads;
  }
  EXPECT_GE(n_threads, 3) << "the engine, the network and the main one";
}

TEST_F(BinaryTest, SaysThatTheModelsContextIsShorterThanTheOneAskedFor) {
  const auto errors_with = [this](const std::string& context) {
    Serve({"--context", context});
    server_->Signal(SIGTERM);
    EXPECT_EQ(server_->Wait(), 0);
    return server_->errors();
  };
  EXPECT_THAT(errors_with("1000000"),
              AllOf(HasSubstr("lowkey serve: warning: --context: \"1000000\", expected at most the "
                              "model's context of "),
                    HasSubstr(" tokens, which is used\n")));
  EXPECT_THAT(errors_with("16"), Not(HasSubstr("warning")));
}

TEST_F(BinaryTest, SigintStopsAnIdleServerToo) {
  Serve();
  server_->Signal(SIGINT);
  EXPECT_EQ(server_->Wait(), 0);
}

TEST_F(BinaryTest, GraceIsLeftToARunningRequest) {
  Serve();
  ChildProcess client({LOWKEY_BINARY, "generate", "--server", address_, "--max-new-tokens", "300",
                       "--ignore-eos", "--json", "Once"});
  // The request is admitted once the server counts it.
  const auto channel = grpc::CreateChannel(address_, grpc::InsecureChannelCredentials());
  const auto admin = v1::Admin::NewStub(channel);
  v1::StatsResponse stats;
  while (stats.steps() == 0) {
    grpc::ClientContext context;
    ASSERT_TRUE(admin->Stats(&context, {}, &stats).ok());
  }
  server_->Signal(SIGTERM);
  EXPECT_EQ(client.Wait(), 0) << client.errors();
  EXPECT_EQ(server_->Wait(), 0);
}

TEST_F(BinaryTest, InterruptedClientCancelsItsRequest) {
  Serve();
  ChildProcess client({LOWKEY_BINARY, "generate", "--server", address_, "--max-new-tokens", "1000",
                       "--ignore-eos", "--n", "8", "Once"});
  const auto channel = grpc::CreateChannel(address_, grpc::InsecureChannelCredentials());
  const auto admin = v1::Admin::NewStub(channel);
  v1::StatsResponse stats;
  const auto answers = [&] {
    grpc::ClientContext context;
    return admin->Stats(&context, {}, &stats).ok();
  };
  do {
    ASSERT_TRUE(answers());
  } while (stats.running_requests() == 0);
  client.Signal(SIGINT);
  EXPECT_EQ(client.Wait(), 130);
  EXPECT_THAT(client.errors(), HasSubstr("cancelled"));
  do {
    ASSERT_TRUE(answers());
  } while (stats.running_requests() > 0);
  EXPECT_EQ(stats.cache_bytes_used(), 0);
}

TEST_F(BinaryTest, TakenPortIsAClearErrorBeforeLoading) {
  Serve();
  const Ran second = RunLowkey({"serve", "--port", port_, "--model", model_.path()});
  EXPECT_EQ(second.code, 1);
  EXPECT_THAT(second.errors, HasSubstr("the port is in use"));
  EXPECT_THAT(second.errors, Not(HasSubstr("loading")));
}

TEST_F(BinaryTest, FlagsComeFromEnvironmentAndFileToo) {
  const std::string config = model_.File("flags.conf");
  WriteFileOrDie(config, "# served by default\nattention = atp\nrank = 8\nmax-new-tokens = 3\n");
  Serve({"--config", config, "--rank", "16"});
  const Ran ran = RunLowkey({"generate", "--json", "Once"}, {"LOWKEY_SERVER=" + address_});
  ASSERT_EQ(ran.code, 0) << ran.errors;
  const auto response = nlohmann::json::parse(ran.output);
  EXPECT_EQ(response["final"]["attention"]["mechanism"], "atp");
  EXPECT_EQ(response["final"]["attention"]["reason"], "default");
  EXPECT_EQ(response["final"]["attention"]["rank"], 16);
  EXPECT_LE(response["final"]["usage"]["generated_tokens"], 3);
}

TEST_F(BinaryTest, ClientErrorsAreClear) {
  const Ran absent = RunLowkey({"generate", "--server", "127.0.0.1:1", "Once"});
  EXPECT_EQ(absent.code, 1);
  EXPECT_THAT(absent.errors, HasSubstr("no server answers at 127.0.0.1:1"));
  EXPECT_EQ(absent.output, "");
  EXPECT_THAT(RunLowkey({"generate", "--temprature", "1", "Once"}).errors,
              HasSubstr("did you mean --temperature?"));
  EXPECT_EQ(RunLowkey({"generate"}).code, 2);
  Serve();
  const Ran refused = RunLowkey({"generate", "--server", address_, "--temperature", "9", "Once"});
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.errors, HasSubstr("temperature"));
  EXPECT_EQ(RunLowkey({"generate", "--server", address_, "a\xff"}).code, 2);
}

TEST_F(BinaryTest, NewlineThatEndsAPipedPromptIsNoPartOfIt) {
  Serve();
  const std::vector<std::string> command = {"generate",         "--server", address_,
                                            "--max-new-tokens", "4",        "--json"};
  const auto tokens = [&](const std::string& prompt) {
    const Ran ran = RunLowkey(command, {}, prompt);
    EXPECT_EQ(ran.code, 0) << ran.errors;
    return nlohmann::json::parse(ran.output)["final"]["usage"]["prompt_tokens"].get<int>();
  };
  const int n = tokens("Once upon a time");
  EXPECT_EQ(tokens("Once upon a time\n"), n);
  EXPECT_EQ(tokens("Once upon a time\r\n"), n);
  EXPECT_GT(tokens("Once upon a time\n\n"), n);
}

TEST_F(BinaryTest, LogprobsAreReadableWithoutJson) {
  Serve();
  const std::vector<std::string> command = {
      "generate", "--server", address_, "--max-new-tokens", "3", "--ignore-eos", "--logprobs", "2"};
  const Ran text = RunLowkey([&] {
    auto c = command;
    c.push_back("Once");
    return c;
  }());
  EXPECT_EQ(text.code, 0) << text.errors;
  EXPECT_THAT(text.errors, HasSubstr("logprob  token"));
  EXPECT_THAT(text.errors, ::testing::ContainsRegex("-[0-9]+\\.[0-9]{3}  \".*\" -[0-9]+"));
  const Ran json = RunLowkey([&] {
    auto c = command;
    c.push_back("--json");
    c.push_back("Once");
    return c;
  }());
  const auto response = nlohmann::json::parse(json.output);
  EXPECT_EQ(response["choices"][0]["tokens"][0]["top_logprobs"].size(), 2u);
}

TEST_F(BinaryTest, TablesFitTheTerminal) {
  WriteFileOrDie(model_.File("text.txt"), "Once upon a time there was a king. He had three sons.");
  const std::vector<std::vector<std::string>> commands = {
      {"inspect", "--model", model_.path(), "Once upon a time"},
      {"eval", "perplexity", model_.File("text.txt"), "--model", model_.path(), "--context", "8",
       "--try", "standard", "--try", "atp --rank 16 --block 64 --prefill exact"},
      {"--help"},
      {"serve", "--help"},
  };
  static const std::regex kStyle("\033\\[[0-9;]*[mK]");
  for (const unsigned short columns : {80, 60}) {
    for (std::vector<std::string> command : commands) {
      command.insert(command.begin(), LOWKEY_BINARY);
      TerminalProcess program(command, columns);
      EXPECT_EQ(program.Wait(), 0) << program.screen();
      const std::string screen = std::regex_replace(program.screen(), kStyle, "");
      for (const absl::string_view line : absl::StrSplit(screen, absl::ByAnyChar("\r\n"))) {
        EXPECT_LE(DisplayWidth({line.data(), line.size()}), columns) << line;
      }
    }
  }
}

TEST_F(BinaryTest, AnEvaluationThatIsRefusedHasNoTable) {
  const Ran ran = RunLowkey({"eval", "recall", SourcePath("LICENSE"), "--model", model_.path(),
                             "--context", "64", "--threads", "1"});
  EXPECT_EQ(ran.code, 2) << ran.errors;
  EXPECT_THAT(ran.errors, HasSubstr("context: 64 tokens, expected at least"));
  EXPECT_EQ(ran.output, "");
}

TEST_F(BinaryTest, AnEvaluationTakesItsAttentionFromOnePlace) {
  const Ran ran = RunLowkey({"eval", "perplexity", SourcePath("LICENSE"), "--model", model_.path(),
                             "--attention", "atp", "--try", "standard"});
  EXPECT_EQ(ran.code, 2) << ran.errors;
  EXPECT_THAT(ran.errors, HasSubstr("attention: "));
  EXPECT_THAT(RunLowkey({"help", "eval"}).output, HasSubstr("--as-generated"));
}

TEST_F(BinaryTest, VersionTellsTheBuild) {
  const Ran text = RunLowkey({"version"});
  for (const char* row : {"lowkey 0.", "commit ", "build ", "instruction set ", "gRPC 1."}) {
    EXPECT_THAT(text.output, HasSubstr(row));
  }
  const auto json = nlohmann::json::parse(RunLowkey({"version", "--json"}).output);
  for (const char* name : {"version", "commit", "build_type", "compiler", "instruction_set",
                           "instruction_sets", "cuda", "sanitizers", "libraries"}) {
    EXPECT_TRUE(json.contains(name)) << name;
  }
  const Ran portable = RunLowkey({"version", "--json"}, {"LOWKEY_ISA=portable"});
  EXPECT_EQ(nlohmann::json::parse(portable.output)["instruction_set"], "portable");
}

TEST_F(BinaryTest, ServerErrorsAreClear) {
  const Ran open = RunLowkey({"serve", "--host", "0.0.0.0"});
  EXPECT_EQ(open.code, 2);
  EXPECT_THAT(open.errors, HasSubstr("--insecure"));
  const Ran absent = RunLowkey({"serve", "--port", "0", "--model", "/nonexistent"});
  EXPECT_EQ(absent.code, 1);
  EXPECT_THAT(absent.errors, HasSubstr("--model: /nonexistent: No such file or directory, expected "
                                       "a model directory or a .gguf file"));
  const Ran empty = RunLowkey({"serve", "--port", "0", "--model", ""});
  EXPECT_EQ(empty.code, 2);
  EXPECT_THAT(empty.errors, HasSubstr("--model"));
  const Ran weightless =
      RunLowkey({"serve", "--port", "0", "--model", model_.path(), "--attention", "optimised"});
  EXPECT_EQ(weightless.code, 1) << weightless.output;
  EXPECT_THAT(weightless.errors,
              HasSubstr("--attention: optimised cannot run on this model, expected standard, atp"));
  EXPECT_EQ(RunLowkey({"serve", "--port", "70000"}).code, 2);
  EXPECT_EQ(RunLowkey({"serve", "--connection-age", "0"}).code, 2);
}

TEST_F(BinaryTest, ModelCutAnywhereIsNoUsageError) {
  const std::string gguf = model_.File("cut.gguf"), shard = model_.File("model.safetensors");
  std::filesystem::copy_file(SourcePath("tests/golden/gguf_llama/model.gguf"), gguf);
  for (const std::string& file : {gguf, shard}) {
    const auto whole = std::filesystem::file_size(file);
    for (const auto size :
         {whole - 1, whole / 2, whole / 50, std::uintmax_t{9}, std::uintmax_t{0}}) {
      std::filesystem::resize_file(file, size);
      const Ran ran =
          RunLowkey({"serve", "--port", "0", "--model", file == gguf ? gguf : model_.path()});
      EXPECT_EQ(ran.code, 1) << file << " of " << size << " bytes: " << ran.errors;
      EXPECT_THAT(ran.errors, HasSubstr(file == gguf ? "cut.gguf" : "model.safetensors"));
    }
  }
}

TEST_F(BinaryTest, TokenizeAndBack) {
  const Ran ids = RunLowkey({"tokenize", "--model", model_.path(), "Once upon a time"});
  EXPECT_EQ(ids.code, 0) << ids.errors;
  const Ran text = RunLowkey({"tokenize", "--model", model_.path(), "--decode"}, {}, ids.output);
  EXPECT_EQ(text.output, "Once upon a time\n");
  EXPECT_EQ(RunLowkey({"tokenize", "--model", model_.path(), "--decode", "4096"}).code, 2);
  const Ran json = RunLowkey({"tokenize", "--model", model_.path(), "--json", "a\"b"});
  EXPECT_EQ(nlohmann::json::parse(json.output)["token_ids"][0], 1);
}

TEST_F(BinaryTest, LogitsAreWrittenForEveryToken) {
  const std::string ids = model_.File("ids.txt"), output = model_.File("logits.safetensors");
  WriteFileOrDie(ids, "1 5 6\n7\n");
  const Ran ran =
      RunLowkey({"logits", "--model", model_.path(), "--tokens-file", ids, "--output", output});
  ASSERT_EQ(ran.code, 0) << ran.errors;
  const auto file = OpenSafetensors(output);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->index.tensors.at("logits").shape, (std::vector<int64_t>{4, 4096}));
  const Ran behind = RunLowkey({"logits", "--model", model_.path(), "--tokens-file", ids,
                                "--output", output, "--prompt-tokens", "3", "--json"});
  EXPECT_EQ(nlohmann::json::parse(behind.output)["n_tokens"], 1);
  WriteFileOrDie(ids, "1 5 six\n");
  const Ran bad =
      RunLowkey({"logits", "--model", model_.path(), "--tokens-file", ids, "--output", output});
  EXPECT_EQ(bad.code, 2);
  EXPECT_THAT(bad.errors, HasSubstr("line 1: \"six\""));
}

TEST_F(BinaryTest, AttendWritesOutputsAndCountsBytes) {
  const std::string input = model_.File("qkv.safetensors"), output = model_.File("out.safetensors");
  std::vector<float> values(2 * 200 * 16, 0.5f);
  for (size_t i = 0; i < values.size(); ++i) values[i] = std::sin(static_cast<float>(i * i % 977));
  const TensorView view{
      DType::kF32, {2, 200, 16}, reinterpret_cast<const std::byte*>(values.data())};
  const std::pair<std::string, TensorView> tensors[] = {{"q", view}, {"k", view}, {"v", view}};
  ASSERT_TRUE(WriteSafetensors(input, tensors).ok());
  const Ran ran =
      RunLowkey({"attend", "--inputs", input, "--output", output, "--attention", "atp", "--rank",
                 "4", "--block", "64", "--window", "0", "--prefill", "compressed", "--json"});
  ASSERT_EQ(ran.code, 0) << ran.errors;
  const auto json = nlohmann::json::parse(ran.output);
  EXPECT_EQ(json["rank"], 4);
  EXPECT_LT(json["cache_bytes"], json["standard_cache_bytes"]);
  const auto file = OpenSafetensors(output);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ(file->index.tensors.at("out").shape, (std::vector<int64_t>{2, 200, 16}));
}

// attention_reference.py's taylorshift_direct at these numbers.
TEST_F(BinaryTest, AttendReadsTemperatures) {
  const std::string input = model_.File("taylor.safetensors"),
                    output = model_.File("to.safetensors");
  const std::vector<float> q = {1, 0, 0, 2, 3, 4}, k = {1, 0, 3, 4, 0, -2}, v = {1, 2, 3, 4, 5, 6};
  const std::vector<float> tau = {2};
  const auto view = [](std::vector<int64_t> shape, const std::vector<float>& x) {
    return TensorView{DType::kF32, std::move(shape), reinterpret_cast<const std::byte*>(x.data())};
  };
  const std::pair<std::string, TensorView> tensors[] = {{"q", view({1, 3, 2}, q)},
                                                        {"k", view({1, 3, 2}, k)},
                                                        {"v", view({1, 3, 2}, v)},
                                                        {"tau", view({1}, tau)}};
  ASSERT_TRUE(WriteSafetensors(input, tensors).ok());
  for (const char* form : {"direct", "recurrent"}) {
    const Ran ran = RunLowkey({"attend", "--inputs", input, "--output", output, "--attention",
                               "taylorshift", "--form", form, "--json"});
    ASSERT_EQ(ran.code, 0) << ran.errors;
    const auto file = OpenSafetensors(output);
    ASSERT_TRUE(file.ok()) << file.status();
    std::vector<float> out(6);
    LoadFloats(file->index.tensors.at("out"), 0, 6, out.data());
    const double want[] = {0.7071068, 1.414214, 2.590164, 3.590164, 3.036228, 4.260973};
    for (int i = 0; i < 6; ++i) EXPECT_NEAR(out[i], want[i], 1e-5) << i << ", " << form;
  }
}

TEST_F(BinaryTest, OutputThatCannotBeWrittenIsAFailure) {
  ChildProcess full({"/bin/sh", "-c", absl::StrCat(LOWKEY_BINARY, " version > /dev/full")});
  EXPECT_EQ(full.Wait(), 1);
  EXPECT_THAT(full.errors(), HasSubstr("standard output cannot be written"));
}

TEST_F(BinaryTest, CrossoverSaysWhatItCannotMeasure) {
  const Ran ran = RunLowkey({"crossover", "--model", model_.path(), "--lengths", "64", "--try",
                             "atp --basis calibrated --refine 128", "--threads", "1"});
  EXPECT_NE(ran.code, 0);
  EXPECT_THAT(ran.errors, HasSubstr("calibration"));
}

TEST_F(BinaryTest, TemperaturesWithoutQueriesAreRefused) {
  const std::string input = model_.File("odd.safetensors");
  const std::vector<float> x(64), tau(2);
  const auto view = [](std::vector<int64_t> shape, const std::vector<float>& values) {
    return TensorView{DType::kF32, std::move(shape),
                      reinterpret_cast<const std::byte*>(values.data())};
  };
  const std::pair<std::string, TensorView> tensors[] = {{"x", view({4, 16}, x)},
                                                        {"tau", view({2}, tau)}};
  ASSERT_TRUE(WriteSafetensors(input, tensors).ok());
  const Ran ran = RunLowkey({"attend", "--inputs", input, "--attention", "lasso", "--heads", "2",
                             "--kv-heads", "2", "--output", model_.File("odd_out")});
  EXPECT_EQ(ran.code, 2) << ran.errors;
  EXPECT_THAT(ran.errors, HasSubstr("tau, expected none"));
}

TEST_F(BinaryTest, InspectShowsShapeMemoryAndRanks) {
  const Ran ran = RunLowkey({"inspect", "--model", model_.path(), "Once upon a time there was"});
  EXPECT_EQ(ran.code, 0) << ran.errors;
  for (const char* text :
       {"LlamaForCausalLM", "standard", "atp", "taylorshift", "layer   0", "layer   1"}) {
    EXPECT_THAT(ran.output, HasSubstr(text));
  }
  const Ran json = RunLowkey({"inspect", "--model", model_.path(), "--json"});
  EXPECT_EQ(nlohmann::json::parse(json.output)["n_layers"], 2);
}

}  // namespace
}  // namespace lowkey
