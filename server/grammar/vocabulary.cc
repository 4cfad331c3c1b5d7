#include "server/grammar/vocabulary.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace lowkey::grammar {
namespace {

// Smaller subtrees are walked faster than compared.
constexpr int32_t kManyNodes = 4;

std::string SpellingOf(const Tokenizer& tokenizer, int32_t id) {
  if (tokenizer.IsControl(id)) {
    const std::string piece(tokenizer.IdToPiece(id).value_or(std::string_view()));
    return piece.empty() ? piece : kControlByte + piece;
  }
  const std::string_view bytes = tokenizer.BytesOf(id).value_or(std::string_view());
  return bytes.find(kControlByte) == std::string_view::npos ? std::string(bytes) : std::string();
}

}  // namespace

Vocabulary::Vocabulary(const Tokenizer& tokenizer, int32_t vocab_size,
                       std::vector<int32_t> end_tokens)
    : vocab_size_(vocab_size), end_tokens_(std::move(end_tokens)) {
  for (int32_t id = 0; id < vocab_size; ++id) {
    AddText(IsEnd(id) ? std::string() : SpellingOf(tokenizer, id));
  }
  Build();
}

Vocabulary::Vocabulary(const std::vector<std::string>& texts, std::vector<int32_t> end_tokens)
    : vocab_size_(static_cast<int32_t>(texts.size())), end_tokens_(std::move(end_tokens)) {
  for (int32_t id = 0; id < vocab_size_; ++id) {
    AddText(IsEnd(id) ? std::string_view() : texts[static_cast<size_t>(id)]);
  }
  Build();
}

bool Vocabulary::IsEnd(int32_t token) const {
  return std::find(end_tokens_.begin(), end_tokens_.end(), token) != end_tokens_.end();
}

std::optional<uint8_t> Vocabulary::Bits::OnlyByte() const {
  std::optional<uint8_t> only;
  for (int w = 0; w < 4; ++w) {
    if (words[w] == 0) continue;
    if (only.has_value() || !std::has_single_bit(words[w])) return std::nullopt;
    only = static_cast<uint8_t>(64 * w + std::countr_zero(words[w]));
  }
  return only;
}

std::optional<uint8_t> Vocabulary::Bits::OnlyByteButSpace() const {
  Bits others = *this;
  for (const char space : kSpaces) {
    others.words[0] &= ~(uint64_t{1} << static_cast<unsigned char>(space));
  }
  return others.OnlyByte();
}

std::optional<int32_t> Vocabulary::LongestBeginning(std::string_view text) const {
  std::optional<int32_t> longest;
  int32_t at = 0;
  for (const char c : text) {
    int32_t next = at + 1;
    while (next < end(at) && byte(next) != static_cast<uint8_t>(c)) next = end(next);
    if (next >= end(at)) break;
    at = next;
    if (!tokens(at).empty()) longest = tokens(at)[0];
  }
  return longest;
}

void Vocabulary::AddText(std::string_view text) {
  if (text.size() <= kMaxTokenBytes && bytes_.size() + text.size() <= kMaxBytes) {
    bytes_.append(text);
    max_token_bytes_ = std::max(max_token_bytes_, static_cast<int>(text.size()));
  }
  text_begins_.push_back(static_cast<uint32_t>(bytes_.size()));
}

void Vocabulary::Build() {
  for (int32_t id = 0; id < vocab_size_; ++id) {
    if (!text(id).empty()) tokens_.push_back(id);
  }
  std::sort(tokens_.begin(), tokens_.end(), [this](int32_t a, int32_t b) {
    return text(a) != text(b) ? text(a) < text(b) : a < b;
  });
  nodes_.emplace_back();
  std::vector<int32_t> path = {0};  // the nodes of the last text
  std::string_view last;
  const auto close = [&](size_t depth) {
    for (; path.size() > depth + 1; path.pop_back()) {
      nodes_[path.back()].end = static_cast<int32_t>(nodes_.size());
    }
  };
  for (size_t t = 0; t < tokens_.size(); ++t) {
    const std::string_view next = text(tokens_[t]);
    const auto [a, b] = std::mismatch(last.begin(), last.end(), next.begin(), next.end());
    const auto shared = static_cast<size_t>(b - next.begin());
    close(shared);
    for (size_t d = shared; d < next.size(); ++d) {
      path.push_back(static_cast<int32_t>(nodes_.size()));
      nodes_.push_back({static_cast<uint8_t>(next[d]), static_cast<uint16_t>(d + 1), 0,
                        static_cast<int32_t>(t), -1});
    }
    last = next;
  }
  close(0);
  nodes_[0].end = static_cast<int32_t>(nodes_.size());
  nodes_.push_back({0, 0, 0, static_cast<int32_t>(tokens_.size()), -1});
  for (int32_t i = 0; i < n_nodes(); ++i) {
    if (end(i) - i <= kManyNodes) continue;
    nodes_[i].below = static_cast<int32_t>(below_.size());
    below_.emplace_back();
    Bits& below = below_.back();
    for (int32_t j = i + 1; j < end(i); ++j) {
      below.Add(byte(j));
      below.height = std::max(below.height, depth(j) - depth(i));
    }
  }
}

}  // namespace lowkey::grammar
