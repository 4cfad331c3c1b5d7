#ifndef LOWKEY_CLIENT_LINE_EDITOR_H_
#define LOWKEY_CLIENT_LINE_EDITOR_H_

#include <memory>
#include <optional>
#include <string>

namespace lowkey {

// Returns $XDG_STATE_HOME/lowkey/history, else ~/.local/state/lowkey/history, else nothing.
std::string HistoryPath();

// Reads lines that a user types in a terminal (standard input), with editing and a lasting history.
// The prompt goes to standard output, or to standard error if that is no terminal.
class LineEditor {
 public:
  // Reads `history_path`, and writes every further line to it, for this user only; the newest
  // thousand lines are kept. Empty: the history ends with the session.
  LineEditor(std::string prompt, std::string history_path);
  ~LineEditor();

  // Returns the next line; absent at the end of the input (ctrl-D). Ctrl-C drops the typed text,
  // shows `interrupt_hint`, and begins again.
  std::optional<std::string> Read(const std::string& interrupt_hint);

  // Restores the terminal's mode, for a thread that ends the process during Read.
  void RestoreTerminal() const;

 private:
  class Impl;
  const std::unique_ptr<Impl> impl_;
};

}  // namespace lowkey

#endif  // LOWKEY_CLIENT_LINE_EDITOR_H_
