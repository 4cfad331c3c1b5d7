#include "tokenizer/bpe/bpe_model.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/base/status_macros.h"
#include "tokenizer/bpe/byte_level.h"
#include "tokenizer/utf8.h"

namespace lowkey {
namespace {

// For so few symbols, looking at all pairs for each merge is faster than a queue.
constexpr size_t kMaxShortSymbols = 24;

// No symbol and no rank has this number: there are fewer of both.
constexpr uint32_t kNone = std::numeric_limits<uint32_t>::max();

std::string Quote(const std::string& text) {
  constexpr size_t kMaxShownBytes = 128;
  return absl::StrCat("\"", absl::CHexEscape(text.substr(0, kMaxShownBytes)),
                      text.size() > kMaxShownBytes ? "...\"" : "\"");
}

uint64_t PairKey(int32_t left, int32_t right) {
  return static_cast<uint64_t>(left) << 32 | static_cast<uint32_t>(right);
}

}  // namespace

absl::StatusOr<BpeModel> BpeModel::Create(BpeVocabulary vocabulary) {
  BpeModel model(std::move(vocabulary));
  LK_RETURN_IF_ERROR(model.IndexPieces());
  LK_RETURN_IF_ERROR(model.IndexMerges());
  return model;
}

absl::Status BpeModel::IndexPieces() {
  const std::vector<std::string>& pieces = vocabulary_.pieces;
  if (pieces.empty() || pieces.size() > kMaxPieces) {
    return absl::InvalidArgumentError(
        absl::StrCat("vocab: ", pieces.size(), " pieces, expected 1 to ", kMaxPieces));
  }
  ids_.reserve(pieces.size());
  for (size_t id = 0; id < pieces.size(); ++id) {
    if (pieces[id].empty()) continue;
    if (pieces[id].size() > kMaxPieceBytes) {
      return absl::InvalidArgumentError(absl::StrCat("vocab: ", Quote(pieces[id]), ": ",
                                                     pieces[id].size(), " bytes, expected at most ",
                                                     kMaxPieceBytes));
    }
    if (FindInvalidUtf8(pieces[id]).has_value()) {
      return absl::InvalidArgumentError(
          absl::StrCat("vocab: ", Quote(pieces[id]), ": not UTF-8, expected valid UTF-8"));
    }
    if (!ids_.emplace(pieces[id], static_cast<int32_t>(id)).second) {
      return absl::InvalidArgumentError(
          absl::StrCat("vocab: ", Quote(pieces[id]), " twice, expected once"));
    }
  }
  if (vocabulary_.falls_to_bytes) {
    for (int byte = 0; byte < 256; ++byte)
      byte_ids_[byte] = Find(absl::StrFormat("<0x%02X>", byte));
  }
  if (!vocabulary_.unk_piece.has_value()) return absl::OkStatus();
  unk_id_ = Find(*vocabulary_.unk_piece);
  if (unk_id_.has_value()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("unk_token: ", Quote(*vocabulary_.unk_piece), ", expected a piece of vocab"));
}

absl::Status BpeModel::IndexMerges() {
  const std::vector<MergeRule> merges = std::exchange(vocabulary_.merges, {});
  rules_.reserve(merges.size());
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    const MergeRule& merge = merges[rank];
    const std::optional<int32_t> left = Find(merge.left);
    const std::optional<int32_t> right = Find(merge.right);
    const std::optional<int32_t> whole = Find(merge.left + merge.right);
    if (!left.has_value() || !right.has_value() || !whole.has_value()) {
      return absl::InvalidArgumentError(
          absl::StrCat("merges[", rank, "]: ", Quote(merge.left), " ", Quote(merge.right),
                       ", expected pieces of vocab that join to one"));
    }
    // The last rule counts for a pair that is there twice.
    rules_[PairKey(*left, *right)] = {static_cast<uint32_t>(rank), *whole};
  }
  return absl::OkStatus();
}

std::optional<int32_t> BpeModel::Find(std::string_view piece) const {
  const auto it = ids_.find(piece);
  if (it == ids_.end()) return std::nullopt;
  return it->second;
}

const BpeModel::Rule* BpeModel::FindRule(int32_t left, int32_t right) const {
  const auto it = rules_.find(PairKey(left, right));
  return it == rules_.end() ? nullptr : &it->second;
}

bool BpeModel::CoversAllText(bool is_spelled) const {
  if (unk_id_.has_value() && !vocabulary_.fuses_unk) return true;
  for (int byte = 0; byte < 256; ++byte) {
    std::string spelled;
    if (is_spelled) AppendSpelled(std::string(1, static_cast<char>(byte)), spelled);
    if (is_spelled ? !Find(spelled).has_value() : !byte_ids_[byte].has_value()) return false;
  }
  return true;
}

absl::Status BpeModel::Encode(std::string_view word, Interrupt* interrupt,
                              std::vector<int32_t>& ids) const {
  LK_RETURN_IF_ERROR(Count(interrupt, word.size()));
  if (vocabulary_.ignores_merges) {
    if (const std::optional<int32_t> id = Find(word); id.has_value()) {
      ids.push_back(*id);
      return absl::OkStatus();
    }
  }
  std::vector<int32_t> symbols = Characters(word);
  if (symbols.size() <= kMaxShortSymbols) {
    MergeShort(symbols);
  } else {
    LK_RETURN_IF_ERROR(MergeLong(interrupt, symbols));
  }
  ids.insert(ids.end(), symbols.begin(), symbols.end());
  return absl::OkStatus();
}

