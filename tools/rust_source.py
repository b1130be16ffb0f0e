"""Reads Rust sources without a compiler: code apart from comments, production apart from tests.

Offsets and lines stay those of the file: what is taken out of the code becomes blanks. Literals keep their
quotes. Known limit: code that a macro makes is not seen.
"""

import re
from bisect import bisect_right
from functools import cached_property
from pathlib import Path

LEXEME = re.compile(
    r"""(?P<comment> //[^\n]* | /\*.*?\*/ )
      | (?P<literal> \b(?:br|cr|r)(?P<hashes>\#*)".*?"(?P=hashes)
                   | "(?:[^"\\]|\\.)*"
                   | '(?:[^'\\\n]|\\(?:u\{[^}]*\}|x..|.))' )""",
    re.S | re.X,
)
TEST = re.compile(r"#!?\[cfg\((?:all\()?test\b[^\]]*\]\s*")
KIT = re.compile(r'#!?\[cfg\((?:all\()?(?:any\(test, feature|feature) = "(?:testkit|fuzzing)"[^\]]*\]\s*')
DECLARATION = re.compile(r"(?:#\[[^\]]*\]\s*)*(?:pub(?:\([^)]*\))?\s+)?mod\s+(\w+);")
FIELD = re.compile(r"(?:pub(?:\([^)]*\))?\s+)?\w+\s*:(?!:)")
FUNCTION = re.compile(r"\bfn\s+(\w+)\s*")


class Comment:
    def __init__(self, text, start, line):
        self.text, self.start, self.line = text, start, line
        self.doc = bool(re.match(r"//!|///(?!/)|/\*[*!](?![*/])", text))

    def words(self):
        return re.sub(r"^\s*(//[/!]?|/?\*+[!/]?)", "", self.text).split()


class Function:
    def __init__(self, name, parameters, start, body, end, first, last):
        self.name, self.parameters, self.start, self.body, self.end = name, parameters, start, body, end
        self.first, self.lines = first, last - first + 1


class Source:
    """One file. `production` is its code without what is compiled for tests or fuzzing alone."""

    def __init__(self, text):
        self.text = text
        self.newlines = [mark.start() for mark in re.finditer("\n", text)]
        self.code, self.comments = self.split()
        self.tests = self.items(TEST)
        self.kits = self.items(KIT)
        self.production = blank(self.code, self.tests + self.kits)

    def line(self, at):
        return bisect_right(self.newlines, at - 1) + 1

    def split(self):
        pieces, comments, done = [], [], 0
        for mark in LEXEME.finditer(self.text):
            pieces.append(self.text[done : mark.start()])
            done = mark.end()
            if mark["comment"]:
                comments.append(Comment(mark[0], mark.start(), self.line(mark.start())))
            pieces.append(filled(mark[0], '"' if mark["literal"] else " "))
        return "".join(pieces) + self.text[done:], comments

    def items(self, attribute):
        """Start and end of the items with that attribute, and of the whole file with an inner one."""
        spans = []
        for mark in attribute.finditer(self.text):
            if not self.code.startswith("#", mark.start()):
                continue
            inner = mark[0].startswith("#!")
            spans.append((mark.start(), len(self.text) if inner else item_end(self.code, mark.end())))
        return spans

    def declared(self, attribute):
        """Names of the modules in other files that are declared with that attribute."""
        found = (DECLARATION.match(self.text, mark.end()) for mark in attribute.finditer(self.text))
        return [declaration[1] for declaration in found if declaration]

    def production_comments(self):
        hidden = self.tests + self.kits
        return [comment for comment in self.comments if not any(start <= comment.start < end for start, end in hidden)]

    @cached_property
    def functions(self):
        """The functions with a body in production code."""
        return list(self.find_functions())

    def find_functions(self):
        code, closing = self.production, closing_braces(self.production)
        for mark in FUNCTION.finditer(code):
            at = mark.end()
            if code[at : at + 1] == "<":
                at = closing_angle(code, at)
            opening = code.find("(", at)
            end = bracket_end(code, opening)
            body = re.compile(r"[{;\[]").search(code, end)
            while body and body[0] == "[":
                body = re.compile(r"[{;\[]").search(code, bracket_end(code, body.start()))
            if body and body[0] == "{" and body.start() in closing:
                last = closing[body.start()]
                yield Function(
                    mark[1], split_list(code[opening + 1 : end - 1]), mark.start(), body.start(), last,
                    self.line(mark.start()), self.line(last),
                )  # fmt: skip


