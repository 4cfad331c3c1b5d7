#!/usr/bin/env python3
"""Checks that what pages and comments name exists.

    tests/docs/check_references.py --lowkey build/lowkey [--root FOLDER]

Prints one line per broken reference ("docs/a.md:3: --prot: no command has this flag") and ends
with 1 if there is one. It checks links with their headings, paths and names of sources, flags,
LOWKEY_ variables, metrics, targets of ninja, classes and functions in pages, and page.md "Heading"
in comments. README.md must link every page under docs/.
"""
import argparse
import os
import re
import subprocess
import sys

CXX = (".cc", ".h", ".cu", ".cuh", ".inc", ".proto")
TEXT = CXX + (".md", ".py", ".sh", ".cmake", ".yaml", ".cfg", ".service", ".supp",
              "CMakeLists.txt", "CMakePresets.json", ".ci/run")
NAMED = re.compile(r"\.(cc|h|cu|cuh|proto|py|sh|md)$")
CLASS = re.compile(r"(?!.*Name)[A-Z][a-z\d]+([A-Z][a-z\d]*)+")  # NameState is anybody's
WORD = re.compile(r"[\w./:*{},<>=-]+")
# Flags of other programs; files that are fetched, or lie outside of the repository; an example.
FOREIGN_FLAGS = {"help", "version", "name", "build-arg", "memory", "install", "wrap", "now",
                 "gtest_filter"}
ABSENT = ("models/smollm2", "avx512fintrin.h", "attention_reference.py", "engine/base/a.cc")


def is_own(path):
    """Whether the path belongs to this checker, which quotes what is broken."""
    return path.startswith("tests/docs/")


def comment_of(path, line):
    if path.endswith(CXX):
        at = line.find("//")
        if at < 0 or line[:at].endswith(":") or line[:at].count('"') % 2:
            return ""
        return line[at + 2:]
    line = line.lstrip()
    return line[1:] if line.startswith("#") else ""


def flag_name(word):
    return re.split(r"[=,:.<>*/{}]", word[2:])[0]


class Tree:
    def __init__(self, root):
        self.files, self.folders, self.system_headers, self.words = {}, set(), set(), set()
        for folder, folders, names in os.walk(root):
            folders[:] = [f for f in folders if not f.startswith(("build", "__pycache__", "shared"))
                          and (not f.startswith(".") or f == ".ci")]
            for name in folders + names:
                path = os.path.relpath(os.path.join(folder, name), root)
                if name in folders:
                    self.folders.add(path)
                    continue
                text = ""
                if path.endswith(TEXT) or name.startswith("Dockerfile"):
                    with open(os.path.join(root, path), encoding="utf-8") as file:
                        text = file.read()
                self.files[path] = text
                if not path.endswith(".md") and not is_own(path):
                    self.words.update(re.findall(r"\w+", text))
                    self.system_headers.update(re.findall(r"^#include <(.*)>", text, re.M))
        self.tops = {f for f in self.folders if "/" not in f}

    def has(self, path):
        return path in self.files or path in self.folders

    def has_pattern(self, path):
        return all(self.has(one) or self._matches("^" + self._pattern(one) + "$")
                   for one in (p.rstrip("/") for p in self._braces(path)))

    def has_ending(self, name):
        return all(self._matches("(^|/)" + self._pattern(one) + "$")
                   for one in self._braces(name))

    def _matches(self, pattern):
        pattern = re.compile(pattern)
        return any(pattern.search(p) for group in (self.files, self.folders, self.system_headers)
                   for p in group)

    def _pattern(self, path):
        """Capitals that no file has are placeholders, and so is <name>."""
        if any(p == path or p.endswith("/" + path) for p in self.files):
            return re.escape(path)
        return re.sub(r"(<[^>]*>|[A-Z*]+)", "*", path).replace(".", r"\.").replace("*", "[^/]*")

    def _braces(self, path):
        match = re.match(r"(.*?)\{([^}]*)\}(.*)$", path)
        if not match:
            return [path]
        return [whole for part in match[2].split(",")
                for whole in self._braces(match[1] + part + match[3])]


