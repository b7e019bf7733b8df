"""Validation of names, labels and annotations with the real server's messages, and the random suffix of generateName.

Each check returns a list of problems, empty if there are none; the caller turns problems into causes.
"""

from __future__ import annotations

import random
import re
from typing import Protocol

from kubectl_runtime.schema.formats import (
    LABEL_1035_MESSAGE,
    LABEL_MESSAGE,
    LABEL_VALUE_MESSAGE,
    SUBDOMAIN_MESSAGE,
    dns_1035_label_errors,
    dns_label_errors,
    dns_subdomain_errors,
    label_value_errors,
    qualified_name_errors,
)

__all__ = ["LABEL_1035_MESSAGE", "LABEL_MESSAGE", "LABEL_VALUE_MESSAGE", "MAX_ANNOTATIONS", "MAX_GENERATED",
           "SUBDOMAIN_MESSAGE", "NameErrors", "dns_1035_label_errors", "dns_label_errors", "dns_subdomain_errors",
           "generated_name", "label_value_errors", "path_segment_errors", "port_name_errors", "qualified_name_errors"]

_port_name = re.compile("[-a-z0-9]+")

MAX_ANNOTATIONS = 256 * 1024
MAX_GENERATED = 58  # characters of generateName that are kept, so that five more fit into a DNS label
_ALPHABET = "bcdfghjklmnpqrstvwxz2456789"  # the real server's alphabet: without vowels it spells no words


class NameErrors(Protocol):
    """A function that checks a name; with `prefix` the text is the start of a name (generateName)."""

    def __call__(self, name: str, *, prefix: bool = False) -> list[str]: ...


def generated_name(prefix: str, randomness: random.Random) -> str:
    """A name that begins with the prefix and ends with five random characters."""
    return prefix[:MAX_GENERATED] + "".join(randomness.choices(_ALPHABET, k=5))


def path_segment_errors(name: str, *, prefix: bool = False) -> list[str]:  # noqa: ARG001 - as in `NameErrors`
    """Check a name that only has to fit into a URL path (RBAC objects)."""
    if name in (".", ".."):
        return [f"may not be '{name}'"]
    return [f"may not contain '{character}'" for character in "/%" if character in name]


def port_name_errors(name: str) -> list[str]:
    """Check a port name: an IANA service name of at most 15 characters."""
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
