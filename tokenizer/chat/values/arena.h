#ifndef LOWKEY_TOKENIZER_CHAT_VALUES_ARENA_H_
#define LOWKEY_TOKENIZER_CHAT_VALUES_ARENA_H_

#include <cstddef>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tokenizer/chat/values/value.h"

namespace lowkey::jinja {

// What one rendering may cost.
struct Limits {
  size_t max_steps = 1'000'000;               // expressions and statements evaluated
  size_t max_work_bytes = size_t{128} << 20;  // read or made by all of them together
  size_t max_output_bytes = size_t{4} << 20;
  int max_depth = 200;       // of evaluation: nested expressions, statements and macro calls
  int max_value_depth = 64;  // of lists and dicts in each other
};

// Owns what one rendering makes, until the end, and keeps its accounts. All errors are
// RESOURCE_EXHAUSTED and name the limit. Not thread-safe.
class Arena {
 public:
  explicit Arena(const Limits& limits) : limits_(limits) {}
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // To be called before the work, or the allocation, is done.
  absl::Status ChargeStep();
  absl::Status ChargeBytes(size_t n_bytes);

  // Charge for what they take.
  absl::StatusOr<Value> MakeText(Text text);
  absl::StatusOr<Value> MakeText(std::string template_bytes) {
    return MakeText(Text(std::move(template_bytes)));
  }
  absl::StatusOr<Value> MakeList(std::vector<Value> items) {
    return MakeSequence({std::move(items)});
  }
  absl::StatusOr<Value> MakeTuple(std::vector<Value> items) {
    return MakeSequence({std::move(items), /*is_tuple=*/true});
  }
  absl::StatusOr<Value> MakeSequence(List list);
  absl::StatusOr<Value> MakeDict(Dict dict);
  absl::StatusOr<Namespace*> MakeNamespace();
  absl::StatusOr<Value> MakeMethod(Value receiver, std::string_view name);

  const Limits& limits() const { return limits_; }

 private:
  absl::Status CheckDepth(int depth) const;

  const Limits limits_;
  size_t n_steps_ = 0;
  size_t n_work_bytes_ = 0;
  // Addresses must not change.
  std::deque<Text> texts_;
  std::deque<List> lists_;
  std::deque<Dict> dicts_;
  std::deque<Namespace> namespaces_;
  std::deque<Method> methods_;
};

}  // namespace lowkey::jinja

#endif  // LOWKEY_TOKENIZER_CHAT_VALUES_ARENA_H_