class Page:
    """A page in Markdown: pieces are (line, text)."""

    def __init__(self, text):
        self.headings, self.anchors = set(), set()
        self.links, self.spans, self.commands, self.prose = [], [], [], []
        fenced = code = continued = False
        blank = True
        for number, line in enumerate(text.split("\n"), 1):
            if line.lstrip().startswith("```"):
                fenced = not fenced
                continue
            indented = line.startswith("    ") and (blank or code)
            blank = not line.strip()
            code = fenced or (indented and not blank) or (code and blank)
            if blank:
                continue
            if fenced or indented:
                continued = self._add_command(number, line, continued)
            else:
                self._add_prose(number, line)

    def _add_command(self, number, line, continued):
        text = line.rstrip("\\")
        if continued:
            self.commands[-1] = (self.commands[-1][0], self.commands[-1][1] + " " + text)
        else:
            self.commands.append((number, text))
        return text != line

    def _add_prose(self, number, line):
        if line.startswith("#"):
            heading = line.lstrip("# ")
            self.headings.add(heading)
            self.anchors.add(re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-"))
        self.spans += [(number, span) for span in re.findall(r"`([^`]+)`", line)]
        self.links += [(number, link) for link in re.findall(r"\]\(([^)]*)\)", line)]
        self.prose.append((number, re.sub(r"\]\([^)]*\)", "]", line)))


class Checker:
    def __init__(self, tree, flags):
        """flags: of each lowkey command, without dashes."""
        self.tree, self.flags, self.broken, self.path = tree, flags, [], ""
        self.known_flags = FOREIGN_FLAGS.union(*flags.values())
        self.variables = {"LOWKEY_" + f.upper().replace("-", "_") for f in self.known_flags}
        self.metric_code = "".join(
            text for path, text in tree.files.items() if path.startswith("server/metrics/"))
        self.pages = {p: Page(t) for p, t in tree.files.items() if p.endswith(".md")}
        for path, text in tree.files.items():
            if path not in self.pages and not is_own(path):
                self._learn(path, text)

    def _learn(self, path, text):
        """Flags that scripts and benchmarks have, and variables that code reads."""
        if path.endswith((".py", ".sh")):
            self.known_flags.update(re.findall(r"--([a-z][\w-]*)", text))
        self.known_flags.update(re.findall(r"^ABSL_FLAG\(.*?, (\w+), ", text, re.M))
        for line in text.split("\n"):
            code = line[:len(line) - len(comment_of(path, line))]
            self.variables.update(re.findall(r"LOWKEY_\w+", code))

    def run(self):
        for self.path, page in sorted(self.pages.items()):
            self._check_page(page)
        for self.path, text in sorted(self.tree.files.items()):
            if self.path not in self.pages and not is_own(self.path):
                self._check_comments(text)
        return self.broken

    def _report(self, line, name, problem):
        self.broken.append(f"{self.path}:{line}: {name}: {problem}")

    def _check_page(self, page):
        for line, link in page.links:
            self._check_link(line, link)
        for line, span in page.spans:
            self._check_built(line, span)
            is_code = "::" in span or CLASS.fullmatch(span)
            for word in re.findall(r"\w+", span if is_code else ""):
                if word not in self.tree.words:
                    self._report(line, span, f'no "{word}" in the code')
        for line, text in page.prose:
            self._check_text(line, text)
        for line, text in page.commands:
            for command in re.split(r"[|&;]", text.split("  #")[0]):
                self._check_command(line, command)
        if self.path == "README.md":
            linked = {link.split("#")[0] for _, link in page.links}
            for path in sorted(p for p in self.pages if p.startswith("docs/") and p not in linked):
                self._report(
                    1, path, "no link to this page, expected one in the table of documents")

    def _check_link(self, line, link):
        if "://" in link:
            return
        file, _, anchor = link.partition("#")
        target = self.path
        if file:
            target = os.path.normpath(os.path.join(os.path.dirname(self.path), file))
        if not self.tree.has(target):
            self._report(line, file, "no such file")
        elif anchor and (target not in self.pages or anchor not in self.pages[target].anchors):
            self._report(line, link, f"no such heading in {target}")

    def _check_text(self, line, text, flags=True):
        """Paths, flags, variables and metrics, wherever they stand."""
        for match in WORD.finditer(text):
            word = match[0]
            if re.match("--[a-z]", word):
                if flags and flag_name(word) not in self.known_flags:
                    self._report(line, word.split("=")[0],
                                 "no command, script or benchmark has this flag")
            elif text[:match.start()][-1:] != "~" and "://" not in word:
                self._check_word(line, word.rstrip(".,:;-<="))

    def _check_word(self, line, word):
        name = re.split(r"[=.\-/:{]", word)[0]
        if name.startswith("LOWKEY_"):
            if not name.endswith("_") and name not in self.variables:
                self._report(line, name, "no flag, option or code has this variable")
        elif re.match("(vllm|lowkey):[a-z]", word):
            if f'"{word.split("{")[0]}"' not in self.metric_code:
                self._report(line, word, "server/metrics exports no such metric")
        elif not word.startswith(ABSENT):
            self._check_path(line, word)

    def _check_path(self, line, word):
        if "/" in word and word.split("/")[0] in self.tree.tops:
            if not self.tree.has_pattern(word):
                self._report(line, word, "no such file or folder")
        elif NAMED.search(word) and word[0] not in "./" and not word.endswith(".pb.h"):
            if not self.tree.has_ending(word):
                self._report(line, word, "no such file")

    def _check_command(self, line, text):
        """A command of a code block: its flags are those of the lowkey command in it."""
        words = text.split()
        command, quoted = None, False
        for previous, word in zip([""] + words, words):
            if os.path.basename(previous) == "lowkey" and word in self.flags:
                command = word
            if re.match("--[a-z]", word) and command and not quoted:
                if flag_name(word) not in self.flags[command]:
                    self._report(line, word, f"lowkey {command} has no such flag")
            quoted ^= word.count('"') % 2 == 1
        program = next((w for w in words if "=" not in w), "")
        if program == "ninja":
            for previous, word in zip(words, words[1:]):
                if word[0] != "-" and previous[0] != "-" and word not in self.tree.words:
                    self._report(line, word, "no such target")
        self._check_built(line, text)
        self._check_text(line, text, program.startswith("build") or program in self.tree.files)

    def _check_built(self, line, text):
        for word in re.findall(r"(?:^| )(build[\w-]*/[\w/-]+)", text):
            if os.path.basename(word) not in self.tree.words:
                self._report(line, word, "no such target")

    def _check_comments(self, text):
        for number, line in enumerate(text.split("\n"), 1):
            comment = comment_of(self.path, line)
            self._check_text(number, comment)
            for page, heading in re.findall(r'([\w/.]+\.md) "([^"]*)"', comment):
                if not any(path.endswith(page) and heading in self.pages[path].headings
                           for path in self.pages):
                    self._report(number, heading, f"no such heading in {page}")


def flags_of(lowkey):
    """The flags of each command, as its --help lists them."""
    def help_of(*command):
        return subprocess.run([lowkey, *command, "--help"], check=True, capture_output=True,
                              text=True).stdout
    listed = re.search(r"^Commands:\n((?:  .*\n)+)", help_of(), re.M)[1]
    commands = re.findall(r"^  (\w+)", listed, re.M)
    return {c: {"help", *re.findall(r"^  --([\w-]+)", help_of(c), re.M)} for c in commands}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--lowkey", required=True, help="the program, whose help lists the flags")
    parser.add_argument("--root", default=os.path.join(os.path.dirname(__file__), "..", ".."))
    arguments = parser.parse_args()
    broken = Checker(Tree(arguments.root), flags_of(arguments.lowkey)).run()
    print("\n".join(broken) or "every reference is good")
    sys.exit(1 if broken else 0)


if __name__ == "__main__":
    main()
