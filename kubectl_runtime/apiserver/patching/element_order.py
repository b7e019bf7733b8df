"""The order of a list that a strategic merge patch merged."""

from __future__ import annotations

from typing import Any

UNKNOWN = -1


def by_key(item: Any, key: str) -> Any:
    """What identifies an item of a merged list: the value of its merge key, or itself if the list has none."""
    value = item.get(key) if key and isinstance(item, dict) else item
    return str(value) if isinstance(value, dict | list) else value


def in_order(merged: list[Any], wanted: list[Any], before: list[Any], key: str) -> list[Any]:
    """The merged list: items named in `wanted` in that order, the server's own in the order of `before` (the live
    list).

    An item of the server goes in front of a wanted one if it stood in front of it before; otherwise, and so before
    any item that is new, it comes after.
    """
    rank = _ranks(wanted, key)
    live = _ranks(before, key)
    named = sorted((item for item in merged if by_key(item, key) in rank), key=lambda item: rank[by_key(item, key)])
    own = sorted((item for item in merged if by_key(item, key) not in rank),
                 key=lambda item: live.get(by_key(item, key), len(live)))
    result: list[Any] = []
    position = 0
    for item in named:
        here = live.get(by_key(item, key), UNKNOWN)
        while position < len(own) and UNKNOWN < live.get(by_key(own[position], key), UNKNOWN) < here:
            result.append(own[position])
            position += 1
        result.append(item)
    return result + own[position:]


def _ranks(items: list[Any], key: str) -> dict[Any, int]:
    ranks: dict[Any, int] = {}
    for index, item in enumerate(items):
        ranks.setdefault(by_key(item, key), index)
    return ranks
