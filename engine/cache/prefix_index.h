#ifndef LOWKEY_ENGINE_CACHE_PREFIX_INDEX_H_
#define LOWKEY_ENGINE_CACHE_PREFIX_INDEX_H_

#include <algorithm>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "engine/cache/cache.h"

namespace lowkey {

// Holds values at prefixes of token sequences, separately for each key: a tree whose edges are
// whole pages of tokens, compared token by token. The value used longest ago is dropped first,
// leaves before the nodes that lead to them. Key has operator==. One thread.
template <typename Key, typename Value>
class PrefixIndex {
 public:
  // The most keys; the trees of further keys make room by dropping values.
  static constexpr size_t kMaxKeys = 256;

  struct Match {
    int64_t n_tokens = 0;  // a multiple of kPageTokens; 0: nothing was found
    const Value* value = nullptr;
  };

  // Finds the longest prefix of tokens, at most max_tokens long, that has a value. The value counts
  // as used, and stays in place until the next call that is not const.
  Match Find(const Key& key, absl::Span<const int32_t> tokens, int64_t max_tokens) {
    Match match;
    Node* at = FindRoot(key);
    Node* deepest = nullptr;
    for (int64_t n = kPageTokens;
         at != nullptr && n <= std::min<int64_t>(max_tokens, tokens.size()); n += kPageTokens) {
      const auto child = at->children.find(Page(tokens, n));
      if (child == at->children.end()) break;
      at = child->second.get();
      if (!at->value.has_value()) continue;
      deepest = at;
      match = {n, &*at->value};
    }
    if (deepest != nullptr) Touch(deepest);
    return match;
  }

  // Gives every prefix of whole pages that has no value the value that `make` returns for its
  // length in tokens, if any. `before` is the value of the longest shorter prefix that has one,
  // which outlives the one that is made (but for the index's own end); null: there is none. All of
  // these prefixes count as used. When `make` throws, the values that it made before stay.
  void Add(const Key& key, absl::Span<const int32_t> tokens,
           absl::FunctionRef<std::optional<Value>(int64_t n_tokens, const Value* before)> make) {
    Node* at = FindRoot(key);
    if (at == nullptr) at = MakeRoot(key);
    const absl::Cleanup end = [&] {
      Touch(at);
      DropBarren(at);
    };
    const Value* before = nullptr;
    for (int64_t n = kPageTokens; n <= static_cast<int64_t>(tokens.size()); n += kPageTokens) {
      std::vector<int32_t> page = Page(tokens, n);
      const auto edge = at->children.find(page);
      at = edge != at->children.end() ? edge->second.get() : AddChild(at, std::move(page));
      if (!at->value.has_value()) {
        at->value = make(n, before);
        n_values_ += at->value.has_value() ? 1 : 0;
      }
      if (at->value.has_value()) before = &*at->value;
    }
  }

  // Drops one value; false when there is none.
  bool DropOldest() {
    if (recent_.empty()) return false;
    Node* leaf = recent_.back();
    leaf->value.reset();  // every leaf has a value
    --n_values_;
    DropBarren(leaf);
    return true;
  }

  int64_t n_values() const { return n_values_; }

 private:
  struct Node {
    Node* parent = nullptr;                        // null: a root
    const std::vector<int32_t>* tokens = nullptr;  // the edge from the parent
    std::map<std::vector<int32_t>, std::unique_ptr<Node>> children;
    std::optional<Value> value;
    typename std::list<Node*>::iterator place;  // unset in roots
  };
  struct Root {
    Key key;
    Node node;
  };

  static std::vector<int32_t> Page(absl::Span<const int32_t> tokens, int64_t end) {
    return {tokens.begin() + (end - kPageTokens), tokens.begin() + end};
  }

  Node* FindRoot(const Key& key) {
    for (Root& root : roots_) {
      if (root.key == key) return &root.node;
    }
    return nullptr;
  }

  Node* MakeRoot(const Key& key) {
    while (roots_.size() >= kMaxKeys && DropOldest()) {
    }
    roots_.push_back({key, {}});
    return &roots_.back().node;
  }

  Node* AddChild(Node* parent, std::vector<int32_t> page) {
    auto owned = std::make_unique<Node>();
    Node* const child = owned.get();
    std::list<Node*> link = {child};  // after this only the tree's own allocation can fail
    const auto edge = parent->children.emplace(std::move(page), std::move(owned)).first;
    child->parent = parent;
    child->tokens = &edge->first;
    child->place = link.begin();
    recent_.splice(recent_.end(), link);
    return child;
  }

  // A node is always used after those below it, so the last of the list is a leaf.
  void Touch(Node* node) {
    for (; node->parent != nullptr; node = node->parent) {
      recent_.splice(recent_.begin(), recent_, node->place);
    }
  }

  // Removes the node, and the nodes that led to it alone, if it has no value.
  void DropBarren(Node* node) {
    while (node->parent != nullptr && node->children.empty() && !node->value.has_value()) {
      Node* const parent = node->parent;
      recent_.erase(node->place);
      parent->children.erase(parent->children.find(*node->tokens));
      node = parent;
    }
    if (node->parent != nullptr || !node->children.empty()) return;
    roots_.remove_if([node](const Root& root) { return &root.node == node; });
  }

  std::list<Root> roots_;
  std::list<Node*> recent_;  // last used first
  int64_t n_values_ = 0;
};

}  // namespace lowkey

#endif  // LOWKEY_ENGINE_CACHE_PREFIX_INDEX_H_
