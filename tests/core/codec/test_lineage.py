"""Lists of records in views: found in one order by the quick walks and by the general one."""
from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest

from kubectl_runtime.core.base.plain import to_plain
from kubectl_runtime.core.codec.lineage import RecordLists, View
from kubectl_runtime.core.meta.metav1 import ObjectMeta, OwnerReference, Part


class Leaf(Part):
    size: int = 0


class Tree(Part):
    """A type within itself."""

    leaves: list[Leaf] = msgspec.field(default_factory=list)
    branches: list[Tree] = msgspec.field(default_factory=list)
    by_name: dict[str, Tree] = msgspec.field(default_factory=dict)


@dataclass
class Bag:
    rows: list[list[Leaf]] = field(default_factory=list)
    one_or_many: Leaf | list[Tree] | None = None
    tree: Tree | None = None
    names: list[str] = field(default_factory=list)
    pair: tuple[Leaf, ...] = ()
    by_number: dict[int, list[Leaf]] = field(default_factory=dict)


class Only(Part):
    """Nothing but itself below it."""

    size: int = 0
    inner: list[Only] = msgspec.field(default_factory=list)


class Door(Part):
    """One list, behind another record."""

    only: Only | None = None


A, B, C, D, E, F = (Leaf(size=size) for size in range(6))


def tree(*leaves: Leaf, **more: Any) -> Tree:
    return Tree(leaves=list(leaves), **more)


@pytest.mark.parametrize(("hint", "view", "expected"), [
    (Tree, tree(A, branches=[tree(B), tree()], by_name={"x": tree(C, D)}), 4),
    (Bag, Bag(rows=[[A, B], [], [C]], one_or_many=[tree(D)], tree=tree(E), names=["x"], pair=(F,)), 7),
    (Bag, Bag(one_or_many=A, by_number={1: [B], 2: [C, D]}), 2),
    (ObjectMeta, ObjectMeta(name="a", owner_references=[OwnerReference(uid="u")], finalizers=["f"]), 1),
    (Only, Only(inner=[Only(inner=[Only(), Only()]), Only()]), 2),
    (Door, Door(only=Only(inner=[Only(inner=[Only()])])), 2),
    (list[Door], [Door(only=Only(inner=[Only()])), Door()], 2),
    (list[Leaf], [A, B], 1), (dict[str, list[Leaf]], {"a": [A], "b": []}, 1)])
def test_both_walks_find_the_same_lists_in_the_same_order(hint: Any, view: Any, expected: int) -> None:
    lists = RecordLists.of(hint)
    assert lists is not None
    kept = lists.items(view)
    assert len(kept) == expected
    plain = to_plain(view)
    lineage = lists.lineage(kept, View(view, plain), View(view, plain))
    assert not lineage.moved
    found = list(lineage._places.values())
    assert found == [tuple((number, index) for index in range(len(items))) for number, items in enumerate(kept)]


@pytest.mark.parametrize("hint", [int, Leaf, dict[str, Any], list[str], list[dict[str, Any]], Any])
def test_what_has_no_lists_of_records_is_never_walked(hint: Any) -> None:
    assert RecordLists.of(hint) is None


def test_an_item_in_another_list_is_a_new_one_there() -> None:
    lists = RecordLists.of(Bag)
    assert lists is not None
    bag = Bag(tree=tree(A, B), by_number={1: [C]})
    kept, base = lists.items(bag), View(bag, to_plain(bag))
    now = Bag(tree=tree(B, C), by_number={1: [A]})
    plain = to_plain(now)
    lineage = lists.lineage(kept, base, View(now, plain))
    assert lineage.origins(base.plain["tree"]["leaves"], plain["tree"]["leaves"]) == [1, None]
    assert lineage.origins(base.plain["byNumber"][1], plain["byNumber"][1]) == [None]
    assert lineage.moved
