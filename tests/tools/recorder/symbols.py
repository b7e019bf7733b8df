"""Replaces what differs from run to run in an answer by symbols: the same value always by the same symbol.

- ``{{ns}}`` and ``{{id}}`` stand for the vector's namespace and id, everywhere and in keys too;
- uids become ``$uid1``, ``$uid2``, ... in order of appearance (keys in alphabetical order, ``metadata`` last; the
  answers of ``given`` count); those that the vector spells out stay;
- ``metadata.resourceVersion`` becomes ``$rv1``, ``$rv2``, ...: equal versions stay equal, different ones different;
- that of a list or Table is ``$rv-now`` if it is at least that of every object seen so far, ``$rv-list`` if it is that
  of an earlier list although there have been changes since (a later page), else the symbol of the object that has it;
- that of a bookmark is ``$rv-now`` if it is at least that of every event before it, else ``$rv-behind``;
- times within a day of now become ``$time``, or ``$microtime`` if they have fractions; other times stay as they are;
- continue tokens become ``$continue``; names made from generateName become the prefix and ``$gen1``, ``$gen2``, ...;
- ``managedFields`` entries of the same operation are sorted by manager.

A server whose resourceVersions are no decimal numbers cannot be recorded.
"""

from __future__ import annotations

import copy
import datetime
import itertools
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

UUID = re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b")
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")


class Symbols:
    """Replaces values that differ from run to run by symbols; the same value always gets the same symbol."""

    def __init__(self, texts: Mapping[str, str], given: Iterable[str]) -> None:
        self.texts = dict(texts)  # literal text -> what stands for it: the namespace, the id, generated names
        self.given = set(given)  # uids that the vector itself spells out: they stay
        self.uids: dict[str, str] = {}
        self.rvs: dict[str, str] = {}
        self.lists: set[str] = set()
        self.generated = 0

    def normalise(self, value: Any) -> Any:
        """A copy of a JSON value with symbols in place of uids, resourceVersions, times, continue tokens and names."""
        if isinstance(value, list):
            return [self.normalise(item) for item in value]
        if isinstance(value, str):
            return self._text(value)
        if not isinstance(value, dict):
            return value
        return self._mapping(value, collection="items" in value or "rows" in value)

    def events(self, events: list[dict[str, Any]]) -> list[Any]:
        """Watch events; a bookmark's resourceVersion only tells whether it is at least that of the events before it."""
        newest, result = 0, list[Any]()
        for event in copy.deepcopy(events):
            metadata = (event.get("object") or {}).get("metadata") or {}
            version = int(metadata.get("resourceVersion") or 0)
            if event.get("type") == "BOOKMARK":
                symbol = "$rv-now" if version >= newest else "$rv-behind"
                metadata["resourceVersion"] = symbol
            newest = max(newest, version)
            result.append(self.normalise(event))
        return result

    def order(self, steps: Iterable[Mapping[str, Any]]) -> list[str]:
        """The resourceVersion symbols that occur in the steps' expected answers, from the lowest to the highest value.
        """
        shown = set(re.findall(r'"(\$rv\d+)"', json.dumps([step.get("expect") for step in steps])))
        return [self.rvs[version] for version in sorted(self.rvs, key=int) if self.rvs[version] in shown]

    def _mapping(self, value: dict[str, Any], collection: bool) -> dict[str, Any]:
        result: dict[str, Any] = {}
        for key in sorted(value, key=lambda key: (key == "metadata", key)):  # metadata last: items come before the list
            if key == "metadata" and isinstance(value[key], dict):
                result[key] = self._metadata(value[key], collection)
            else:
                result[key] = self.normalise(value[key])
        return {self._text(key): result[key] for key in value}  # numbered in sorted order, shown in the server's

    def _metadata(self, metadata: dict[str, Any], collection: bool) -> dict[str, Any]:
        metadata = dict(metadata)
        name, prefix, version = (metadata.get(key) or "" for key in ("name", "generateName", "resourceVersion"))
        if prefix and name.startswith(prefix) and name != prefix and name not in self.texts:
            self.generated += 1
            self.texts[name] = f"{self._text(prefix)}$gen{self.generated}"
        if version and not version.startswith("$"):
            metadata["resourceVersion"] = self._version(version, collection)
        if metadata.get("continue"):
            metadata["continue"] = "$continue"
        if isinstance(metadata.get("managedFields"), list):  # the server orders by time, in whole seconds: by chance
            groups = itertools.groupby(metadata["managedFields"], key=lambda entry: entry.get("operation"))
            metadata["managedFields"] = [entry for _, group in groups for entry in sorted(
                group, key=lambda e: (e.get("manager", ""), e.get("subresource", ""), e.get("apiVersion", "")))]
        return self._mapping(metadata, False)

    def _version(self, version: str, collection: bool) -> str:
        if collection and all(int(version) >= int(seen) for seen in self.rvs):
            self.lists.add(version)
            return "$rv-now"  # other writes on the server move this one, so its exact value means nothing
        if collection and version in self.lists:
            return "$rv-list"  # that of an earlier list although there have been changes since: a later page of it
        return self.rvs.setdefault(version, f"$rv{len(self.rvs) + 1}")

    def _text(self, text: str) -> str:
        for literal in sorted(self.texts, key=len, reverse=True):
            text = text.replace(literal, self.texts[literal])
        match = TIME.fullmatch(text)
        if match:
            age = datetime.datetime.now(datetime.UTC) - datetime.datetime.fromisoformat(text[:19] + "+00:00")
            if abs(age).days < 1:
                return "$microtime" if match[1] else "$time"
        return UUID.sub(lambda match: match[0] if match[0] in self.given else self.uids.setdefault(
            match[0], f"$uid{len(self.uids) + 1}"), text)
