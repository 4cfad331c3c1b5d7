// Requests with something wrong in them, made from the protobuf descriptors so that a new field is
// covered from its first day, beside streams that must not notice. LOWKEY_BAD_REQUESTS=N sets how
// many.
#include <gmock/gmock.h>
#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>
#include <grpcpp/generic/generic_stub.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <future>
#include <limits>
#include <map>
#include <random>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "tests/integration/running_server.h"
#include "tests/integration/streams.h"

namespace lowkey {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

constexpr int kGoodStreams = 32;
constexpr int kBadClients = 32;
constexpr double kInf = std::numeric_limits<double>::infinity();

enum class Expected { kAccepted, kRefused, kEither };

// The documented values of a field. Fields without a rule are tried all the same: whatever comes
// of it must be an answer or a refusal.
struct Rule {
  double low = -kInf, high = kInf;  // of numbers
  bool is_low_open = false, is_high_open = false;
  std::set<std::string> words = {};  // texts that are taken, where they are counted
  size_t max_elements = 0;           // of repeated fields; 0: any number
  std::string mechanism = {};        // that the field belongs to
  bool is_known = true;
  bool is_high_costly = false;  // the highest values are taken, and take long: not tried
};

const std::map<std::string, Rule>& Rules() {
  const auto words = [](std::set<std::string> w, const char* mechanism = "") {
    return Rule{.words = std::move(w), .mechanism = mechanism};
  };
  const auto range = [](double low, double high, const char* mechanism = "") {
    return Rule{.low = low, .high = high, .mechanism = mechanism};
  };
  static const std::map<std::string, Rule> rules = {
      {"SamplingOptions.temperature", range(0, 2)},
      {"SamplingOptions.top_k", range(0, 4096)},
      {"SamplingOptions.top_p", {.low = 0, .high = 1, .is_low_open = true}},
      {"SamplingOptions.min_p", {.low = 0, .high = 1, .is_high_open = true}},
      {"SamplingOptions.repetition_penalty", {.low = 0, .high = 2, .is_low_open = true}},
      {"SamplingOptions.presence_penalty", range(-2, 2)},
      {"SamplingOptions.frequency_penalty", range(-2, 2)},
      {"SamplingOptions.seed", {}},
      {"SamplingOptions.logit_bias", {.max_elements = 1024}},
      {"LogitBiasEntry.key", range(0, 4095)},
      {"LogitBiasEntry.value", range(-100, 100)},
      {"AttentionOptions.mechanism",
       words({"standard", "atp", "taylorshift", "optimised", "efficient", "super", "lasso"})},
      {"AttentionOptions.rank", words({"1/4", "64", "0.25", "energy:0.95", "entropy"}, "atp")},
      {"AttentionOptions.basis", words({"layer", "kv", "input"}, "atp")},
      {"AttentionOptions.prefill", words({"exact", "compressed"}, "atp")},
      {"AttentionOptions.sinks", range(0, 63, "atp")},
      {"AttentionOptions.window_blocks", range(0, 64, "atp")},
      {"AttentionOptions.refine_tokens", range(0, 4096, "atp")},
      {"AttentionOptions.decomposition", words({"block", "alternating"}, "atp")},
      {"AttentionOptions.basis_storage", words({"cache", "int8", "int4"}, "atp")},
      {"AttentionOptions.principal_storage", words({"cache", "int8"}, "atp")},
      {"AttentionOptions.readout", words({"exact", "linear"}, "atp")},
      {"AttentionOptions.kept_storage", words({"cache", "int8"}, "atp")},
      {"AttentionOptions.form", words({"direct", "recurrent", "auto"}, "taylorshift")},
      {"AttentionOptions.variant", words({"normalized", "plain", "auto"}, "taylorshift")},
      {"AttentionOptions.cache_storage",
       words({"dtype", "int8", "int4", "int3", "int2"}, "standard")},
      {"AttentionOptions.key_storage", words({"rotated", "none"}, "efficient")},
      {"AttentionOptions.max_perplexity_ratio", range(1, 1e6, "auto")},
      {"AttentionOptions.objective", words({"latency", "memory", "balanced"}, "auto")},
      {"TokenIds.ids", range(0, 4095)},
      {"DetokenizeRequest.token_ids", range(0, 4095)},
      {"GenerateRequest.model", words({"", "tiny"})},
      {"ScoreRequest.model", words({"", "tiny"})},
      {"TokenizeRequest.model", words({"", "tiny"})},
      {"DetokenizeRequest.model", words({"", "tiny"})},
      {"GetModelRequest.name", words({"", "tiny"})},
      {"GenerateRequest.max_new_tokens", {.low = 1, .high = 1023, .is_high_costly = true}},
      {"GenerateRequest.stop", {.max_elements = 16, .is_known = false}},
      {"GenerateRequest.stop_token_ids", {.low = 0, .high = 4095, .max_elements = 64}},
      {"GenerateRequest.logprobs", range(0, 20)},
      {"GenerateRequest.prompt_logprobs", range(0, 20)},
      {"GenerateRequest.n", range(1, 8)},
      {"GenerateRequest.ignore_eos", {}},
      {"GenerateRequest.draft", words({"off", "lookup"})},
      {"GenerateRequest.prefix_marks", {.max_elements = 16, .is_known = false}},
      {"ScoreRequest.continuation_texts", {.max_elements = 64, .is_known = false}},
      {"ScoreRequest.continuation_token_ids", {.max_elements = 64, .is_known = false}},
      {"Chat.messages", {.max_elements = 4096, .is_known = false}},
  };
  return rules;
}

Rule RuleOf(const FieldDescriptor& field) {
  const auto it = Rules().find(absl::StrCat(field.containing_type()->name(), ".", field.name()));
  return it == Rules().end() ? Rule{.is_known = false} : it->second;
}

// One thing that is done to a request.
struct Mutation {
  std::string what;
  std::vector<const FieldDescriptor*> path;  // of messages, then the field
  std::string mechanism;
  Expected expected = Expected::kEither;
  std::function<void(Message& parent)> apply;

