#ifndef LOWKEY_TESTS_ENGINE_RUNTIME_THROWING_ATTENTION_H_
#define LOWKEY_TESTS_ENGINE_RUNTIME_THROWING_ATTENTION_H_

#include <atomic>
#include <cstdint>
#include <functional>

namespace lowkey {

// In programs that link throwing_attention.cc every mechanism throws what it is told to, where it
// is told to, for sequences whose prompt has so many tokens; else it is what it always is.
struct AttentionFault {
  enum class Where { kNowhere, kPlan, kAttend, kWorker, kAdvance, kPrefix, kReport };

  std::atomic<Where> where{Where::kNowhere};
  std::atomic<int64_t> n_prompt_tokens{0};
  std::atomic<int64_t> from_token{0};  // in the step that computes this row or a later one
  std::atomic<int64_t> n_times{0};     // that it throws, then no more
  std::function<void()> throws;        // set while nothing is computed

  std::atomic<int64_t> n_thrown{0};
};
AttentionFault& TheFault();

}  // namespace lowkey

#endif  // LOWKEY_TESTS_ENGINE_RUNTIME_THROWING_ATTENTION_H_
