#ifndef LOWKEY_SERVER_GRAMMAR_SYNTAX_CHARACTER_READER_H_
#define LOWKEY_SERVER_GRAMMAR_SYNTAX_CHARACTER_READER_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/grammar/automaton/char_set.h"

namespace lowkey::grammar {

// Reads what regular expressions and grammars have in common: characters, escapes, classes and
// counts. Every error is INVALID_ARGUMENT and begins with `name` and the byte.
class CharacterReader {
 public:
  // `text` must outlive this.
  CharacterReader(std::string_view text, std::string name)
      : whole_(text), rest_(text), name_(std::move(name)) {}

  bool at_end() const { return rest_.empty(); }
  std::string_view rest() const { return rest_; }
  size_t position() const { return whole_.size() - rest_.size(); }
  char peek() const { return rest_.empty() ? '\0' : rest_[0]; }
  bool Looks(std::string_view text) const { return rest_.starts_with(text); }
  // Drops `text` if it comes next.
  bool Take(std::string_view text);
  void Drop(size_t n) { rest_.remove_prefix(n); }

  // Reads one character. The text must not be at its end.
  absl::StatusOr<uint32_t> ReadChar();
  // Reads what follows a backslash: one character, or a set such as \d.
  absl::StatusOr<CharSet> ReadEscape();
  // Reads a class after its "[", the "]" included.
  absl::StatusOr<CharSet> ReadClass();
  // Reads "*", "+", "?" or a count such as {2,3}. Nullopt: none comes next. A "{" that begins no
  // count is none.
  struct Count {
    int min = 0, max = 0;  // -1: without end
  };
  absl::StatusOr<std::optional<Count>> ReadCount();

  absl::Status Error(std::string_view message) const;

 private:
  absl::StatusOr<uint32_t> ReadHex(size_t n_digits);
  absl::StatusOr<CharSet> ReadClassItem(bool is_negated);

  const std::string_view whole_;
  std::string_view rest_;
  const std::string name_;
};

}  // namespace lowkey::grammar

#endif  // LOWKEY_SERVER_GRAMMAR_SYNTAX_CHARACTER_READER_H_
