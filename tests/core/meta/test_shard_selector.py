"""Ranges of the hash by which lists and watches are divided."""
from __future__ import annotations

import uuid
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubectl_runtime.core.meta.selectors import HASHES, ShardSelector, part_of_hash, shard_hash
from kubectl_runtime.core.requests.params import ListParams, WatchParams
from kubectl_runtime.errors import RequestError
from kubectl_runtime.watch import WatcherConfig


@pytest.mark.parametrize(("text", "found"), [("", 0xCBF29CE484222325), ("a", 0xAF63DC4C8601EC8C),
                                             ("foobar", 0x85944171F73967E8)])
def test_the_hash_is_fnv_1a_of_64_bits(text: str, found: int) -> None:
    assert shard_hash(text) == found


@given(st.text(), st.integers(1, 256))
def test_each_object_is_in_exactly_one_part(text: str, parts: int) -> None:
    number = part_of_hash(shard_hash(text), parts)
    assert [n for n in range(parts) if ShardSelector.part("uid", n, parts).matches(text, None)] == [number]
    assert ShardSelector.part("namespace", number, parts).matches("", text)


@pytest.mark.parametrize("text", ["", "a", "foobar", "6f0f5c3e-8e5c-4c7e-9a76-0d5d4f7d6c11"])
@pytest.mark.parametrize("by", ["uid", "namespace"])
def test_an_object_at_a_boundary_is_in_the_range_that_begins_there(text: str, by: Any) -> None:
    at, of = shard_hash(text), (text, None) if by == "uid" else ("", text)
    assert not ShardSelector(by, ((0, at),)).matches(*of)
    assert ShardSelector(by, ((at, at + 1),)).matches(*of)
    assert not ShardSelector(by, ((at + 1, HASHES),)).matches(*of)


@given(st.integers(1, 256))
def test_the_parts_are_the_whole_without_a_gap(parts: int) -> None:
    together = tuple(pair for n in range(parts) for pair in ShardSelector.part("uid", n, parts).ranges)
    assert ShardSelector("uid", together).ranges == ((0, HASHES),)
    assert all(before[1] == after[0] for before, after in pairwise(together))


def test_uids_are_divided_evenly() -> None:
    counts = [0] * 16
    for n in range(16_000):
        uid = uuid.UUID(int=n * 0x9E3779B97F4A7C15F39CC0605CEDC834 % (1 << 128))
        counts[part_of_hash(shard_hash(str(uid)), 16)] += 1
    assert min(counts) > 800
    assert max(counts) < 1200


def test_the_text_is_that_of_the_server() -> None:
    assert str(ShardSelector("namespace", ((0, 1), (HASHES - 1, HASHES)))) == (
        "shardRange(object.metadata.namespace, '0x0000000000000000', '0x0000000000000001') || "
        "shardRange(object.metadata.namespace, '0xffffffffffffffff', '0x10000000000000000')")
    smallest = "shardRange(object.metadata.uid, '0x0000000000000000', '0x0000000000000001')"
    assert str(ShardSelector("uid", ())) == smallest
    assert not ShardSelector("uid", ()).matches("anything", None)


def test_selectors_of_the_same_objects_are_equal() -> None:
    assert ShardSelector("uid", ((5, 9), (0, 5), (7, 8))) == ShardSelector("uid", ((0, 9),))
    assert hash(ShardSelector("uid", ((5, 9), (0, 5)))) == hash(ShardSelector("uid", ((0, 9),)))


@pytest.mark.parametrize("wrong", [
    lambda: ShardSelector("name"),  # type: ignore[arg-type]
    lambda: ShardSelector("uid", ((5, 5),)), lambda: ShardSelector("uid", ((-1, 5),)),
    lambda: ShardSelector("uid", ((0, HASHES + 1),)), lambda: ShardSelector("uid", ((0.0, 5),)),  # type: ignore[arg-type]
    lambda: ShardSelector("uid", "0-5"), lambda: ShardSelector("uid", None),  # type: ignore[arg-type]
    lambda: ShardSelector.part("uid", 16, 16), lambda: ShardSelector.part("uid", -1, 16),
    lambda: ShardSelector.part("uid", True, 16), lambda: ShardSelector.part("uid", 0, 0)])
def test_what_is_no_range_is_refused(wrong: Any) -> None:
    with pytest.raises(RequestError):
        wrong()


@pytest.mark.parametrize("kind", [ListParams, WatchParams, WatcherConfig])
@pytest.mark.parametrize("value", ["shardRange(object.metadata.uid, '0x0', '0x1')", ((0, 5),), 3])
def test_a_shard_is_a_value_and_never_text(kind: Any, value: Any) -> None:
    with pytest.raises(RequestError, match="a ShardSelector is expected"):
        kind(shard=value)


def test_requests_carry_it() -> None:
    part = ShardSelector.part("uid", 0, 2)
    assert dict(ListParams(shard=part, continue_token="x").query())["shardSelector"] == str(part)
    assert dict(WatchParams(shard=part).query())["shardSelector"] == str(part)
    assert "shardSelector" not in dict(ListParams().query())