  void ApplyTo(Message& root) const {
    Message* at = &root;
    for (size_t i = 0; i < path.size(); ++i) {
      const google::protobuf::Reflection& reflection = *at->GetReflection();
      if (!mechanism.empty() && i + 1 == path.size()) {
        reflection.SetString(at, at->GetDescriptor()->FindFieldByName("mechanism"), mechanism);
      }
      if (i + 1 == path.size()) return apply(*at);
      at = path[i]->is_repeated() ? reflection.AddMessage(at, path[i])
                                  : reflection.MutableMessage(at, path[i]);
    }
  }
};

Expected Judge(const Rule& rule, double value) {
  if (!rule.is_known) return Expected::kEither;
  const bool is_above = rule.is_low_open ? value > rule.low : value >= rule.low;
  const bool is_below = rule.is_high_open ? value < rule.high : value <= rule.high;
  return is_above && is_below ? Expected::kAccepted : Expected::kRefused;
}

Expected Judge(const Rule& rule, const std::string& value) {
  if (value.find('\xff') != std::string::npos) return Expected::kRefused;  // not UTF-8
  if (!rule.is_known || rule.words.empty()) return Expected::kEither;
  return rule.words.count(value) > 0 ? Expected::kAccepted : Expected::kRefused;
}

template <typename T>
std::vector<T> Integers(const Rule& rule) {
  using Limits = std::numeric_limits<T>;
  std::set<T> values = {T{0},          T{1},          static_cast<T>(-1),
                        Limits::min(), Limits::max(), static_cast<T>(uint64_t{1} << 63)};
  for (double bound : {rule.low, rule.high}) {
    if (!std::isfinite(bound)) continue;
    for (int by : {-1, 0, 1}) {
      if (rule.is_high_costly && bound == rule.high && by <= 0) continue;
      values.insert(static_cast<T>(bound + by));
    }
  }
  return {values.begin(), values.end()};
}

template <typename T>
std::vector<T> Reals(const Rule& rule) {
  const auto inf = std::numeric_limits<T>::infinity();
  const auto nan = std::numeric_limits<T>::quiet_NaN();
  std::vector<T> values = {-1, T{-0.0f}, T{1e-40f}, nan, inf, -inf, T{0x1p63f}, T{-0x1p63f}};
  for (double bound : {rule.low, rule.high}) {
    if (!std::isfinite(bound)) continue;
    const auto b = static_cast<T>(bound);
    for (T v : {b, std::nextafter(b, -inf), std::nextafter(b, inf), b + 1}) values.push_back(v);
  }
  return values;
}

std::vector<std::string> Texts(const Rule& rule) {
  std::vector<std::string> values(rule.words.begin(), rule.words.end());
  for (const char* v : {"", "\xff", "ok\xff\xfe", "\xc3\xa9", "nobody", "-1", "1e400", "nan", "0",
                        "9223372036854775808", "{", "[[[[", "null", "ATP", " standard"}) {
    values.emplace_back(v);
  }
  values.emplace_back("a\0b", 3);
  for (size_t n : {size_t{129}, size_t{257}, size_t{100'000}}) values.emplace_back(n, 'a');
  return values;
}

// Values of one field; set, or added where the field is repeated.
class FieldMutations {
 public:
  FieldMutations(std::vector<const FieldDescriptor*> path, std::string what)
      : path_(std::move(path)), what_(std::move(what)), rule_(RuleOf(*path_.back())) {}

  std::vector<Mutation> Make() {
    using google::protobuf::Reflection;
    switch (field().cpp_type()) {
      case FieldDescriptor::CPPTYPE_INT32:
        AddAll(Integers<int32_t>(rule_), &Reflection::SetInt32, &Reflection::AddInt32);
        break;
      case FieldDescriptor::CPPTYPE_UINT64:
        AddAll(Integers<uint64_t>(rule_), &Reflection::SetUInt64, &Reflection::AddUInt64);
        break;
      case FieldDescriptor::CPPTYPE_INT64:
        AddAll(Integers<int64_t>(rule_), &Reflection::SetInt64, &Reflection::AddInt64);
        break;
      case FieldDescriptor::CPPTYPE_FLOAT:
        AddAll(Reals<float>(rule_), &Reflection::SetFloat, &Reflection::AddFloat);
        break;
      case FieldDescriptor::CPPTYPE_DOUBLE:
        AddAll(Reals<double>(rule_), &Reflection::SetDouble, &Reflection::AddDouble);
        break;
      case FieldDescriptor::CPPTYPE_BOOL:
        AddAll(std::vector<bool>{false, true}, &Reflection::SetBool, &Reflection::AddBool);
        break;
      case FieldDescriptor::CPPTYPE_STRING:
        AddAll(Texts(rule_), &Reflection::SetString, &Reflection::AddString);
        break;
      case FieldDescriptor::CPPTYPE_ENUM:
        AddAll(std::vector<int>{-1, 0, 1, 99, INT32_MAX}, &Reflection::SetEnumValue,
               &Reflection::AddEnumValue);
        break;
      case FieldDescriptor::CPPTYPE_MESSAGE:
        AddEmpty();
        break;
      default:
        ADD_FAILURE() << what_ << ": a type that this test cannot make";
    }
    return std::move(mutations_);
  }

 private:
  const FieldDescriptor& field() const { return *path_.back(); }

  void Add(const std::string& value, Expected expected, std::function<void(Message&)> apply) {
    // Without its place in an otherwise valid message nothing can be promised of a single value.
    const bool is_nested = path_.size() > 1 && (path_[0]->is_repeated() ||
                                                path_[0]->real_containing_oneof() != nullptr);
    const bool is_unsure = is_nested || rule_.mechanism == "auto";  // which Score does not take
    if (is_unsure && expected == Expected::kAccepted) expected = Expected::kEither;
    mutations_.push_back(
        {absl::StrCat(what_, " = ", value), path_, rule_.mechanism, expected, std::move(apply)});
  }

  template <typename T, typename Set, typename Append>
  void AddAll(const std::vector<T>& values, Set set, Append append) {
    const FieldDescriptor* f = &field();
    for (const T& value : values) {
      Expected expected = Expected::kEither;
      if constexpr (std::is_same_v<T, std::string>) {
        expected = Judge(rule_, value);
      } else {
        expected = Judge(rule_, static_cast<double>(value));
      }
      Add(testing::PrintToString(value).substr(0, 80), expected, [=](Message& parent) {
        const auto& reflection = *parent.GetReflection();
        if (f->is_repeated()) {
          (reflection.*append)(&parent, f, value);
        } else {
          (reflection.*set)(&parent, f, value);
        }
      });
    }
    if (!field().is_repeated()) return;
    const T value = Small<T>();
    for (size_t n : {rule_.max_elements, rule_.max_elements + 1, size_t{100'000}}) {
      const bool is_many = rule_.max_elements > 0 && n > rule_.max_elements;
      Add(absl::StrCat(n, " elements"), is_many ? Expected::kRefused : Expected::kEither,
          [=](Message& parent) {
            for (size_t i = 0; i < n; ++i) (parent.GetReflection()->*append)(&parent, f, value);
          });
    }
  }

  template <typename T>
  static T Small() {
    if constexpr (std::is_same_v<T, std::string>) {
      return "a";
    } else {
      return T{1};
    }
  }

  void AddEmpty() {
    const FieldDescriptor* f = &field();
    for (size_t n : {size_t{1}, rule_.max_elements + 1, size_t{20'000}}) {
      if (n > 1 && !f->is_repeated()) continue;
      const bool is_many = rule_.max_elements > 0 && n > rule_.max_elements && !f->is_map();
      Add(absl::StrCat(n, " empty messages"), is_many ? Expected::kRefused : Expected::kEither,
          [=](Message& parent) {
            const auto& reflection = *parent.GetReflection();
            if (!f->is_repeated()) reflection.MutableMessage(&parent, f);
            for (size_t i = 0; f->is_repeated() && i < n; ++i) reflection.AddMessage(&parent, f);
          });
    }
  }

  const std::vector<const FieldDescriptor*> path_;
  const std::string what_;
  const Rule rule_;
  std::vector<Mutation> mutations_;
};

void AppendMutations(const Descriptor& message, const std::vector<const FieldDescriptor*>& above,
                     const std::string& name, std::vector<Mutation>& out) {
  for (int i = 0; i < message.field_count(); ++i) {
    std::vector<const FieldDescriptor*> path = above;
    path.push_back(message.field(i));
    const std::string what = absl::StrCat(name, ".", message.field(i)->name());
    for (Mutation& m : FieldMutations(path, what).Make()) out.push_back(std::move(m));
    if (const Descriptor* inner = message.field(i)->message_type(); inner != nullptr) {
      AppendMutations(*inner, path, what, out);
    }
  }
}

// A method, a valid request to it and what can be done to that.
struct Target {
  std::string method;
  std::unique_ptr<Message> base;
  std::vector<Mutation> mutations = {};
};

template <typename Request>
Target MakeTarget(const std::string& method, Request base) {
  Target target{method, std::make_unique<Request>(std::move(base))};
  AppendMutations(*Request::descriptor(), {}, Request::descriptor()->name(), target.mutations);
  return target;
}

std::vector<Target> MakeTargets() {
  v1::GenerateRequest generate;
  generate.set_text("Once upon a time");
  generate.set_max_new_tokens(2);
  v1::ScoreRequest score;
  score.set_text("Once upon a");
  score.add_continuation_texts(" time");
  v1::TokenizeRequest tokenize;
  tokenize.set_text("Once upon a time");
  v1::DetokenizeRequest detokenize;
  detokenize.add_token_ids(300);
  std::vector<Target> targets;
  targets.push_back(MakeTarget("/lowkey.v1.Generation/Generate", generate));
  targets.push_back(MakeTarget("/lowkey.v1.Generation/Score", score));
  targets.push_back(MakeTarget("/lowkey.v1.Generation/Tokenize", tokenize));
  targets.push_back(MakeTarget("/lowkey.v1.Generation/Detokenize", detokenize));
  targets.push_back(MakeTarget("/lowkey.v1.Models/GetModel", v1::GetModelRequest()));
  return targets;
}

struct Attempt {
  std::string what, method, bytes;
  Expected expected = Expected::kEither;
};

Attempt MakeAttempt(const Target& target, const std::vector<const Mutation*>& mutations) {
  const std::unique_ptr<Message> request(target.base->New());
  request->CopyFrom(*target.base);
  Attempt attempt{target.method, target.method, {}, Expected::kAccepted};
  for (const Mutation* m : mutations) {
    absl::StrAppend(&attempt.what, " ", m->what);
    m->ApplyTo(*request);
    if (m->expected != Expected::kAccepted && attempt.expected != Expected::kRefused) {
      attempt.expected = m->expected;
    }
  }
  // Two that are each valid may not go together.
  if (mutations.size() > 1 && attempt.expected == Expected::kAccepted) {
    attempt.expected = Expected::kEither;
  }
  request->SerializeToString(&attempt.bytes);
  return attempt;
}

// Every mutation alone first; then pairs, and bytes changed at random, up to `n` attempts.
std::vector<Attempt> MakeAttempts(const std::vector<Target>& targets, size_t n) {
  std::mt19937 rng(11);
  std::vector<Attempt> attempts;
  for (const Target& target : targets) {
    for (const Mutation& m : target.mutations) attempts.push_back(MakeAttempt(target, {&m}));
  }
  std::shuffle(attempts.begin(), attempts.end(), rng);
  while (attempts.size() < n) {
    const Target& target = targets[rng() % targets.size()];
    const Mutation& a = target.mutations[rng() % target.mutations.size()];
    const Mutation& b = target.mutations[rng() % target.mutations.size()];
    Attempt attempt = MakeAttempt(target, {&a, &b});
    // The second may undo what was wrong with the first: members of a oneof, one field twice, a
    // mechanism beside another, a length of 0 beside what allows it.
    if (a.path[0] == b.path[0] || a.path[0]->real_containing_oneof() != nullptr ||
        a.path.back()->name() == "max_new_tokens") {
      attempt.expected = Expected::kEither;
    }
    if (rng() % 4 == 0 && !attempt.bytes.empty()) {
      attempt.bytes[rng() % attempt.bytes.size()] = static_cast<char>(rng());
      attempt.expected = Expected::kEither;
      absl::StrAppend(&attempt.what, ", a byte changed");
    }
    attempts.push_back(std::move(attempt));
  }
  attempts.resize(n);
  return attempts;
}

class BadRequestsTest : public ::testing::Test {
 protected:
  grpc::Status Call(const Attempt& attempt) {
    grpc::Slice slice(attempt.bytes);
    const grpc::ByteBuffer request(&slice, 1);
    grpc::ByteBuffer response;
    grpc::ClientContext context;
    context.set_deadline(absl::ToChronoTime(absl::Now() + absl::Hours(1)));  // sanitizers are slow
    absl::Notification done;
    grpc::Status status;
    generic_.UnaryCall(&context, attempt.method, grpc::StubOptions(), &request, &response,
                       [&](const grpc::Status& s) {
                         status = s;
                         done.Notify();
                       });
    done.WaitForNotification();
    return status;
  }

  void Check(const Attempt& attempt) {
    const grpc::Status status = Call(attempt);
    const auto describe = [&] {
      return absl::StrCat(attempt.what, ": ", status.error_code(), " ", status.error_message());
    };
    if (status.ok()) {
      EXPECT_NE(attempt.expected, Expected::kRefused) << describe();
      ++n_accepted_;
      return;
    }
    EXPECT_NE(attempt.expected, Expected::kAccepted) << describe();
    const std::set<grpc::StatusCode> refusals = {
        grpc::StatusCode::INVALID_ARGUMENT, grpc::StatusCode::OUT_OF_RANGE,
        grpc::StatusCode::NOT_FOUND, grpc::StatusCode::UNIMPLEMENTED,
        grpc::StatusCode::FAILED_PRECONDITION};
    EXPECT_EQ(refusals.count(status.error_code()), 1u) << describe();
    EXPECT_FALSE(status.error_message().empty()) << describe();
    ++n_refused_;
  }

  RunningServer server_;
  grpc::GenericStub generic_{server_.Connect()};
  std::atomic<int> n_accepted_{0}, n_refused_{0};
};

TEST_F(BadRequestsTest, AreRefusedWhileGoodStreamsStayAsTheyAre) {
  const char* count = std::getenv("LOWKEY_BAD_REQUESTS");
  const auto n = static_cast<size_t>(count == nullptr ? 500 : std::atoll(count));
  const std::vector<Target> targets = MakeTargets();
  const std::vector<Attempt> attempts = MakeAttempts(targets, n);
  std::vector<Streamed> alone;
  for (int i = 0; i < kGoodStreams; ++i) alone.push_back(Stream(server_, MixedRequest(i)));
  std::atomic<bool> is_over{false};
  std::vector<std::future<int>> good;
  for (int i = 0; i < kGoodStreams; ++i) {
    good.push_back(std::async(std::launch::async, [&, i] {
      int n_streams = 0;
      do {
        const Streamed streamed = Stream(server_, MixedRequest(i));
        EXPECT_TRUE(streamed.status.ok()) << streamed.status.error_message();
        EXPECT_TRUE(streamed == alone[static_cast<size_t>(i)]) << "stream " << i << " differs";
        ++n_streams;
      } while (!is_over);
      return n_streams;
    }));
  }
  std::atomic<size_t> next{0};
  std::vector<std::future<void>> bad;
  for (int i = 0; i < kBadClients; ++i) {
    bad.push_back(std::async(std::launch::async, [&] {
      for (size_t at = next++; at < attempts.size(); at = next++) Check(attempts[at]);
    }));
  }
  for (auto& client : bad) client.get();
  is_over = true;
  int n_good = 0;
  for (auto& stream : good) n_good += stream.get();
  EXPECT_GT(n_refused_.load(), n_accepted_.load());
  EXPECT_EQ(server_.WaitUntilIdle().cache_bytes_used(), 0);
  std::printf("%zu bad requests: %d refused, %d valid after all; beside them %d good streams\n", n,
              n_refused_.load(), n_accepted_.load(), n_good);
}

}  // namespace
}  // namespace lowkey
