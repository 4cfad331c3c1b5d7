#ifndef LOWKEY_SERVER_GRAMMAR_VOCABULARY_H_
#define LOWKEY_SERVER_GRAMMAR_VOCABULARY_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "tokenizer/tokenizer.h"

namespace lowkey::grammar {

// White space, as JSON has it.
inline constexpr std::string_view kSpaces = " \t\n\r";

// The byte that begins the spelling of a control piece. No text in UTF-8 has the byte, so that only
// a grammar that asks for a control piece by its name lets the piece through.
inline constexpr char kControlByte = '\xFF';

// The bytes of all tokens as a trie that is laid out flat: nodes in the order in which a walk meets
// them: the nodes below node i are i + 1 .. end(i) - 1. Node 0 is the empty text. Immutable, and
// safe to share between threads.
class Vocabulary {
 public:
  // Tokens of more bytes are left out, and all after so many bytes together: they may never come.
  static constexpr size_t kMaxTokenBytes = 256, kMaxBytes = size_t{16} << 20;

  // A control piece is spelled kControlByte and its name. Other tokens are left out if they decode
  // to no bytes, or to bytes with kControlByte among them. Ids from the tokenizer's vocabulary to
  // vocab_size have no text. `end_tokens` end a text; they are left out of the trie.
  Vocabulary(const Tokenizer& tokenizer, int32_t vocab_size, std::vector<int32_t> end_tokens);
  // The same from bytes alone; an empty text is left out.
  Vocabulary(const std::vector<std::string>& texts, std::vector<int32_t> end_tokens);

  int32_t vocab_size() const { return vocab_size_; }
  const std::vector<int32_t>& end_tokens() const { return end_tokens_; }
  bool IsEnd(int32_t token) const;
  // The token's bytes; empty for a token that was left out.
  std::string_view text(int32_t token) const {
    return std::string_view(bytes_).substr(text_begins_[token],
                                           text_begins_[token + 1] - text_begins_[token]);
  }

  // Returns the token with the most bytes of those that `text` begins with, the lowest of equals.
  std::optional<int32_t> LongestBeginning(std::string_view text) const;

  int32_t n_nodes() const { return static_cast<int32_t>(nodes_.size()) - 1; }
  uint8_t byte(int32_t node) const { return nodes_[node].byte; }
  int depth(int32_t node) const { return nodes_[node].depth; }
  int32_t end(int32_t node) const { return nodes_[node].end; }
  bool is_leaf(int32_t node) const { return nodes_[node].end == node + 1; }
  // The tokens that are spelled exactly so, and those that begin so.
  absl::Span<const int32_t> tokens(int32_t node) const { return TokensOf(node, node + 1); }
  absl::Span<const int32_t> tokens_from(int32_t node) const { return TokensOf(node, end(node)); }
  // The bytes below a node, if there are many of them; nullptr otherwise.
  struct Bits {
    uint64_t words[4] = {};
    int height = 0;  // the most bytes of a path below the node
    bool Has(uint8_t byte) const { return (words[byte >> 6] >> (byte & 63) & 1) != 0; }
    // Returns the byte, if there is one alone; of the bytes that are no white space.
    std::optional<uint8_t> OnlyByte() const;
    std::optional<uint8_t> OnlyByteButSpace() const;
    void Add(uint8_t byte) { words[byte >> 6] |= uint64_t{1} << (byte & 63); }
    bool IsWithin(const Bits& other) const {
      return (words[0] & ~other.words[0]) == 0 && (words[1] & ~other.words[1]) == 0 &&
             (words[2] & ~other.words[2]) == 0 && (words[3] & ~other.words[3]) == 0;
    }
  };
  const Bits* bytes_below(int32_t node) const {
    return nodes_[node].below < 0 ? nullptr : &below_[nodes_[node].below];
  }
  int max_token_bytes() const { return max_token_bytes_; }

 private:
  struct Node {
    uint8_t byte = 0;
    uint16_t depth = 0;
    int32_t end = 0;
    int32_t first_token = 0;  // its place in tokens_
    int32_t below = -1;       // its place in below_
  };

  void Build();
  void AddText(std::string_view text);
  absl::Span<const int32_t> TokensOf(int32_t node, int32_t end) const {
    const int32_t begin = nodes_[node].first_token;
    return {tokens_.data() + begin, static_cast<size_t>(nodes_[end].first_token - begin)};
  }

  int32_t vocab_size_ = 0;
  std::vector<int32_t> end_tokens_;
  std::string bytes_;
  std::vector<uint32_t> text_begins_ = {0};
  std::vector<Node> nodes_;  // and one past the end
  std::vector<int32_t> tokens_;
  std::vector<Bits> below_;
  int max_token_bytes_ = 0;
};

}  // namespace lowkey::grammar

#endif  // LOWKEY_SERVER_GRAMMAR_VOCABULARY_H_
