#include "client/line_editor.h"

#include <histedit.h>
#include <langinfo.h>
#include <termios.h>

#include <clocale>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <utility>

#include "server/config/terminal/terminal.h"

namespace lowkey {
namespace {

namespace fs = std::filesystem;

constexpr int kMaxHistoryLines = 1000;
constexpr char kInterrupt[] = "lowkey-interrupt";

// libedit reads characters as the locale says; a C locale would show UTF-8 byte by byte.
void UseUtf8() {
  std::setlocale(LC_CTYPE, "");
  if (std::string_view(nl_langinfo(CODESET)) != "UTF-8") std::setlocale(LC_CTYPE, "C.UTF-8");
}

std::string Variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

void MakeFolderOf(const std::string& path) {
  const fs::path folder = fs::path(path).parent_path();
  std::error_code error;  // without the folder there is no history, which is no reason to stop
  if (fs::create_directories(folder, error)) {
    fs::permissions(folder, fs::perms::owner_all, error);
  }
}

}  // namespace

std::string HistoryPath() {
  const std::string state = Variable("XDG_STATE_HOME"), home = Variable("HOME");
  // The specification wants relative paths ignored.
  if (state.starts_with('/')) return state + "/lowkey/history";
  return home.empty() ? "" : home + "/.local/state/lowkey/history";
}

class LineEditor::Impl {
 public:
  Impl(std::string prompt, std::string history_path)
      : prompt_(std::move(prompt)), history_path_(std::move(history_path)) {
    has_terminal_ = tcgetattr(fileno(stdin), &terminal_) == 0;
    UseUtf8();
    history_ = history_init();
    editor_ = el_init("lowkey", stdin, IsTerminal(stdout) ? stdout : stderr, stderr);
    HistEvent event;
    history(history_, &event, H_SETSIZE, kMaxHistoryLines);
    history(history_, &event, H_SETUNIQUE, 1);
    if (!history_path_.empty()) history(history_, &event, H_LOAD, history_path_.c_str());
    el_set(editor_, EL_CLIENTDATA, this);
    el_set(editor_, EL_PROMPT, &Impl::Prompt);
    el_set(editor_, EL_EDITOR, "emacs");
    el_set(editor_, EL_SIGNAL, 1);  // the terminal's size, and its mode across ctrl-Z
    el_set(editor_, EL_HIST, history, history_);
    // While a line is typed ctrl-C is a key like others.
    el_set(editor_, EL_SETTY, "-d", "-intr", nullptr);
    el_set(editor_, EL_ADDFN, kInterrupt, "drop the line", &Impl::OnInterrupt);
    el_set(editor_, EL_BIND, "^C", kInterrupt, nullptr);
  }

  ~Impl() {
    el_end(editor_);
    history_end(history_);
  }

  std::optional<std::string> Read(const std::string& interrupt_hint) {
    while (true) {
      is_interrupted_ = false;
      int n = 0;
      // Before the prompt, so that no key is taken as the terminal would take it.
      el_set(editor_, EL_PREP_TERM, 1);
      const char* text = el_gets(editor_, &n);
      if (text != nullptr && n > 0) return Keep({text, static_cast<size_t>(n)});
      std::fputs("\n", stderr);
      if (!is_interrupted_) return std::nullopt;
      std::fprintf(stderr, "%s\n", interrupt_hint.c_str());
    }
  }

  void RestoreTerminal() const {
    if (has_terminal_) tcsetattr(fileno(stdin), TCSANOW, &terminal_);
  }

 private:
  static Impl& Of(EditLine* editor) {
    void* data = nullptr;
    el_get(editor, EL_CLIENTDATA, &data);
    return *static_cast<Impl*>(data);
  }

  static char* Prompt(EditLine* editor) { return Of(editor).prompt_.data(); }

  static unsigned char OnInterrupt(EditLine* editor, int) {
    Of(editor).is_interrupted_ = true;
    return CC_EOF;
  }

  std::string Keep(std::string line) const {
    while (line.ends_with('\n') || line.ends_with('\r')) line.pop_back();
    if (line.find_first_not_of(" \t") == std::string::npos) return line;
    HistEvent event;
    history(history_, &event, H_ENTER, line.c_str());
    if (!history_path_.empty()) {
      MakeFolderOf(history_path_);
      history(history_, &event, H_SAVE, history_path_.c_str());
    }
    return line;
  }

  std::string prompt_;
  const std::string history_path_;
  termios terminal_{};
  bool has_terminal_ = false, is_interrupted_ = false;
  History* history_ = nullptr;
  EditLine* editor_ = nullptr;
};

LineEditor::LineEditor(std::string prompt, std::string history_path)
    : impl_(std::make_unique<Impl>(std::move(prompt), std::move(history_path))) {}
LineEditor::~LineEditor() = default;

std::optional<std::string> LineEditor::Read(const std::string& interrupt_hint) {
  return impl_->Read(interrupt_hint);
}

void LineEditor::RestoreTerminal() const { impl_->RestoreTerminal(); }

}  // namespace lowkey
