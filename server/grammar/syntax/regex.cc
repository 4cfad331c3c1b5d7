#include "server/grammar/syntax/regex.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/status_macros.h"
#include "server/grammar/syntax/character_reader.h"

namespace lowkey::grammar {
namespace {

CharSet AnyButLineEnds() {
  return CharSet::FromRanges({{'\n', '\n'}, {'\r', '\r'}, {0x2028, 0x2029}}).Complement();
}

class RegexParser {
 public:
  RegexParser(std::string_view text, const std::string& name, Match match)
      : reader_(text, name), match_(match) {}

  absl::StatusOr<ExpressionPtr> Parse() {
    LK_ASSIGN_OR_RETURN(ExpressionPtr whole, ParseBranches(0));
    if (!reader_.at_end()) return reader_.Error("a ) without its (");
    return whole;
  }

 private:
  absl::StatusOr<ExpressionPtr> ParseBranches(int depth) {
    if (depth > kMaxNesting) {
      return reader_.Error(absl::StrCat("groups nested deeper than ", kMaxNesting));
    }
    std::vector<ExpressionPtr> branches;
    do {
      LK_ASSIGN_OR_RETURN(ExpressionPtr branch, ParseBranch(depth));
      branches.push_back(std::move(branch));
    } while (reader_.Take("|"));
    return branches.size() == 1 ? branches[0] : Choice(std::move(branches));
  }

  absl::StatusOr<ExpressionPtr> ParseBranch(int depth) {
    const auto anything = [] { return Repeat(Chars(CharSet::All()), 0, -1); };
    std::vector<ExpressionPtr> parts;
    const bool may_float = depth == 0 && match_ == Match::kSearch;
    const bool begins = depth == 0 && reader_.Take("^");
    if (may_float && !begins) parts.push_back(anything());
    bool ends = false;
    while (!reader_.at_end() && !reader_.Looks("|") && !reader_.Looks(")")) {
      if (depth == 0 && reader_.Take("$")) {
        ends = reader_.at_end() || reader_.Looks("|");
        if (!ends) return reader_.Error("a $ that is not at the end of a branch");
        break;
      }
      LK_ASSIGN_OR_RETURN(ExpressionPtr part, ParseCounted(depth));
      parts.push_back(std::move(part));
    }
    if (may_float && !ends) parts.push_back(anything());
    return Sequence(std::move(parts));
  }

  absl::StatusOr<ExpressionPtr> ParseCounted(int depth) {
    LK_ASSIGN_OR_RETURN(ExpressionPtr atom, ParseAtom(depth));
    LK_ASSIGN_OR_RETURN(const std::optional<CharacterReader::Count> count, reader_.ReadCount());
    if (!count.has_value()) return atom;
    reader_.Take("?");  // the texts are the same, whichever way they are found
    if (reader_.Looks("+")) return reader_.Error("possessive repetition is not supported");
    if (reader_.Looks("*")) return reader_.Error("a repetition of nothing");
    return Repeat(std::move(atom), count->min, count->max);
  }

  absl::StatusOr<ExpressionPtr> ParseAtom(int depth) {
    if (reader_.Looks("(")) return ParseGroup(depth);
    if (reader_.Take("[")) {
      LK_ASSIGN_OR_RETURN(CharSet set, reader_.ReadClass());
      return Chars(std::move(set));
    }
    if (reader_.Take("\\")) {
      LK_ASSIGN_OR_RETURN(CharSet set, reader_.ReadEscape());
      return Chars(std::move(set));
    }
    if (reader_.Take(".")) return Chars(AnyButLineEnds());
    const char c = reader_.peek();
    if (c == '*' || c == '+' || c == '?') return reader_.Error("a repetition of nothing");
    if (c == '^' || c == '$') {
      return reader_.Error(absl::StrCat(std::string(1, c),
                                        " is not supported there, expected it at an end of a "
                                        "branch outside of groups"));
    }
    LK_ASSIGN_OR_RETURN(const uint32_t character, reader_.ReadChar());
    return Chars(CharSet(character, character));
  }

  absl::StatusOr<ExpressionPtr> ParseGroup(int depth) {
    reader_.Drop(1);
    if (reader_.Take("?")) {
      if (reader_.Looks("<=") || reader_.Looks("<!")) {
        return reader_.Error("looking behind is not supported");
      }
      if (reader_.Looks("=") || reader_.Looks("!")) {
        return reader_.Error("looking ahead is not supported");
      }
      if (reader_.Take("<") || reader_.Take("P<")) {
        const size_t end = reader_.rest().find('>');
        if (end == std::string_view::npos) return reader_.Error("a group's name without its >");
        reader_.Drop(end + 1);
      } else if (!reader_.Take(":")) {
        return reader_.Error("this kind of group is not supported, expected (...) or (?:...)");
      }
    }
    LK_ASSIGN_OR_RETURN(ExpressionPtr inside, ParseBranches(depth + 1));
    if (!reader_.Take(")")) return reader_.Error("a ( without its )");
    return inside;
  }

  CharacterReader reader_;
  const Match match_;
};

}  // namespace

absl::StatusOr<ExpressionPtr> ParseRegex(std::string_view text, const std::string& name,
                                         Match match) {
  return RegexParser(text, name, match).Parse();
}

}  // namespace lowkey::grammar
