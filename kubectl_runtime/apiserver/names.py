"""Validation of names, labels and annotations with the real server's messages, and the random end of generateName.

Each function returns a list of problems, empty if there are none; the caller makes causes of them.
"""

from __future__ import annotations

import random
import re
from typing import Protocol

_LABEL = "[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN = rf"{_LABEL}(\.{_LABEL})*"
_QUALIFIED = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_LABEL_VALUE = f"({_QUALIFIED})?"
_LABEL_1035 = "[a-z]([-a-z0-9]*[a-z0-9])?"

_label = re.compile(_LABEL)
_label_1035 = re.compile(_LABEL_1035)
_subdomain = re.compile(_SUBDOMAIN)
_qualified = re.compile(_QUALIFIED)
_label_value = re.compile(_LABEL_VALUE)
_port_name = re.compile("[-a-z0-9]+")

LABEL_MESSAGE = ("a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start "
                 "and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
                 f"'{_LABEL}')")
LABEL_1035_MESSAGE = ("a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an "
                      "alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', "
                      f"regex used for validation is '{_LABEL_1035}')")
SUBDOMAIN_MESSAGE = ("a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', "
                     "and must start and end with an alphanumeric character (e.g. 'example.com', regex used for "
                     f"validation is '{_SUBDOMAIN}')")
_QUALIFIED_MESSAGE = ("must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an "
                      "alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation "
                      f"is '{_QUALIFIED}')")
LABEL_VALUE_MESSAGE = ("a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', "
                       "and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or "
                       f"'12345', regex used for validation is '{_LABEL_VALUE}')")

MAX_ANNOTATIONS = 256 * 1024
MAX_GENERATED = 58  # characters of generateName that are kept, so that five random ones fit into a DNS label
_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"  # the real server's alphabet: without vowels no words come out


class NameErrors(Protocol):
    """A check of names; `prefix` means that more characters will follow."""

    def __call__(self, name: str, *, prefix: bool = False) -> list[str]: ...


def generated_name(prefix: str, randomness: random.Random) -> str:
    """A name that begins with the prefix and ends with five random characters."""
    return prefix[:MAX_GENERATED] + "".join(randomness.choices(_ALPHABET, k=5))


def _masked(name: str, prefix: bool) -> str:
    """The name to check: a prefix may end with a dash, since characters follow, so the real server puts an "a" for its
    last two."""
    return name[:-2] + "a" if prefix and len(name) > 1 and name.endswith("-") else name


def dns_label_errors(name: str, *, prefix: bool = False) -> list[str]:
    """RFC 1123 label: at most 63 characters, no dots."""
    name = _masked(name, prefix)
    errors = [] if len(name) <= 63 else ["must be no more than 63 characters"]
    if not _label.fullmatch(name):
        errors.append("must not contain dots" if _subdomain.fullmatch(name) else LABEL_MESSAGE)
    return errors


def dns_1035_label_errors(name: str, *, prefix: bool = False) -> list[str]:
    """RFC 1035 label: an RFC 1123 label that begins with a letter."""
    name = _masked(name, prefix)
    errors = [] if len(name) <= 63 else ["must be no more than 63 characters"]
    return errors if _label_1035.fullmatch(name) else [*errors, LABEL_1035_MESSAGE]


def dns_subdomain_errors(name: str, *, prefix: bool = False) -> list[str]:
    """RFC 1123 subdomain: at most 253 characters."""
    name = _masked(name, prefix)
    errors = [] if len(name) <= 253 else ["must be no more than 253 characters"]
    return errors if _subdomain.fullmatch(name) else [*errors, SUBDOMAIN_MESSAGE]


def path_segment_errors(name: str, *, prefix: bool = False) -> list[str]:  # noqa: ARG001 - as the other checks have it
    """Names that only have to fit into a path (RBAC objects)."""
    if name in (".", ".."):
        return [f"may not be '{name}'"]
    return [f"may not contain '{character}'" for character in "/%" if character in name]


def label_value_errors(value: str) -> list[str]:
    """Values of labels."""
    errors = [] if len(value) <= 63 else ["must be no more than 63 bytes"]
    return errors if _label_value.fullmatch(value) else [*errors, LABEL_VALUE_MESSAGE]


def qualified_name_errors(key: str) -> list[str]:
    """Keys of labels and annotations, and finalizers: an optional DNS prefix, a slash, a name."""
    parts = key.split("/")
    if len(parts) > 2:
        return [f"a valid label key {_QUALIFIED_MESSAGE} with an optional DNS subdomain prefix and '/' (e.g. "
                "'example.com/MyName')"]
    errors = []
    if len(parts) == 2:
        if not parts[0]:
            errors.append("prefix part must be non-empty")
        else:
            errors += [f"prefix part {error.replace('253 characters', '253 bytes')}"
                       for error in dns_subdomain_errors(parts[0])]
    if not parts[-1]:
        errors.append("name part must be non-empty")
    elif len(parts[-1]) > 63:
        errors.append("name part must be no more than 63 bytes")
    if not _qualified.fullmatch(parts[-1]):
        errors.append(f"name part {_QUALIFIED_MESSAGE}")
    return errors


def port_name_errors(name: str) -> list[str]:
    """Names of ports: IANA service names, at most 15 characters."""
    found = [] if len(name) <= 15 else ["must be no more than 15 characters"]
    if not _port_name.fullmatch(name):
        found.append("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)")
    if not re.search("[a-z]", name):
        found.append("must contain at least one letter (a-z)")
    if "--" in name:
        found.append("must not contain consecutive hyphens")
    if name.startswith("-") or name.endswith("-"):
        found.append("must not begin or end with a hyphen")
    return found
