#ifndef LOWKEY_ENGINE_ATTENTION_SEQUENCE_H_
#define LOWKEY_ENGINE_ATTENTION_SEQUENCE_H_

#include <algorithm>
#include <any>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "engine/base/status_macros.h"
#include "engine/cache/cache.h"
#include "engine/config/attention_options.h"

namespace lowkey {

using SlabVisitor = absl::FunctionRef<void(const Slab&)>;

// Calls `visit` for each slab of a list; entries may be null.
inline void VisitAll(const std::vector<std::shared_ptr<Slab>>& slabs, SlabVisitor visit) {
  for (const auto& slab : slabs) {
    if (slab != nullptr) visit(*slab);
  }
}

// Holds what only one mechanism knows about a sequence, as a struct of that mechanism's room. A
// copy holds a copy of the struct, whose slabs are shared.
//
// The struct T is copyable, has a default, and void VisitSlabs(SlabVisitor) const.
class MechanismState {
 public:
  bool is_empty() const { return !held_.has_value(); }
  // The struct; a new one in an empty state. Sequences of one mechanism always ask for one T.
  template <typename T>
  T& As() {
    if (is_empty()) {
      held_.emplace<T>();
      visit_slabs_ = [](const std::any& held, SlabVisitor visit) {
        std::any_cast<const T&>(held).VisitSlabs(visit);
      };
    }
    return const_cast<T&>(std::as_const(*this).template As<T>());
  }
  // The struct; its default in an empty state.
  template <typename T>
  const T& As() const {
    static const T* const kDefault = new T();
    if (is_empty()) return *kDefault;
    const T* held = std::any_cast<T>(&held_);
    LK_CHECK(held != nullptr);
    return *held;
  }
  void VisitSlabs(SlabVisitor visit) const {
    if (!is_empty()) visit_slabs_(held_, visit);
  }

 private:
  std::any held_;
  void (*visit_slabs_)(const std::any&, SlabVisitor) = nullptr;
};

// The memory of one sequence. Its mechanism fills it; dropping it frees everything; a copy shares
// pages and slabs, which are copied before they are written.
struct SequenceCache {
  AttentionOptions options;
  int64_t n_prompt_tokens = 0;    // rows before it are the prompt's
  int64_t n_tokens = 0;           // rows that every layer has seen
  int64_t n_final_tokens = 0;     // the most rows that the sequence can come to; 0: unknown
  std::vector<PageHandle> pages;  // page i holds positions [64 i, 64 i + 64); empty once freed
  MechanismState state;
};

// Consecutive rows of one sequence in a step: positions first_position .. + n_rows - 1, which
// continue the sequence, are rows first_row .. of its weight set's in the step. The sequence may
// not keep the last n_drafts of them (AttentionMechanism::RevocableRows).
struct Segment {
  SequenceCache* sequence = nullptr;
  int64_t first_position = 0;
  int64_t n_rows = 0;
  int64_t first_row = 0;
  int64_t n_drafts = 0;
};

// Returns how many of n_rows rows from position first_position on can be computed such that none
// but the first ends a run of `period` tokens: an answer to RevocableRows where such an end cannot
// be taken back.
inline int64_t RowsToNextEnd(int64_t first_position, int64_t n_rows, int64_t period) {
  const int64_t next_end = ((first_position + 1) / period + 1) * period;
  return std::min(n_rows, std::max<int64_t>(1, next_end - 1 - first_position));
}

// The first n_pages of a sequence, for AttentionMechanism::Prefix, those before first_page left
// empty; nullopt when one of the others is gone.
template <typename Handle>
std::optional<std::vector<Handle>> FirstPages(const std::vector<Handle>& pages, int64_t first_page,
                                              int64_t n_pages) {
  if (static_cast<int64_t>(pages.size()) < n_pages) return std::nullopt;
  std::vector<Handle> first(static_cast<size_t>(n_pages));
  for (int64_t i = first_page; i < n_pages; ++i) {
    if (!pages[i]) return std::nullopt;
    first[i] = pages[i];
  }
  return first;
}

// Appends the elements [begin, end) of a sequence's list, for AttentionMechanism::AppendPart.
template <typename Element>
void AppendElements(const std::vector<Element>& from, int64_t begin, int64_t end,
                    std::vector<Element>& to) {
  LK_CHECK(begin <= end && end <= static_cast<int64_t>(from.size()));
  to.insert(to.end(), from.begin() + begin, from.begin() + end);
}

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_ATTENTION_SEQUENCE_H_
