"""The three-way merge behind `replace`: what was received, plus what a reader changed in his view of it.

    merge(received, base, now)

`base` is the view as it was decoded and `now` as it is, both as plain JSON values, so that what the view's types add
(defaults, normal forms of dates) cancels out. `received` is the JSON itself, with everything that the view never saw.

    now equals base          received stays, byte for byte
    maps                     key by key: changed keys are merged, new ones added, removed ones removed
    lists with `MapKeys`     item by item, told apart by these keys, in the order of `now`
    lists of equal length    item by item, by position
    other lists              replaced if the view shows all there is (nothing can be lost); else WriteBackError(path)
    anything else            the new value
"""
from __future__ import annotations

from typing import Any

from kubectl_runtime.core.base.errors import WriteBackError
from kubectl_runtime.core.base.wire import map_keys, member_type

ABSENT: Any = object()
"""No value: a key that is not there, before or after."""


def merge(received: Any, base: Any, now: Any, path: str = "$", hint: Any = Any) -> Any:
    """What to send. Changes none of its arguments; parts of them are shared with the result.

    `hint` is the declared type, where `MapKeys` marks are looked for. Raises WriteBackError.
    """
    if _same(base, now):
        return received
    if received is ABSENT or received is None:
        received = _empty_like(now)
    if isinstance(received, dict) and isinstance(now, dict):
        return _merge_maps(received, base if isinstance(base, dict) else {}, now, path, hint)
    if isinstance(received, list) and isinstance(base, list) and isinstance(now, list):
        return _merge_lists(received, base, now, path, hint)
    return now


def _empty_like(now: Any) -> Any:
    return type(now)() if isinstance(now, dict | list) else ABSENT


def _same(base: Any, now: Any) -> bool:
    """Equality that tells true from 1, which Python's does not: the API server does."""
    if isinstance(base, dict) and isinstance(now, dict):
        return base.keys() == now.keys() and all(_same(value, now[key]) for key, value in base.items())
    if isinstance(base, list) and isinstance(now, list):
        return len(base) == len(now) and all(map(_same, base, now))
    return type(base) is type(now) and bool(base == now)


def _merge_maps(received: dict[str, Any], base: dict[str, Any], now: dict[str, Any], path: str, hint: Any) -> Any:
    merged = {key: value for key, value in received.items() if key in now or key not in base}
    for key, value in now.items():
        inner = merge(received.get(key, ABSENT), base.get(key, ABSENT), value, f"{path}.{key}", member_type(hint, key))
        if inner is not ABSENT:
            merged[key] = inner
    return merged


def _merge_lists(received: list[Any], base: list[Any], now: list[Any], path: str, hint: Any) -> list[Any]:
    if _same(received, base):
        return now
    item = member_type(hint, None)
    if keys := map_keys(hint):
        return _merge_by_key((received, base, now), path, item, keys)
    if len(received) == len(base) == len(now):
        by_position = enumerate(zip(received, base, now, strict=True))
        return [merge(*parts, f"{path}[{index}]", item) for index, parts in by_position]
    if not received:
        return now
    raise WriteBackError(path, "the length of this list changed, and its items have fields that the view does not "
                               "declare: declare them, mark the list with MapKeys, or use patch or apply")


def _merge_by_key(lists: tuple[list[Any], list[Any], list[Any]], path: str, item: Any,
                  keys: tuple[str, ...]) -> list[Any]:
    held, seen, wanted = (_by_key(items, keys, path) for items in lists)
    merged = [merge(held.get(key, ABSENT), seen.get(key, ABSENT), value, f"{path}[{_label(key)}]", item)
              for key, value in wanted.items()]
    unseen = [value for key, value in held.items() if key not in seen]
    return merged + unseen


def _by_key(items: list[Any], keys: tuple[str, ...], path: str) -> dict[tuple[Any, ...], Any]:
    found: dict[tuple[Any, ...], Any] = {}
    for item in items:
        key = tuple(_scalar(item.get(name)) if isinstance(item, dict) else None for name in keys)
        if key in found:
            raise WriteBackError(path, f"two items have the same {', '.join(keys)} ({_label(key)})")
        found[key] = item
    return found


def _scalar(value: Any) -> Any:
    return value if isinstance(value, str | int | float | bool) else None


def _label(key: tuple[Any, ...]) -> str:
    return ",".join(map(str, key))
