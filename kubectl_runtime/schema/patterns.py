r"""Regular expressions of schemas: Go's RE2 syntax, translated to Python's `re`.

Syntax that RE2 refuses (look-around, back references, atomic groups, possessive repeats, repeats above 1000) is refused
with the message of Go's parser, though Python supports it: the real server would refuse the CustomResourceDefinition.
Syntax that Python lacks or reads differently is translated: ``$`` (in Go only the end of the text), ``\Q``, POSIX
classes, ``\pL``, flags in the middle. ``\d``, ``\w``, ``\s`` and ``\b`` match only ASCII, as in Go. The flag ``U`` and
names of scripts (``\p{Greek}``) have no equivalent in Python and are refused.
"""

from __future__ import annotations

import functools
import re
import sys
import unicodedata

_POSIX = {"alnum": "0-9A-Za-z", "alpha": "A-Za-z", "ascii": r"\x00-\x7F", "blank": r"\t ", "cntrl": r"\x00-\x1F\x7F",
          "digit": "0-9", "graph": "!-~", "lower": "a-z", "print": " -~", "punct": r"!-/:-@\[-`{-~",
          "space": r"\t\n\v\f\r ", "upper": "A-Z", "word": "0-9A-Za-z_", "xdigit": "0-9A-Fa-f"}
_CLASSES = {"d": "0-9", "s": r"\t\n\f\r ", "w": "0-9A-Za-z_"}
_LITERAL_ESCAPES = "aftnrvx01234567"
_MOST_REPEATS = 1000
_LARGEST = 1 << 20
"""The maximum length of a translated pattern: each Unicode class takes thousands of characters."""
_REPEAT = re.compile(r"\{(\d+)(,(\d*))?\}")
_GROUP = re.compile(r"\(\?(?:P?<(\w+)>|([imsU-]*)([:)]))")


class PatternError(ValueError):
    """A pattern that Go's regular expressions do not support; the text is the message of Go's parser."""


@functools.lru_cache(maxsize=1024)
def compiled(pattern: str) -> re.Pattern[str]:
    """Compile a pattern for Python's `re`, for use with `search`. Raises PatternError if Go would refuse it."""
    try:
        return re.compile(_Translation(pattern).run())
    except (re.error, RecursionError, OverflowError) as error:
        raise PatternError(f"error parsing regexp: {error}: `{pattern}`") from error


def _wrong(what: str, where: str) -> PatternError:
    return PatternError(f"error parsing regexp: {what}: `{where}`")


