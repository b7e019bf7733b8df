"""`Plan`: the result of a plan. It is printed as text for a terminal, as plain JSON values, or as one HTML page.

The text lists CustomResourceDefinitions first, then the changes in order, then failures, loops and unknowns. If several
changes differ only in names, three are printed and the rest are counted. The last lines count all changes, and name
what was not simulated.
"""
from __future__ import annotations

import base64
import binascii
import html
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Any
from urllib.parse import quote, quote_plus

import msgspec

from kubectl_runtime.core.meta.gvk import ObjectRef
from kubectl_runtime.core.meta.problems import DECODE_FAILURES
from kubectl_runtime.runtime.logs import said

STARS = "***"


def secret_values(obj: Mapping[str, Any]) -> set[str]:
    """Return every form in which a text may quote a Secret's values: plain, base64, hexadecimal, URL-encoded, escaped,
    each line alone, and the texts inside of a JSON document. Forms shorter than four characters are left out."""
    found: set[str] = set()
    for value in map(str, [*(obj.get("data") or {}).values(), *(obj.get("stringData") or {}).values()]):
        try:
            plain = base64.b64decode(value, validate=True)
        except (binascii.Error, ValueError):
            plain = value.encode("utf-8", "surrogatepass")
        found |= {value, base64.b64encode(value.encode("utf-8", "surrogatepass")).decode(), plain.hex(),
                  base64.urlsafe_b64encode(plain).decode(), quote(plain), quote(plain, safe=""), quote_plus(plain)}
        with suppress(UnicodeDecodeError):
            text = plain.decode()
            found |= {text, *text.splitlines(), *_leaves(text), html.escape(text), repr(text)[1:-1],
                      msgspec.json.encode(text).decode()[1:-1]}
    return {text for text in found if len(text) >= _LEAST}


_LEAST = 4


def _leaves(text: str) -> Iterator[str]:
    """The texts inside of a JSON document, such as the password in a Docker configuration."""
    if not text.lstrip().startswith(("{", "[")):
        return
    try:
        waiting = [msgspec.json.decode(text)]
    except DECODE_FAILURES:
        return
    while waiting:
        value = waiting.pop()
        if isinstance(value, str):
            yield value
        elif isinstance(value, dict | list):
            waiting += value.values() if isinstance(value, dict) else value


_TOKEN = re.compile(r"[A-Za-z0-9+/_-]{12,}={0,2}")
"""Matches text that may be base64."""
_INSIDE = 8
"""The minimum length of a secret that is searched for inside of base64, where shorter texts occur by chance."""


