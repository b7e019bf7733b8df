"""The table of `decide`, row by row, and what the memory of applied children keeps."""
from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubectl_runtime import ApiResource, OwnerReference
from kubectl_runtime.client.api.client import Write
from kubectl_runtime.objects import ObjectRef
from kubectl_runtime.runtime.children import applied as room
from kubectl_runtime.runtime.children.applied import AppliedMemory, child_key, seen_of
from kubectl_runtime.runtime.children.decision import (
    PATIENCE,
    Applied,
    Contest,
    Do,
    Entry,
    Owner,
    Seen,
    Taken,
    decide,
    is_ours,
    taken_back,
)

OWNER = Owner("u", "g", "Site", "a", "m")
REF = OwnerReference(api_version="g/v1", kind="Site", name="a", uid="u", controller=True)
OTHER = msgspec.structs.replace(REF, name="b", uid="v")
EARLIER = msgspec.structs.replace(REF, uid="t")
LOOSE = msgspec.structs.replace(REF, controller=None)


def entry(manager: str = "m", fields: str = '{"f:data":{"f:a":{}}}', *, operation: str = "Apply", time: str = "t1",
          subresource: str = "") -> Entry:
    return Entry(manager, operation, "v1", subresource, msgspec.Raw(fields.encode()), time)


MINE = entry()


def seen(*entries: Entry, owners: tuple[OwnerReference, ...] = (REF,), version: str = "5", uid: str = "x",
         deleting: bool = False) -> Seen:
    return Seen(uid, version, deleting, owners, entries or (MINE,))


def known(**more: Any) -> Applied:
    return Applied(**{"digest": b"d", "uid": "x", "version": "5", "mark": MINE.mark, **more})


@pytest.mark.parametrize(("found", "ours"), [
    (seen(), True), (seen(owners=()), True), (seen(entry("k", operation="Update")), True),
    (seen(entry("k", operation="Update"), owners=(LOOSE,)), True),
    (seen(entry("k", operation="Update"), owners=()), False), (seen(entry("k"), owners=()), False),
    (seen(entry(operation="Update"), owners=()), False), (seen(entry(subresource="status"), owners=()), False),
    (seen(owners=(OTHER,)), False), (seen(owners=(OTHER, LOOSE)), False),
    (seen(owners=(EARLIER,)), True), (seen(entry("k"), owners=(EARLIER,)), False)])
def test_whose_an_object_is(found: Seen, ours: bool) -> None:
    assert is_ours(OWNER, found) is ours


CHANGED = entry(fields='{"f:data":{"f:b":{}}}', time="t2")
RIVAL = entry("r", '{"f:data":{"f:a":{}}}', time="t3")
TAKEN = Taken("r", frozenset({".data.a"}), 100.0)
CONTEST = Contest("r", frozenset({".data.a"}), RIVAL.mark)


@pytest.mark.parametrize(("found", "last", "do"), [
    (None, None, Do.CREATE), (None, known(), Do.CREATE),
    (seen(owners=(OTHER,)), known(), Do.REFUSE), (seen(entry("k"), owners=(), deleting=True), None, Do.REFUSE),
    (seen(deleting=True), known(), Do.WAIT),
    (seen(), None, Do.APPLY), (seen(), known(digest=b"e"), Do.APPLY), (seen(), known(uid="y"), Do.APPLY),
    (seen(), known(digest=b""), Do.APPLY),
    (seen(), known(), Do.KEEP), (seen(version="4"), known(), Do.KEEP), (seen(CHANGED, version="4"), known(), Do.APPLY),
    (seen(version="9"), known(), Do.KEEP), (seen(MINE, RIVAL, version="9"), known(), Do.KEEP),
    (seen(CHANGED, version="9"), known(), Do.APPLY), (seen(entry("k"), version="9"), known(), Do.APPLY),
    (seen(entry(time="t2"), version="9"), known(), Do.APPLY),
    (seen(entry(fields='{"f:data":{"f:a":{}},"f:x":{}}'), version="9"), known(), Do.APPLY),
    (seen(version="abc"), known(), Do.KEEP), (seen(CHANGED, version="abc"), known(), Do.APPLY),
    (seen(CHANGED, RIVAL, version="9"), known(), Do.APPLY),
    (seen(CHANGED, RIVAL, version="9"), known(taken=(TAKEN,)), Do.CONTESTED),
    (seen(CHANGED, RIVAL, version="9"), known(taken=(msgspec.structs.replace(TAKEN, at=-PATIENCE),)), Do.APPLY),
    (seen(CHANGED, RIVAL, version="9"), known(taken=(msgspec.structs.replace(TAKEN, manager="q"),)), Do.APPLY),
    (seen(CHANGED, entry("r", operation="Update"), version="9"), known(taken=(TAKEN,)), Do.APPLY),
    (seen(CHANGED, RIVAL, version="9"), known(contest=CONTEST), Do.CONTESTED),
    (seen(CHANGED, RIVAL, version="5"), known(contest=CONTEST), Do.CONTESTED),
    (seen(CHANGED, entry("r", "{}", time="t4"), version="9"), known(contest=CONTEST), Do.APPLY),
    (seen(CHANGED, RIVAL, version="9"), known(contest=CONTEST, digest=b"e"), Do.APPLY)])
