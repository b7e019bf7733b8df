"""Field validation: fields that a body names twice, and fields that the kind does not have, as texts for warnings and
refusals (``fieldValidation`` = Warn, Strict; Ignore leaves them alone).

Where the texts come in which order is the real server's way of decoding: the JSON of a built-in kind is read once, so
that both sorts mix in the order of the text; of a custom resource the repeated fields come first. YAML becomes JSON
with sorted keys, and so does the result of a patch. Of YAML, all repeated keys are one text to a refusal.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from kubectl_runtime.apiserver.errors import go_quoted

_YAML = "yaml: unmarshal errors:\n  "
_PART = re.compile(r"\[(\d+)\]|([^.\[\]]+)")

Trace = tuple[tuple[str, bool], ...]


@dataclass(frozen=True, slots=True)
class Keys:
    """The keys of a body, as far as they matter here: nothing at all if no key is repeated.

    `repeated` are texts about keys that occur twice. `trace` are the paths of all keys in the order of the text, each
    with whether it has been there before. `ordered` tells whether unknown fields are met in that order.
    """

    repeated: tuple[str, ...] = ()
    trace: Trace = ()
    ordered: bool = True

    def problems(self, unknown: list[str], *, mixed: bool = False) -> list[str]:
        """The texts about these keys and about unknown fields; `mixed` if one pass finds both."""
        if mixed and self.trace:
            return list(_mixed(self.trace, frozenset(unknown)))
        if not self.ordered:
            unknown = sorted(unknown, key=_by_parts)
        return [*self.repeated, *map(_unknown, unknown)]


NO_KEYS = Keys()
SORTED_KEYS = Keys(ordered=False)


def json_keys(body: bytes, *, ordered: bool = True) -> Keys:
    """The keys of a JSON text in which some are repeated."""
    trace = tuple(_trace(body))
    return Keys(tuple(dict.fromkeys(_duplicate(path) for path, again in trace if again)), trace, ordered)


def yaml_keys(lines: list[str]) -> Keys:
    """The keys of a YAML text; `lines` tell of each repeated one."""
    return Keys((_YAML + "\n  ".join(lines),), ordered=False) if lines else SORTED_KEYS


def operation_keys(operations: list[Any], known: Iterable[str], keys: Keys) -> Keys:
    """The keys of a JSON patch: an operation has no others than the known ones."""
    unknown = [f"[{index}].{key}" for index, operation in enumerate(operations) for key in operation or ()
               if key not in known]
    return Keys(tuple(f"json patch {text}" for text in keys.problems(unknown, mixed=True)), ordered=False)


def warning_texts(problems: list[str]) -> list[str]:
    """What warnings say: the lines of a text about YAML one by one."""
    return [line.strip() for text in problems for line in text.removeprefix(_YAML).split("\n")]


def _unknown(path: str) -> str:
    return f"unknown field {go_quoted(path)}"


def _duplicate(path: str) -> str:
    return f"duplicate field {go_quoted(path)}"


def _mixed(trace: Trace, unknown: frozenset[str]) -> Iterator[str]:
    skipped = ""  # the unknown field whose value is being read: nothing in it is looked at
    for path, again in trace:
        if skipped and path.startswith((f"{skipped}.", f"{skipped}[")):
            continue
        skipped = path if path in unknown else ""
        if not skipped and again:
            yield _duplicate(path)
        elif skipped and not again:
            yield _unknown(path)


def _by_parts(path: str) -> list[tuple[bool, int, str]]:
    """A key to sort paths as a decoder meets them: list items by number, fields by name."""
    return [(not name, int(index or 0), name) for index, name in _PART.findall(path)]


class _Pairs(list[tuple[str, Any]]):
    """An object's members in order, told apart from an array."""


def _trace(body: bytes) -> Iterator[tuple[str, bool]]:
    def walk(node: Any, path: str) -> Iterator[tuple[str, bool]]:
        if isinstance(node, _Pairs):
            seen = set()
            for key, value in node:
                at = f"{path}.{key}" if path else key
                yield at, key in seen
                seen.add(key)
                yield from walk(value, at)
        elif isinstance(node, list):
            for index, value in enumerate(node):
                yield from walk(value, f"{path}[{index}]")

    try:
        yield from walk(json.loads(body, object_pairs_hook=_Pairs), "")
    except (ValueError, RecursionError):
        return