class _Translation:
    """One pass over a pattern. `open`: for each open group, the number of extra groups that flags inside it opened."""

    def __init__(self, pattern: str) -> None:
        self.pattern, self.at, self.out = pattern, 0, list[str]()
        self.open = [0]
        self.repeatable = False
        self.multiline = [False]

    def run(self) -> str:
        size = 0
        while self.at < len(self.pattern):
            done = len(self.out)
            self._step(self.pattern[self.at])
            size += sum(map(len, self.out[done:]))
            if size > _LARGEST:
                raise PatternError("error parsing regexp: expression too large")
        if len(self.open) > 1:
            raise _wrong("missing closing )", self.pattern)
        return "".join(self.out) + ")" * self.open[0]

    def _step(self, char: str) -> None:
        repeat = _REPEAT.match(self.pattern, self.at)
        if char in "*+?" or (char == "{" and repeat):
            self._repeat(char, repeat)
            return
        self.repeatable = True
        if char == "(":
            self._open_group()
        elif char == ")":
            self._close_group()
        elif char == "[":
            self._class()
        elif char == "\\":
            self._escape()
        elif char == "$":
            self._put("$" if self.multiline[-1] else r"\Z", 1)
        elif char in "|^":
            self._put(char, 1)
            self.repeatable = char != "|"
        elif char in "{}":
            self._put("\\" + char, 1)
        else:
            self._put(char, 1)

    def _put(self, text: str, count: int) -> None:
        self.out.append(text)
        self.at += count

    def _repeat(self, char: str, counts: re.Match[str] | None) -> None:
        text = counts[0] if char == "{" and counts else char
        end = self.at + len(text)
        if not self.repeatable:
            raise _wrong("missing argument to repetition operator", text)
        if char == "{" and counts:
            low, high = int(counts[1]), int(counts[3]) if counts[3] else int(counts[1])
            if max(low, high) > _MOST_REPEATS or high < low:
                raise _wrong("invalid repeat count", text)
        lazy = "?" if self.pattern.startswith("?", end) else ""
        after = end + len(lazy)
        if self.pattern.startswith(("*", "+", "?"), after) or _REPEAT.match(self.pattern, after):
            raise _wrong("invalid nested repetition operator", text + lazy + self.pattern[after:after + 1])
        self._put(text + lazy, len(text) + len(lazy))

    def _open_group(self) -> None:
        if not self.pattern.startswith("(?", self.at):
            self._put("(", 1)
            self._enter(self.multiline[-1])
            return
        found = _GROUP.match(self.pattern, self.at)
        if found is None or "U" in (found[2] or ""):
            raise _wrong("invalid or unsupported Perl syntax", self.pattern[self.at:self.at + 3])
        if found[1]:
            self._put(f"(?P<{found[1]}>", len(found[0]))
            self._enter(self.multiline[-1])
            return
        on, _, off = found[2].partition("-")
        multiline = ("m" in on or self.multiline[-1]) and "m" not in off
        flags = "".join(sorted(set(on))) + ("-" + "".join(sorted(set(off))) if off else "")
        self._put(f"(?{flags}:", len(found[0]))
        if found[3] == ")":  # flags for the rest of the enclosing group
            self.open[-1] += 1
            self.multiline[-1] = multiline
        else:
            self._enter(multiline)
        self.repeatable = False

    def _enter(self, multiline: bool) -> None:
        self.open.append(0)
        self.multiline.append(multiline)
        self.repeatable = False

    def _close_group(self) -> None:
        if len(self.open) == 1:
            raise _wrong("unexpected )", self.pattern)
        self.multiline.pop()
        self._put(")" * (self.open.pop() + 1), 1)

    def _escape(self) -> None:
        letter = self.pattern[self.at + 1:self.at + 2]
        if not letter:
            raise _wrong("trailing backslash at end of expression", "")
        if letter == "Q":
            end = self.pattern.find(r"\E", self.at + 2)
            text = self.pattern[self.at + 2:end if end >= 0 else len(self.pattern)]
            self._put(re.escape(text), 2 + len(text) + (2 if end >= 0 else 0))
        elif letter == "A":
            self._put(r"\A", 2)
        elif letter == "z":
            self._put(r"\Z", 2)
        elif letter in "bB":
            self._put(f"(?a:\\{letter})", 2)
        elif letter in "dsw":
            self._put(f"[{_CLASSES[letter]}]", 2)
        elif letter in "DSW":
            self._put(f"[^{_CLASSES[letter.lower()]}]", 2)
        elif letter in "pP":
            ranges, count = self._category(self.at)
            self._put(f"[{ranges}]", count)
        else:
            self._put(*self._character(self.at))

    def _character(self, at: int) -> tuple[str, int]:
        """(Python's text, length) of an escaped character, inside or outside a class."""
        char = self.pattern[at + 1]
        code = re.compile(r"\\x\{([0-9A-Fa-f]{1,6})\}").match(self.pattern, at)
        if code and int(code[1], 16) <= sys.maxunicode:
            return re.escape(chr(int(code[1], 16))), len(code[0])
        if (char.isalnum() and char not in _LITERAL_ESCAPES) or char in "123456789":
            raise _wrong("invalid escape sequence", self.pattern[at:at + 2])
        if char == "x":
            if not re.match(r"[0-9A-Fa-f]{2}", self.pattern[at + 2:at + 4]):
                raise _wrong("invalid escape sequence", self.pattern[at:at + 3])
            return self.pattern[at:at + 4], 4
        return self.pattern[at:at + 2] if char.isalnum() else re.escape(char), 2

    def _category(self, at: int) -> tuple[str, int]:
        found = re.compile(r"\\([pP])(?:(\w)|\{(\^?)(\w+)\})").match(self.pattern, at)
        if found is None:
            raise _wrong("invalid character class range", self.pattern[at:at + 3])
        name = found[2] or found[4]
        ranges = _category_ranges(name, (found[1] == "P") != bool(found[3]))
        if not ranges:
            raise _wrong("invalid character class range", found[0])
        return ranges, len(found[0])

    def _class(self) -> None:
        start, end = self.at, self.at + 1
        out = ["["]
        if self.pattern.startswith("^", end):
            out.append("^")
            end += 1
        first = True
        while first or not self.pattern.startswith("]", end):
            if end >= len(self.pattern):
                raise _wrong("missing closing ]", self.pattern[start:])
            text, count = self._member(end)
            out.append(text)
            end += count
            first = False
        self._put("".join(out) + "]", end + 1 - start)

    def _member(self, at: int) -> tuple[str, int]:
        """(Python's text, length) of the next member of a character class."""
        posix = re.compile(r"\[:(\^?)(\w+):\]").match(self.pattern, at)
        if posix:
            if posix[2] not in _POSIX or posix[1]:
                raise _wrong("invalid character class range", posix[0])
            return _POSIX[posix[2]], len(posix[0])
        char = self.pattern[at]
        if char != "\\":
            return "\\" + char if char in "[]&~|" else char, 1
        following = self.pattern[at + 1:at + 2]
        if not following:
            raise _wrong("missing closing ]", self.pattern)
        if following in _CLASSES:
            return _CLASSES[following], 2
        if following in "DSW":
            return "\\" + following, 2
        if following in "pP":
            return self._category(at)
        return self._character(at)


@functools.lru_cache(maxsize=64)
def _category_ranges(name: str, negated: bool) -> str:
    """The members of a Unicode category (L, Lu, ...) as ranges of a class; "" if there are none."""
    out: list[str] = []
    start = None
    for code in range(sys.maxunicode + 2):
        inside = code <= sys.maxunicode and unicodedata.category(chr(code)).startswith(name) != negated
        if inside and start is None:
            start = code
        elif not inside and start is not None:
            out.append(f"\\U{start:08x}-\\U{code - 1:08x}")
            start = None
    return "".join(out)
