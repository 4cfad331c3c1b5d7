#include "server/grammar/stacks.h"

#include <algorithm>

namespace lowkey::grammar {
namespace {

// Nodes that one Expand may visit.
constexpr size_t kMaxVisited = 1024;
// Two equal nodes are found to be one among so many of the latest.
constexpr size_t kLookBack = 256;

}  // namespace

void Stacks::Clear(int n_context_frames) {
  nodes_.clear();
  n_context_frames_ = n_context_frames;
  deepest_ = 0;
  is_overfull_ = false;
  n_steps_ = 0;
}

int32_t Stacks::Add(const Stack& stack) {
  int32_t node = kContext;
  for (const Frame& frame : stack) node = Make(node, frame.state, frame.count);
  return node;
}

Stack Stacks::FramesOf(int32_t node) const {
  Stack stack;
  for (; node != kContext; node = nodes_[node].parent) {
    stack.push_back({nodes_[node].state, nodes_[node].count});
  }
  std::reverse(stack.begin(), stack.end());
  return stack;
}

int Stacks::RoomOf(int32_t node) const {
  const Grammar::Rule& rule = grammar_.rule(grammar_.state(nodes_[node].state).rule);
  return rule.most > kMaxCount ? kMaxCount : rule.most - nodes_[node].count;
}

int32_t Stacks::MakeNew(int32_t parent, int32_t state, int32_t count) {
  const int32_t depth = parent == kContext ? n_context_frames_ : nodes_[parent].depth + 1;
  const int needed = depth + grammar_.state(state).depth;
  deepest_ = std::max(deepest_, needed - n_context_frames_ + 1);
  if (needed >= kMaxDepth) return kContext;
  nodes_.push_back({state, count, parent, depth});
  return static_cast<int32_t>(nodes_.size()) - 1;
}

int32_t Stacks::Make(int32_t parent, int32_t state, int32_t count) {
  const auto n = static_cast<int32_t>(nodes_.size());
  const int32_t oldest = std::max<int32_t>(0, n - static_cast<int32_t>(kLookBack));
  for (int32_t i = n - 1; i >= oldest; --i) {
    const Node& node = nodes_[i];
    if (node.state == state && node.count == count && node.parent == parent) return i;
  }
  return MakeNew(parent, state, count);
}

bool Stacks::IsOpen(const Node& node, uint8_t flags) const {
  if ((flags & (kBelowMost | kFromLeast)) == 0) return true;
  const Grammar::Rule& rule = grammar_.rule(grammar_.state(node.state).rule);
  if ((flags & kBelowMost) != 0 && node.count >= rule.most) return false;
  return (flags & kFromLeast) == 0 || node.count >= rule.least;
}

// A counter without upper bound stays at the lower one: what is past it makes no difference.
int32_t Stacks::CountAfter(const Node& node, uint8_t flags) const {
  if ((flags & kCounts) == 0) return node.count;
  const Grammar::Rule& rule = grammar_.rule(grammar_.state(node.state).rule);
  if (rule.most > kMaxCount && node.count >= rule.least) return node.count;
  return node.count + 1;
}

void Stacks::Visit(int32_t node) {
  if (std::find(visited_.begin(), visited_.end(), node) != visited_.end()) return;
  if (visited_.size() >= kMaxVisited) {
    is_overfull_ = true;
    return;
  }
  visited_.push_back(node);
}

void Stacks::FollowCalls(int32_t index) {
  const Grammar::State& state = grammar_.state(nodes_[index].state);
  for (const CallEdge& call : grammar_.calls(state)) {
    const Node node = nodes_[index];  // a copy: Make moves nodes
    if (!IsOpen(node, call.flags)) continue;
    int32_t below = node.parent;
    if (!grammar_.state(call.target).is_end()) {
      below = Make(node.parent, call.target, CountAfter(node, call.flags));
      if (below == kContext) continue;
    }
    const int32_t called = Make(below, grammar_.rule(call.rule).start, 0);
    if (called != kContext) Visit(called);
  }
}

bool Stacks::Expand(int32_t node, std::vector<int32_t>& ready) {
  const Grammar::State& top = grammar_.state(nodes_[node].state);
  if (top.n_calls == 0 && !top.accepts) {
    ready.push_back(node);
    ++n_steps_;
    return false;
  }
  bool reaches_context = false;
  visited_.clear();
  Visit(node);
  for (size_t i = 0; i < visited_.size(); ++i) {
    const int32_t at = visited_[i];
    const Grammar::State& state = grammar_.state(nodes_[at].state);
    if (state.n_bytes > 0 && std::find(ready.begin(), ready.end(), at) == ready.end()) {
      if (ready.size() < kMaxOpen) {
        ready.push_back(at);
      } else {
        is_overfull_ = true;
      }
    }
    if (state.n_calls > 0) FollowCalls(at);
    if (!state.accepts) continue;
    const int32_t parent = nodes_[at].parent;
    if (parent == kContext) {
      reaches_context = true;
    } else {
      Visit(parent);
    }
  }
  n_steps_ += static_cast<int64_t>(visited_.size());
  return reaches_context;
}

void Stacks::Move(int32_t ready, uint8_t byte, std::vector<int32_t>& moved) {
  ++n_steps_;
  const Node node = nodes_[ready];
  for (const ByteEdge& edge : grammar_.bytes(grammar_.state(node.state))) {
    if (byte > edge.last) continue;
    if (byte < edge.first) return;
    if (edge.flags == kPlain && edge.target == node.state) {
      moved.push_back(ready);
      return;
    }
    if (!IsOpen(node, edge.flags)) return;
    const int32_t count = CountAfter(node, edge.flags);
    // A single stack has no equal.
    const int32_t next = moved.empty() ? MakeNew(node.parent, edge.target, count)
                                       : Make(node.parent, edge.target, count);
    if (next == kContext) return;
    if (moved.empty() || std::find(moved.begin(), moved.end(), next) == moved.end()) {
      moved.push_back(next);
    }
    return;
  }
}

}  // namespace lowkey::grammar