class Hidden:
    """Replaces secret texts with stars, wherever they are quoted, in upper or lower case."""

    def __init__(self, secrets: Iterable[str]) -> None:
        self._by_start: dict[str, list[str]] = {}
        for secret in sorted(map(_lower, secrets), key=len, reverse=True):  # the longest first: it may contain others
            self._by_start.setdefault(secret[:_LEAST], []).append(secret)

    def text(self, text: str, least: int = 0) -> str:
        """`text` with stars for secrets of at least `least` characters, and for base64 that contains a secret, such as
        encoded `user:password`."""
        if not self._by_start:
            return text
        return self._without(_TOKEN.sub(lambda found: STARS if self._is_inside(found[0]) else found[0], text), least)

    def _is_inside(self, token: str) -> bool:
        plain = base64.urlsafe_b64decode(token.rstrip("=").translate(_URL_SAFE) + "==").decode("utf-8", "replace") \
            if len(token.rstrip("=")) % 4 != 1 else ""
        return self._without(plain, _INSIDE) != plain

    def _without(self, text: str, least: int) -> str:
        found, at, kept = [], 0, 0
        low = _lower(text)
        while at <= len(text) - _LEAST:
            for secret in self._by_start.get(low[at:at + _LEAST], ()):
                if len(secret) >= least and low.startswith(secret, at):
                    found += [text[kept:at], STARS]
                    at = kept = at + len(secret)
                    break
            else:
                at += 1
        return "".join([*found, text[kept:]]) if kept else text

    def key(self, text: str) -> str:
        """A path or map key with stars for secrets. Short secrets stay, since texts such as `data` or `admin` are plain
        words in a key."""
        return self.text(text, least=12)

    def value(self, value: Any) -> Any:
        """A JSON value with stars for secrets in its values and keys."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {self.key(key): self.value(part) for key, part in value.items()}
        return [self.value(part) for part in value] if isinstance(value, list) else value


_URL_SAFE = str.maketrans("+/", "-_")


def _lower(text: str) -> str:
    """`text` in lower case, in which each character keeps its index."""
    low = text.lower()
    return low if len(low) == len(text) else "".join(one if len(one.lower()) != 1 else one.lower() for one in text)


@dataclass(frozen=True)
class FieldChange:
    """One changed field. `before` and `after` are None for a missing value, and stars for a secret value. `owner`: the
    other field managers (not the program's) that owned the field, or an empty text.

    >>> print(FieldChange("spec.replicas", 2, 3, owner="kubectl"))
    spec.replicas: 2 -> 3   (owned by kubectl)
    """

    path: str
    before: Any
    after: Any
    owner: str = ""

    def __str__(self) -> str:
        owner = f"   (owned by {self.owner})" if self.owner else ""
        return f"{self.path}: {_shown(self.before)} -> {_shown(self.after)}{owner}"


def _shown(value: Any) -> str:
    text = "nothing" if value is None else STARS if value == STARS else msgspec.json.encode(value).decode()
    return text if len(text) <= 100 else f"{text[:99]}…"


@dataclass(frozen=True)
class Problem:
    """An object whose run failed, or for which the result of the plan is unknown. `object`: the object's name;
    `reason`: the error, or the cause of the unknown result; `line`: the line of code; `by`: the controller.

    >>> print(Problem("ConfigMap default/settings", "KeyError: 'color'", by="configmap"))
    ConfigMap default/settings: KeyError: 'color'  (configmap)
    """

    object: str
    reason: str
    line: str = ""
    by: str = ""

    def __str__(self) -> str:
        more = ", ".join(part for part in (self.line, self.by) if part)
        return f"{self.object}: {self.reason}" + (f"  ({more})" if more else "")


@dataclass(frozen=True)
class Change:
    """An object that the program creates, changes or deletes. `by`: the cause, which is a run, the definitions or the
    given manifests; `at`: simulated seconds after the start; `follows`: the cluster's actions that follow from the
    change, as text; `difference`: a unified diff of YAML.

    >>> change = Change("delete", ObjectRef.of(ConfigMap, "settings", "default"), by="the program", at=2.5)
    >>> print(change)
    delete ConfigMap default/settings
    """

    action: str
    """`create`, `change` or `delete`."""
    ref: ObjectRef
    by: str
    at: float
    fields: tuple[FieldChange, ...] = ()
    follows: tuple[str, ...] = ()
    difference: str = field(default="", repr=False)

    def __str__(self) -> str:
        return f"{self.action} {said(self.ref)}"


@dataclass(frozen=True)
class Plan:
    """The changes that a program would make to a cluster. `str(plan)` is the output of `kubectl-runtime plan`.

    >>> found = Plan(created=(), changed=(), deleted=(), failed=(), unknown=(), loops=(), definitions=(),
    ...              not_simulated=(), changes=())
    >>> found.empty, found.changes
    (True, ())
    """

    created: tuple[Change, ...]
    changed: tuple[Change, ...]
    deleted: tuple[Change, ...]
    failed: tuple[Problem, ...]
    """Objects whose last run raised an error, with the error and the line of code that raised it."""
    unknown: tuple[Problem, ...]
    """The unknown parts of the plan, each with the reason: a missing permission, a kind that was not read, or refused
    outside access."""
    loops: tuple[Problem, ...]
    """Objects that the program was still changing when the plan ended."""
    definitions: tuple[Problem, ...]
    """Parts of the cluster's CRDs that the program's CRDs remove, and the reason if the server refuses a CRD of the
    program."""
    not_simulated: tuple[str, ...]
    """What was not simulated, as text: kinds whose controllers did not run, and parts of the program."""
    changes: tuple[Change, ...]
    """All of `created`, `changed` and `deleted`, in the order in which they happen."""
    source: str = ""
    seconds: float = 0.0
    """How long the program ran, in simulated seconds."""
    runs: int = 0

    @property
    def empty(self) -> bool:
        """Whether nothing would change, nothing is unknown, and nothing fails."""
        return not (self.changes or self.failed or self.unknown or self.loops or self.definitions)

    def __str__(self) -> str:
        return "\n".join(_lines(self))

    def to_dict(self) -> dict[str, Any]:
        """The plan as plain JSON values."""
        return _plain(self)

    def to_html(self) -> str:
        """The plan as one self-contained HTML page."""
        return _page(self)


SHOWN = 3
"""The number of changes that are printed of a larger group of changes that differ only in names."""
MOST_FIELDS = 12
_SIGNS = {"create": "+", "change": "~", "delete": "-"}


def summary(plan: Plan) -> str:
    """One line with the number of changes, failures and unknowns."""
    parts = [f"{len(plan.created)} to create", f"{len(plan.changed)} to change", f"{len(plan.deleted)} to delete"]
    for word, found in (("failing", plan.failed), ("not coming to rest", plan.loops), ("unknown", plan.unknown)):
        if found:
            parts.append(f"{len(found)} {word}")
    return ", ".join(parts)


def grouped(plan: Plan) -> list[tuple[Change, int]]:
    """The changes to print, each with the number of similar changes that are left out after it."""
    counts = Counter(signature(change) for change in plan.changes)
    seen: Counter[Any] = Counter()
    found: list[tuple[Change, int]] = []
    for change in plan.changes:
        kind = signature(change)
        seen[kind] += 1
        if counts[kind] <= SHOWN + 1 or seen[kind] <= SHOWN:
            found.append((change, counts[kind] - SHOWN if seen[kind] == SHOWN < counts[kind] - 1 else 0))
    return found


def signature(change: Change) -> Any:
    """A text that is equal for changes that differ only in the names of their objects."""
    names = (change.ref.namespace or "", change.ref.name)
    return (change.action, change.ref.resource.full_name, change.by.partition(",")[0],
            tuple(_general(str(one), names) for one in change.fields),
            tuple(_general(text, names) for text in change.follows))


def _general(text: str, names: tuple[str, ...]) -> str:
    """A text in which these names are replaced, so that texts about different objects can be compared."""
    for name in filter(None, names):
        text = re.sub(rf"(?<!\w){re.escape(name)}(?!\w)", "<name>", text)
    return text


def _alike(problems: tuple[Problem, ...]) -> list[tuple[Problem, int]]:
    """The problems to print, each with the number of similar problems that are left out after it."""
    def signature(problem: Problem) -> Any:
        kind, _, name = problem.object.partition(" ")
        return kind, problem.by, problem.line, _general(problem.reason, tuple(name.split("/")))
    counts = Counter(map(signature, problems))
    seen: Counter[Any] = Counter()
    found: list[tuple[Problem, int]] = []
    for problem in problems:
        kind = signature(problem)
        seen[kind] += 1
        if counts[kind] <= SHOWN + 1 or seen[kind] <= SHOWN:
            found.append((problem, counts[kind] - SHOWN if seen[kind] == SHOWN < counts[kind] - 1 else 0))
    return found


def _lines(plan: Plan) -> Iterator[str]:
    yield from _problems("definitions", plan.definitions, "!")
    for change, more in grouped(plan):
        yield from _change(change)
        if more:
            yield f"    and {more} alike"
    if plan.changes:
        yield ""
    yield from _problems("failing", plan.failed, "!")
    yield from _problems("not coming to rest", plan.loops, "!")
    yield from _problems("unknown", plan.unknown, "?")
    yield summary(plan)
    if plan.not_simulated:
        yield f"not simulated: {'; '.join(plan.not_simulated)}"
    if not plan.runs:
        yield "nothing ran: the program has no object to reconcile in what was read"
    yield f"({plan.runs} run{'' if plan.runs == 1 else 's'} in {plan.seconds:g} simulated seconds on {plan.source})"


def _problems(title: str, problems: tuple[Problem, ...], sign: str) -> Iterator[str]:
    if not problems:
        return
    yield f"{title}:"
    for problem, more in _alike(problems):
        yield f"{sign} {printable(str(problem))}"
        if more:
            yield f"    and {more} alike"
    yield ""


def _change(change: Change) -> Iterator[str]:
    yield f"{_SIGNS[change.action]} {printable(said(change.ref))}{_cause(change)}"
    for one in change.fields[:MOST_FIELDS]:
        yield f"      {printable(str(one))}"
    if len(change.fields) > MOST_FIELDS:
        yield f"      and {len(change.fields) - MOST_FIELDS} more fields"
    for follows in change.follows:
        yield f"    => {printable(follows)}"


def _cause(change: Change) -> str:
    late = f", after {change.at:g} s" if change.at >= 1 else ""
    return f"   ({printable(change.by)}{late})" if change.by else late


def printable(text: str) -> str:
    """`text` without characters that move the cursor."""
    return "".join(character if character.isprintable() else " " for character in text)


def _plain(plan: Plan) -> dict[str, Any]:
    return {"empty": plan.empty, "source": plan.source, "seconds": plan.seconds, "runs": plan.runs,
            "counts": {"create": len(plan.created), "change": len(plan.changed), "delete": len(plan.deleted),
                       "failed": len(plan.failed), "loops": len(plan.loops), "unknown": len(plan.unknown)},
            "definitions": [asdict(problem) for problem in plan.definitions],
            "changes": [_plain_change(change) for change in plan.changes],
            "failed": [asdict(problem) for problem in plan.failed],
            "loops": [asdict(problem) for problem in plan.loops],
            "unknown": [asdict(problem) for problem in plan.unknown],
            "not_simulated": list(plan.not_simulated)}


def _plain_change(change: Change) -> dict[str, Any]:
    return {"action": change.action, "apiVersion": change.ref.resource.api_version, "kind": change.ref.kind,
            "namespace": change.ref.namespace, "name": change.ref.name, "by": change.by, "at": change.at,
            "fields": [_plain_field(one) for one in change.fields], "follows": list(change.follows),
            "difference": change.difference}


def _plain_field(one: FieldChange) -> dict[str, Any]:
    return {"path": one.path, "before": one.before, "after": one.after, "owner": one.owner}


_STYLE = """body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}
body{color:#222;background:#fff}
h1{font-size:1.3rem}h2{font-size:1.05rem;margin-top:2rem}li{margin:.4rem 0}ul{padding-left:1.2rem}
code,pre{font:13px/1.45 ui-monospace,monospace}pre{overflow-x:auto;background:#f5f5f5;padding:.6rem}
.create{color:#1a7f37}.delete,.bad{color:#b42318}.change{color:#8a5a00}.note{color:#666}
@media(prefers-color-scheme:dark){body{color:#ddd;background:#1b1b1b}pre{background:#262626}.note{color:#999}
.create{color:#5bd37f}.delete,.bad{color:#ff8a80}.change{color:#f0b95a}}"""


def _page(plan: Plan) -> str:
    """The plan as one HTML page without scripts."""
    def quoted(value: object) -> str:
        return html.escape(printable(str(value)))

    parts = ["<!DOCTYPE html><html lang=en><meta charset=utf-8>", "<meta name=viewport content='width=device-width'>",
             f"<title>Plan: {quoted(summary(plan))}</title><style>{_STYLE}</style>",
             f"<h1>{quoted(summary(plan))}</h1><p class=note>{quoted(plan.source)}; {plan.runs} runs in "
             f"{plan.seconds:g} simulated seconds</p>"]
    for title, problems in (("Definitions", plan.definitions), ("Failing", plan.failed),
                            ("Not coming to rest", plan.loops), ("Unknown", plan.unknown)):
        if problems:
            items = "".join(f"<li class=bad>{quoted(problem)}{f' and {more} alike' if more else ''}</li>"
                            for problem, more in _alike(problems))
            parts.append(f"<h2>{title}</h2><ul>{items}</ul>")
    if plan.changes:
        parts.append("<h2>Changes</h2><ul>")
        for change, more in grouped(plan):
            fields = "".join(f"<li><code>{quoted(one)}</code></li>" for one in change.fields)
            follows = "".join(f"<li>&rArr; {quoted(text)}</li>" for text in change.follows)
            diff = f"<details><summary>difference</summary><pre>{html.escape(change.difference)}</pre></details>" \
                if change.difference else ""
            alike = f"<p class=note>and {more} alike</p>" if more else ""
            title = f"<span class={change.action}>{change.action} {quoted(said(change.ref))}</span>"
            parts.append(f"<li>{title}<span class=note>{quoted(_cause(change))}</span>"
                         f"<ul>{fields}{follows}</ul>{diff}{alike}</li>")
        parts.append("</ul>")
    if plan.not_simulated:
        items = "".join(f"<li>{quoted(text)}</li>" for text in plan.not_simulated)
        parts.append(f"<h2>Not simulated</h2><ul>{items}</ul>")
    return "\n".join(parts) + "\n"
