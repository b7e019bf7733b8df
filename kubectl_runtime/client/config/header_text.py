r"""Which texts a header of HTTP can carry, in which bytes, and which headers are credentials.

    fault_of("jane")             ""
    fault_of("a\r\nX-Evil: 1")  what is wrong with it, without quoting it
    is_credential("Cookie")      True
    as_sent("jänner")            the text whose latin-1 form, which http.client sends, is the UTF-8 form of "jänner"
"""
from __future__ import annotations

import re

_CREDENTIAL = re.compile(r"authoriz|authent|token|secret|passw|cookie|credential|jwt|assertion"
                         r"|(?:api|access|private)[-_]?key|(?<![a-z])(?:auth|session)(?![a-z])", re.IGNORECASE).search
_UNSENDABLE = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]").search


def fault_of(value: object, *, identity: bool = False) -> str:
    """What keeps `value` from being sent in a header, in words that follow its name; empty for nothing. Values are not
    quoted: they may be secret. An `identity` must arrive as it is: not empty, and without blanks at its ends, which are
    no part of a header, so that the server would see somebody else.
    """
    if not isinstance(value, str):
        return f"is of type {type(value).__name__}, where text is expected"
    if identity and not value:
        return "is empty"
    if _UNSENDABLE(value):
        return "cannot be sent in a header: it has line breaks or other control characters"
    if identity and value != value.strip(" \t"):
        return "begins or ends with a blank, which a header cannot carry"
    try:
        value.encode()
    except UnicodeEncodeError:
        return "cannot be sent in a header: it cannot be encoded as UTF-8"
    return ""


def is_credential(name: str) -> bool:
    """Whether a header of this name is likely to prove who the client is, as `Authorization`, `Cookie` and
    `X-Api-Key` do: it goes where credentials may go."""
    return _CREDENTIAL(name) is not None


def as_sent(value: str) -> str:
    """`value`, which has no fault, as http.client has to be given it."""
    return value if value.isascii() else value.encode().decode("latin-1")
