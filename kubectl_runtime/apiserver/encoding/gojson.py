"""Why a text is no JSON, in the words of the real server's decoder.

Only the error path comes here: good bodies are decoded by msgspec. The scanner walks the text with an explicit stack,
so that a body that is nested deeply gets an answer and not a recursion error.
"""

from __future__ import annotations

import re

MAX_DEPTH = 10_000

_NUMBER = re.compile(rb"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_STRING = re.compile(rb'"(?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"')
_SPACE = b" \t\r\n"
END = "unexpected end of JSON input"


def shown(byte: int) -> str:
    """A byte as the decoder quotes it."""
    if byte == 0x27:
        return "'\\''"
    if byte == 0x22:
        return "'\"'"
    if 0x20 <= byte < 0x7F:
        return f"'{chr(byte)}'"
    return "'" + {9: "\\t", 10: "\\n", 13: "\\r"}.get(byte, f"\\x{byte:02x}" if byte < 0x80 else chr(byte)) + "'"


class _Problem(Exception):
    """The text ends here as far as JSON goes; the argument says why."""


def syntax_error(data: bytes) -> str:
    """What is wrong with the text; "" if it is well-formed."""
    try:
        _Scanner(data).run()
    except _Problem as problem:
        return str(problem)
    return ""


class _Scanner:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0
        self.stack: list[int] = []  # the closing brackets that are due

    def run(self) -> None:
        self._value("looking for beginning of value")
        while self.stack:
            self._after_value()
        self._space()
        if self.at < len(self.data):
            raise self._unexpected("after top-level value")

    def _space(self) -> int:
        """Skip white space; the next byte, -1 at the end."""
        while self.at < len(self.data) and self.data[self.at] in _SPACE:
            self.at += 1
        return self.data[self.at] if self.at < len(self.data) else -1

    def _unexpected(self, where: str) -> _Problem:
        if self.at >= len(self.data):
            return _Problem(END)
        return _Problem(f"invalid character {shown(self.data[self.at])} {where}")

    def _value(self, where: str) -> None:
        """One scalar, after the brackets (and keys) that open in front of it; or the empty array or object."""
        byte = self._space()
        while byte in (0x7B, 0x5B):
            closing = byte + 2
            self._open(closing)
            if self._space() == closing:
                self._close()
                return
            if closing == 0x7D:
                self._key("looking for beginning of object key string")
            where = "looking for beginning of value"
            byte = self._space()
        if byte == 0x22:
            self._string()
        elif byte == 0x2D or 0x30 <= byte <= 0x39:
            self._number()
        else:
            self._literal(where)

    def _open(self, closing: int) -> None:
        self.stack.append(closing)
        if len(self.stack) > MAX_DEPTH:
            raise self._unexpected("exceeded max depth")
        self.at += 1

    def _close(self) -> None:
        self.stack.pop()
        self.at += 1

    def _after_value(self) -> None:
        """Between values: a comma and the next value, or the end of the innermost bracket."""
        closing = self.stack[-1]
        byte = self._space()
        if byte == closing:
            self._close()
        elif byte != 0x2C:
            raise self._unexpected("after object key:value pair" if closing == 0x7D else "after array element")
        else:
            self.at += 1
            if closing == 0x7D:
                self._space()
                self._key("looking for beginning of object key string")
            self._value("looking for beginning of value")

    def _key(self, where: str) -> None:
        """A key and its colon."""
        if self._space() != 0x22:
            raise self._unexpected(where)
        self._string()
        if self._space() != 0x3A:
            raise self._unexpected("after object key")
        self.at += 1

    def _string(self) -> None:
        match = _STRING.match(self.data, self.at)
        if match:
            self.at = match.end()
            return
        self.at += 1
        while self.at < len(self.data):
            byte = self.data[self.at]
            if byte < 0x20:
                raise self._unexpected("in string literal")
            if byte == 0x5C:
                self.at += 1
                if self.at < len(self.data) and self.data[self.at] not in b'"\\/bfnrtu':
                    raise self._unexpected("in string escape code")
            self.at += 1
        raise _Problem(END)

    def _number(self) -> None:
        match = _NUMBER.match(self.data, self.at)
        if match is None:
            self.at += 1
            raise self._unexpected("in numeric literal")
        self.at = match.end()

    def _literal(self, where: str) -> None:
        for word in (b"true", b"false", b"null"):
            if self.data[self.at:self.at + 1] != word[:1]:
                continue
            for offset, expected in enumerate(word):
                if self.data[self.at:self.at + 1] != bytes([expected]):
                    raise self._unexpected(f"in literal {word.decode()} (expecting {shown(expected)})" if offset
                                           else where)
                self.at += 1
            return
        raise self._unexpected(where)
