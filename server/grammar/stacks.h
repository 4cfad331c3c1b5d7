#ifndef LOWKEY_SERVER_GRAMMAR_STACKS_H_
#define LOWKEY_SERVER_GRAMMAR_STACKS_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "server/grammar/automaton/grammar.h"

namespace lowkey::grammar {

// A rule that has begun: the state that it is in, or returns to once the frame above is done, and
// its counter.
struct Frame {
  int32_t state = 0;
  int32_t count = 0;
  friend bool operator==(const Frame&, const Frame&) = default;
  template <typename H>
  friend H AbslHashValue(H h, const Frame& frame) {
    return H::combine(std::move(h), frame.state, frame.count);
  }
};

// The outermost rule comes first.
using Stack = std::vector<Frame>;

// Stacks that bytes move on, as lists that share their lower frames. A node is a frame on top of
// another node or on the context, of which nothing but its number of frames is known. Not
// thread-safe.
class Stacks {
 public:
  static constexpr int32_t kContext = -1;
  // The most stacks that may be open at once within a token.
  static constexpr size_t kMaxOpen = 64;

  explicit Stacks(const Grammar& grammar) : grammar_(grammar) {}

  // Forgets all nodes. The context has this many frames.
  void Clear(int n_context_frames);
  // Returns the stack's node on the context.
  int32_t Add(const Stack& stack);
  // Returns the frames of a node, without the context's.
  Stack FramesOf(int32_t node) const;

  // Nodes made after a mark are forgotten when it is handed to Rewind.
  size_t mark() const { return nodes_.size(); }
  void Rewind(size_t mark) { nodes_.resize(mark); }

  // Follows calls and returns until a byte is needed. Appends the nodes that have byte edges
  // to `ready`, each once. Returns whether the context is reached: the rule above it may be done.
  bool Expand(int32_t node, std::vector<int32_t>& ready);
  // Appends what the byte makes of a ready node, if anything.
  void Move(int32_t ready, uint8_t byte, std::vector<int32_t>& moved);

  const Grammar& grammar() const { return grammar_; }
  int32_t state_of(int32_t node) const { return nodes_[node].state; }
  // Returns how often the node's counter may still be raised.
  int RoomOf(int32_t node) const;
  // Returns whether more stacks than kMaxOpen were met since Clear: what was appended then is not
  // all.
  bool is_overfull() const { return is_overfull_; }
  // The most frames, counted from the context, that a stack met since Clear needs to be finished.
  int deepest() const { return deepest_; }
  // Units of work since Clear.
  int64_t n_steps() const { return n_steps_; }

 private:
  struct Node {
    int32_t state, count, parent, depth;  // depth: frames below, the context's included
  };

  // Returns the node, or kContext if it nests too deeply to be finished.
  int32_t Make(int32_t parent, int32_t state, int32_t count);
  // The same without looking whether the node is there already.
  int32_t MakeNew(int32_t parent, int32_t state, int32_t count);
  bool IsOpen(const Node& node, uint8_t flags) const;
  int32_t CountAfter(const Node& node, uint8_t flags) const;
  void FollowCalls(int32_t node);
  void Visit(int32_t node);

  const Grammar& grammar_;
  std::vector<Node> nodes_;
  std::vector<int32_t> visited_;  // of one Expand, in order
  int n_context_frames_ = 0, deepest_ = 0;
  bool is_overfull_ = false;
  int64_t n_steps_ = 0;
};

}  // namespace lowkey::grammar

#endif  // LOWKEY_SERVER_GRAMMAR_STACKS_H_
