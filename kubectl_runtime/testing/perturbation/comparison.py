"""Two runs compared: in what their ends differ, and the first write with which one left the other's way.

    the disturbed run's first write that brought an object which ends differently into a state that it did not have
    from there on in the undisturbed run, or made one too many of it
    else the undisturbed run's first write to such an object that was not made any more
"""
from __future__ import annotations

from collections import Counter
from typing import Any

from kubectl_runtime.testing.perturbation.journal import Entry, Identity, Journal
from kubectl_runtime.testing.perturbation.normal_form import MISSING, Forms, Path, State, differing, shown

LONGEST = 120
"""Characters of a value that are shown."""

Mask = frozenset[tuple[Identity, Path]]
"""Where objects differ between any two runs: what a program draws at random."""


class Outcome:
    """A run that has ended, as it is compared."""

    def __init__(self, journal: Journal, end: State) -> None:
        self.journal = journal
        self.forms = Forms(journal, end)

    @property
    def objects(self) -> dict[Identity, list[Any]]:
        """The objects of the run, in comparable form, by identity."""
        return self.forms.objects

    def states(self, entry: Entry) -> list[tuple[Identity, Any]]:
        """What a write made, in comparable terms; the form is None for gone."""
        return [(self.forms.name(identity), None if version is None else self.forms.form(version))
                for identity, version in entry.made]


def random_places(one: Outcome, other: Outcome) -> Mask:
    """Where two undisturbed runs differ. Raises ValueError, in words, when it is in what objects there are."""
    counts = {name: (len(one.objects.get(name, [])), len(other.objects.get(name, [])))
              for name in {*one.objects, *other.objects}}
    different = sorted(shown(name) for name, (left, right) in counts.items() if left != right)
    if different:
        raise ValueError("even undisturbed the story does not end in the same objects twice, so that there is nothing "
                         f"to compare with: {', '.join(different[:10])}")
    return frozenset((name, path) for name in one.objects
                     for left, right in zip(one.objects[name], other.objects[name], strict=True)
                     for path, _, _ in differing(left, right))


def difference(plain: Outcome, disturbed: Outcome, mask: Mask) -> dict[Identity, list[str]]:
    """In what the ends differ, in lines for people, by object; empty when they do not."""
    found: dict[Identity, list[str]] = {}
    for name in [*plain.objects, *(name for name in disturbed.objects if name not in plain.objects)]:
        before, after = plain.objects.get(name, []), disturbed.objects.get(name, [])
        lines = _of_one(name, before, after, mask)
        if lines:
            found[name] = lines
    return found


def _of_one(name: Identity, before: list[Any], after: list[Any], mask: Mask) -> list[str]:
    if len(before) != len(after):
        if not after:
            return [f"{shown(name)} is missing"]
        if not before:
            return [f"{shown(name)} is there and should not be"]
        return [f"{shown(name)}: there are {len(after)}, not {len(before)}"]
    return [f"{shown(name)}: {'.'.join(path)} {_is_not(name, path, there, wanted)}"
            for one, other in zip(before, after, strict=True) for path, wanted, there in differing(one, other)
            if (name, path) not in mask]


def _is_not(name: Identity, path: Path, there: Any, wanted: Any) -> str:
    """Two values in words; of a Secret's content only whether it is there."""
    if name[0] == "secrets" and path[:1] in (("data",), ("stringData",)):
        return "is missing" if there is MISSING else "should be missing" if wanted is MISSING else "has another value"
    return f"is {_short(there)}, not {_short(wanted)}"


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"


def first_diverging(plain: Outcome, disturbed: Outcome, differ: set[Identity], mask: Mask) -> str:
    """The write, in words; see the module."""
    way = {name: _way(plain, name, mask) for name in differ}
    births = Counter(plain.forms.name(identity) for identity, _ in plain.journal.known.values())
    born: dict[Identity, set[str]] = {}
    reached = dict.fromkeys(differ, 0)
    for entry in disturbed.journal.entries:
        for (_, version), (name, form) in zip(entry.made, disturbed.states(entry), strict=True):
            if name not in differ:
                continue
            uids = born.setdefault(name, set())
            if version is not None:
                uids.add(version.uid)
            on = next((place for place in range(max(0, reached[name] - 1), len(way[name]))
                       if _alike(form, way[name][place][0], name, mask)), None)
            if on is None or len(uids) > births[name]:
                return str(entry)
            reached[name] = on + 1
    missing = [way[name][reached[name]][1] for name in differ if reached[name] < len(way[name])]
    if missing:
        return f"never made: {min(missing, key=plain.journal.entries.index)}"
    return "none: no write made the difference"


def _way(run: Outcome, name: Identity, mask: Mask) -> list[tuple[Any, Entry]]:
    """The states that an object went through, one after the other, and the writes that made them."""
    found: list[tuple[Any, Entry]] = []
    for entry in run.journal.entries:
        for there, form in run.states(entry):
            if there == name and not (found and _alike(found[-1][0], form, name, mask)):
                found.append((form, entry))
    return found


def _alike(one: Any, other: Any, name: Identity, mask: Mask) -> bool:
    if one is None or other is None:
        return one is other
    return all((name, path) in mask for path, _, _ in differing(one, other))