std::vector<int32_t> BpeModel::Characters(std::string_view word) const {
  std::vector<int32_t> ids;
  ids.reserve(word.size());
  // The unknown token is written once the next known character comes, and not before bytes, as
  // Hugging Face's does.
  bool owes_unk = false;
  for (std::string_view rest = word; !rest.empty();) {
    const std::string_view character = rest.substr(0, Utf8Length(rest));
    rest.remove_prefix(character.size());
    if (const std::optional<int32_t> id = Find(character); id.has_value()) {
      if (owes_unk) ids.push_back(*unk_id_);
      owes_unk = false;
      ids.push_back(*id);
    } else if (!AppendBytes(character, ids) && unk_id_.has_value()) {
      if (owes_unk && !vocabulary_.fuses_unk) ids.push_back(*unk_id_);
      owes_unk = true;
    }
  }
  if (owes_unk) ids.push_back(*unk_id_);
  return ids;
}

bool BpeModel::AppendBytes(std::string_view character, std::vector<int32_t>& ids) const {
  for (const char c : character) {
    if (!byte_ids_[static_cast<uint8_t>(c)].has_value()) return false;
  }
  for (const char c : character) ids.push_back(*byte_ids_[static_cast<uint8_t>(c)]);
  return true;
}

void BpeModel::MergeShort(std::vector<int32_t>& symbols) const {
  std::array<const Rule*, kMaxShortSymbols> rules = {};  // the rule for each symbol and the next
  for (size_t i = 0; i + 1 < symbols.size(); ++i) rules[i] = FindRule(symbols[i], symbols[i + 1]);
  while (symbols.size() > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < symbols.size(); ++i) {
      if (rules[i] != nullptr && (rules[best] == nullptr || rules[i]->rank < rules[best]->rank)) {
        best = i;
      }
    }
    if (rules[best] == nullptr) return;
    symbols[best] = rules[best]->id;
    symbols.erase(symbols.begin() + static_cast<ptrdiff_t>(best) + 1);
    for (size_t i = best + 1; i < symbols.size(); ++i) rules[i] = rules[i + 1];
    if (best > 0) rules[best - 1] = FindRule(symbols[best - 1], symbols[best]);
    rules[best] = best + 1 < symbols.size() ? FindRule(symbols[best], symbols[best + 1]) : nullptr;
  }
}

// Symbols form a doubly linked list in the order of the word, which may have millions of them.
struct BpeModel::Symbol {
  uint32_t rank = kNone;  // of the rule that merges the symbol with the next
  int32_t id = 0;
  uint32_t previous = kNone, next = kNone;
};

absl::Status BpeModel::MergeLong(Interrupt* interrupt, std::vector<int32_t>& ids) const {
  std::vector<Symbol> symbols(ids.size());
  // The rank is above the place: the lower rank comes first, then the leftmost pair.
  std::vector<uint64_t> queued;
  const auto rule_of = [&](const Symbol& symbol) {
    return symbol.next == kNone ? nullptr : FindRule(symbol.id, symbols[symbol.next].id);
  };
  const auto propose = [&](uint32_t place) {
    const Rule* const rule = rule_of(symbols[place]);
    symbols[place].rank = rule == nullptr ? kNone : rule->rank;
    if (rule == nullptr) return false;
    queued.push_back(static_cast<uint64_t>(rule->rank) << 32 | place);
    return true;
  };
  for (uint32_t i = 0; i < ids.size(); ++i) {
    symbols[i].id = ids[i];
    if (i > 0) symbols[i].previous = i - 1;
    if (i + 1 < ids.size()) symbols[i].next = i + 1;
  }
  for (uint32_t i = 0; i < ids.size(); ++i) propose(i);
  std::make_heap(queued.begin(), queued.end(), std::greater<>());
  const auto propose_later = [&](uint32_t place) {
    if (propose(place)) std::push_heap(queued.begin(), queued.end(), std::greater<>());
  };
  while (!queued.empty()) {
    LK_RETURN_IF_ERROR(Count(interrupt));
    std::pop_heap(queued.begin(), queued.end(), std::greater<>());
    const uint64_t merge = queued.back();
    queued.pop_back();
    const auto place = static_cast<uint32_t>(merge);
    Symbol& left = symbols[place];
    // A merge is stale once either side has been merged with another neighbor.
    if (left.rank != merge >> 32) continue;
    Symbol& right = symbols[left.next];
    left.id = rule_of(left)->id;
    left.next = right.next;
    right = {};
    if (left.next != kNone) symbols[left.next].previous = place;
    if (left.previous != kNone) propose_later(left.previous);
    propose_later(place);
  }
  ids.clear();
  for (uint32_t i = 0; i != kNone; i = symbols[i].next) ids.push_back(symbols[i].id);
  return absl::OkStatus();
}

}  // namespace lowkey