def filled(text, letter):
    """As many of a letter, on as many lines."""
    return "\n".join(letter * len(line) for line in text.split("\n"))


def blank(code, spans):
    for start, end in spans:
        code = code[:start] + filled(code[start:end], " ") + code[end:]
    return code


def code_lines(code):
    """Lines that hold something."""
    return sum(1 for line in code.split("\n") if line.strip())


def item_end(code, at):
    """The end of the item, field, variant or statement that begins there."""
    field, depth, angles = FIELD.match(code, at), 0, 0
    for at in range(at, len(code)):
        letter = code[at]
        if letter in "([{":
            depth += 1
        elif letter in ")]}":
            depth -= 1
            if depth < 0:
                return at
            if depth == 0 and letter == "}" and not field:
                return at + 1 + code.startswith(";", at + 1)
        elif field and letter in "<>" and code[at - 1] not in "-=":
            angles += 1 if letter == "<" else -1
        elif depth == 0 and (letter == ";" or field and letter == "," and angles == 0):
            return at + 1
    return len(code)


def bracket_end(code, at):
    """Behind the bracket that closes the one at `at`."""
    depth = 0
    for mark in re.compile(r"[(){}\[\]]").finditer(code, at):
        depth += 1 if mark[0] in "([{" else -1
        if depth == 0:
            return mark.end()
    return len(code)


def closing_angle(code, at):
    depth = 0
    for mark in re.compile(r"->|=>|[<>]").finditer(code, at):
        depth += {"<": 1, ">": -1}.get(mark[0], 0)
        if depth == 0:
            return mark.end()
    return len(code)


def closing_braces(code):
    """Of each opening brace the place of the closing one."""
    closing, open_ = {}, []
    for mark in re.finditer(r"[{}]", code):
        if mark[0] == "{":
            open_.append(mark.start())
        elif open_:
            closing[open_.pop()] = mark.start()
    return closing


def split_list(text):
    """The parts of a list between its commas outside of brackets."""
    parts, part, depth = [], "", 0
    for mark in re.finditer(r"->|=>|.", text + ",", re.S):
        letter = mark[0]
        depth += (letter in "([{<") - (letter in ")]}>")
        if letter == "," and depth == 0:
            parts.append(part.strip())
            part = ""
        else:
            part += letter
    return [part for part in parts if part]


class Tree:
    """The modules below a crate's `src`. A module is a tuple of names; `lib.rs` and `main.rs` are ()."""

    def __init__(self, src):
        self.src = Path(src)
        self.files = [(self.module_of(file), file, Source(file.read_text())) for file in sorted(self.src.rglob("*.rs"))]
        self.tests = self.declared(TEST) | {module for module, _, _ in self.files if "tests" in module}
        self.kits = self.declared(KIT)

    def module_of(self, file):
        parts = file.relative_to(self.src).with_suffix("").parts
        if parts[-1] == "mod":
            parts = parts[:-1]
        return () if parts in [("lib",), ("main",)] else parts

    def declared(self, attribute):
        return {module + (name,) for module, _, source in self.files for name in source.declared(attribute)}

    def kind(self, module):
        above = {module[:depth] for depth in range(1, len(module) + 1)}
        return "test" if above & self.tests else "kit" if above & self.kits else "production"

    def production(self):
        """Module, file and source of each file that is not for tests or fuzzing alone."""
        return [file for file in self.files if self.kind(file[0]) == "production"]