def test_each_row(found: Seen | None, last: Applied | None, do: Do) -> None:
    assert decide(OWNER, b"d", found, last, 200.0)[0] is do


def test_an_older_version_is_a_watch_that_is_behind_for_a_while_where_that_may_be() -> None:
    old = seen(CHANGED, version="4")
    assert decide(OWNER, b"d", old, known(at=150.0), 200.0, may_lag=True)[0] is Do.KEEP
    assert decide(OWNER, b"d", old, known(at=139.0), 200.0, may_lag=True)[0] is Do.APPLY
    assert decide(OWNER, b"d", seen(CHANGED, version="9"), known(at=199.0), 200.0, may_lag=True)[0] is Do.APPLY


def test_adopt_takes_what_nothing_controls() -> None:
    for found, do in ((seen(entry("k"), owners=()), Do.APPLY), (seen(owners=(OTHER,)), Do.REFUSE),
                      (seen(entry("k"), owners=(), deleting=True), Do.REFUSE)):
        assert decide(OWNER, b"d", found, None, 0.0, adopt=True)[0] is do


def test_values_decide_where_they_are_known() -> None:
    later = seen(version="9")
    assert decide(OWNER, b"d", later, known(values=b"1"), 0.0, values=b"1")[0] is Do.KEEP
    assert decide(OWNER, b"d", later, known(values=b"1"), 0.0, values=b"2")[0] is Do.APPLY
    assert decide(OWNER, b"d", later, known(values=None), 0.0, values=b"2")[0] is Do.KEEP


def test_only_what_was_taken_from_appliers_is_remembered_and_for_a_while() -> None:
    before = seen(entry(fields='{"f:data":{"f:b":{}}}'), RIVAL, entry("u", operation="Update"))
    after = seen(entry(fields='{"f:data":{"f:a":{},"f:b":{},"f:c":{}}}'))
    assert taken_back("m", before, after, None, 7.0) == (Taken("r", frozenset({".data.a"}), 7.0),)
    old = known(taken=(Taken("q", frozenset({".x"}), 7.0 - PATIENCE),))
    assert [taken.manager for taken in taken_back("m", before, after, old, 7.0)] == ["r"]
    assert taken_back("m", after, after, known(taken=(TAKEN,)), 101.0) == (TAKEN,)


fields = st.recursive(st.just({}), lambda below: st.dictionaries(
    st.sampled_from(["f:a", "f:b", 'k:{"name":"x"}', 'v:"y"', "i:0", "."]), below, max_size=3), max_leaves=8)


@given(fields)
def test_an_entry_is_equal_to_itself_in_any_order(tree: Any) -> None:
    def turned(value: Any) -> Any:
        return {key: turned(below) for key, below in reversed(value.items())}

    one, other = (entry(fields=msgspec.json.encode(value).decode()) for value in (tree, turned(tree)))
    assert one.mark == other.mark
    assert one.fields() == other.fields()
    assert entry(fields=msgspec.json.encode({"f:more": tree}).decode()).mark != one.mark


KIND = ApiResource("", "v1", "ConfigMap", "configmaps")
KEY = child_key(KIND, "default", "x", "m")


def write(manager: str = "m", verb: str = "patch", version: str = "9", subresource: str | None = None) -> Write:
    return Write(ObjectRef(KIND, "x", "default"), verb, version, "x", None, subresource, None, manager)


@pytest.mark.parametrize(("what", "stays"), [
    (write(), False), (write(verb="apply"), False), (write(manager="other"), True), (write(manager=""), True),
    (write(subresource="status"), True)])
def test_another_write_under_our_manager_ends_what_was_known(what: Write, stays: bool) -> None:
    memory = AppliedMemory()
    memory.remember(KEY, known())
    memory.wrote(what)
    found = memory.get(KEY)
    assert found is not None
    assert (found.digest == b"d") is stays


def test_a_write_that_came_later_than_the_apply_stands_although_it_is_heard_of_before() -> None:
    memory = AppliedMemory()
    memory.remember(KEY, known())
    memory.wrote(write(version="9"))
    memory.remember(KEY, known(version="8"))
    found = memory.get(KEY)
    assert found is not None
    assert found.digest == b""
    memory.remember(KEY, known(version="10"))
    found = memory.get(KEY)
    assert found is not None
    assert found.digest == b"d"


def test_the_memory_is_bounded_and_forgets_what_was_looked_at_least_recently(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "MOST", 3)
    memory = AppliedMemory()
    keys = [child_key(KIND, "default", name, "m") for name in "abcd"]
    for key in keys[:3]:
        memory.remember(key, known())
    memory.get(keys[0])
    memory.remember(keys[3], known())
    assert [memory.get(key) is not None for key in keys] == [True, False, True, True]


def test_records_that_do_not_say_who_applied_what_decide_nothing() -> None:
    from kubectl_runtime.core.codec.jsonbytes import decode_object

    bare = decode_object(b'{"metadata":{"name":"x","uid":"u"}}', KIND)
    assert seen_of(bare) is None
    assert seen_of(bare, whole_truth=True) == Seen("u", "", False, (), ())
    broken = decode_object(b'{"metadata":{"name":"x","managedFields":[{"manager":5}]}}', KIND)
    assert seen_of(broken) is None
