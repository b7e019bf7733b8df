"""From bytes to records: one bad object breaks nothing, and says which it is."""
from __future__ import annotations

import enum
from collections.abc import Callable
from typing import Any, Literal

import msgspec
import pytest

from kubectl_runtime.core.base.errors import Status
from kubectl_runtime.core.codec.jsonbytes import Bookmark, decode_event, decode_list, decode_object
from kubectl_runtime.core.codec.views import Record
from kubectl_runtime.core.meta.problems import DecodeError, is_no_utf8, problem_of
from kubectl_runtime.core.objects.partial import FieldsForm
from kubectl_runtime.core.objects.resource import Resource
from kubectl_runtime.objects import PartialView
from tests.core.examples import PODS, encoded, event, metadata

DEEP = b"[" * 100_000 + b"]" * 100_000


def record_of(line: bytes) -> Record:
    _, carried = decode_event(line, PODS)
    assert isinstance(carried, Record)
    return carried


def page(*items: Any, **fields: Any) -> bytes:
    return encoded({"kind": "PodList", "apiVersion": "v1", "metadata": {"resourceVersion": "9"}, "items": items,
                    **fields})


def test_a_head_holds_the_metadata_that_the_library_works_with() -> None:
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "r", "uid": "u-2", "controller": True}
    head = decode_object(encoded({"metadata": metadata(
        generation=3, deletionTimestamp="2026-01-02T00:00:00Z", labels={"a": "b"}, finalizers=["f"],
        ownerReferences=[owner])}), PODS).head
    assert (head.name, head.namespace, head.uid, head.resource_version, head.generation) == ("a", "ns", "u-1", "5", 3)
    assert head.deletion_timestamp == "2026-01-02T00:00:00Z"
    assert (head.labels, head.finalizers) == ({"a": "b"}, ("f",))
    assert head.owner_references is not None
    assert (head.owner_references[0].kind, head.owner_references[0].group) == ("ReplicaSet", "apps")


def test_a_watch_object_keeps_its_line_without_a_copy() -> None:
    line = event("MODIFIED", {"metadata": metadata()})
    kind, carried = decode_event(line, PODS)
    assert kind == "MODIFIED"
    assert isinstance(carried, Record)
    assert carried.raw is line
    assert carried.enveloped


def test_list_items_are_copied_out_of_their_page() -> None:
    meta, records = decode_list(page({"metadata": metadata("a")}, {"metadata": metadata("b")},
                                     metadata={"resourceVersion": "9", "continue": "tok", "remainingItemCount": 7}),
                                PODS)
    assert (meta.resource_version, meta.continue_token, meta.remaining_item_count) == ("9", "tok", 7)
    assert [record.name for record in records] == ["a", "b"]
    assert all(type(record.raw) is bytes and not record.enveloped for record in records)


class Nothing(PartialView, frozen=True):
    """Metadata alone."""


@pytest.mark.parametrize("decode", [
    lambda raw: decode_list(b'{"kind":"PodList","items":[%b]}' % raw, PODS),
    lambda raw: decode_object(raw, PODS),
    lambda raw: FieldsForm(PODS, Nothing).decode_list(b'{"kind":"PodList","items":[%b]}' % raw),
    FieldsForm(PODS, Nothing).decode_object])
@pytest.mark.parametrize("said", [b"{}", b'{"name":""}', b'{"name":null}', b"null"])
def test_an_object_that_does_not_say_which_it_is_is_an_error_in_any_form(
        decode: Callable[[bytes], Any], said: bytes) -> None:
    with pytest.raises(DecodeError, match="without a readable name"):
        decode(b'{"metadata":%b}' % said)


@pytest.mark.parametrize("text", [
    b'{"kind":"PodList","metadata":{"resourceVersion":"9"},"items":null}',
    b'{"kind":"PodList","metadata":{"resourceVersion":"9"}}',
    b'{"metadata":{"resourceVersion":"9"},"items":[]}',
])
def test_null_and_absent_items_are_an_empty_list(text: bytes) -> None:
    meta, records = decode_list(text, PODS)
    assert (meta.resource_version, records) == ("9", [])


@pytest.mark.parametrize("text",
                         [b"{}", b'{"kind":"Status","status":"Failure"}', b"[]", b"", b"<html>", b'{"items":[{}'])
def test_what_is_no_list_is_not_taken_for_an_empty_one(text: bytes) -> None:
    with pytest.raises(DecodeError, match="pods"):
        decode_list(text, PODS)


def test_a_bookmark_is_its_version_whatever_else_it_says() -> None:
    bare = {"metadata": {"resourceVersion": "12"}}
    job = {"kind": "Job", "metadata": {"resourceVersion": "12", "labels": None}, "spec": {"containers": None}}
    nulls = {"metadata": {"resourceVersion": "12", "name": None, "finalizers": [None]}}
    for obj in (bare, job, nulls):
        assert decode_event(event("BOOKMARK", obj), PODS) == ("BOOKMARK", Bookmark("12"))
    end = {"metadata": {"resourceVersion": "12", "annotations": {"k8s.io/initial-events-end": "true"}}}
    assert decode_event(event("BOOKMARK", end), PODS)[1] == Bookmark("12", initial_events_end=True)


def test_an_error_event_is_its_status() -> None:
    kind, status = decode_event(event("ERROR", {"kind": "Status", "metadata": {}, "code": 410, "reason": "Expired"}),
                                PODS)
    assert kind == "ERROR"
    assert isinstance(status, Status)
    assert (status.code, status.reason) == (410, "Expired")


def test_the_code_of_an_error_event_may_be_text_as_that_of_an_answer() -> None:
    _, status = decode_event(event("ERROR", {"kind": "Status", "code": "410"}), PODS)
    assert isinstance(status, Status)
    assert status.code == 410


def test_nulls_in_metadata_count_as_absent() -> None:
    nulls = dict.fromkeys(("namespace", "uid", "resourceVersion", "generation", "labels", "annotations",
                           "ownerReferences", "finalizers", "creationTimestamp"))
    for raw in (encoded({"metadata": {"name": "a", **nulls}}),
                encoded({"metadata": {"name": "a", "labels": {"x": None, "y": "z"}, "finalizers": ["f", None]}})):
        record = decode_object(raw, PODS)
        assert record.valid
        assert record.name == "a"
        assert record.head.labels in (None, {"y": "z"})


def test_a_bad_head_gives_an_invalid_record_that_knows_its_name_and_version() -> None:
    record = record_of(event("ADDED", {"metadata": metadata(labels=3)}))
    assert not record.valid
    assert (record.name, record.namespace, record.uid, record.resource_version) == ("a", "ns", "u-1", "5")
    error = record.error
    assert error is not None
    assert error.path == "$.metadata.labels"
    assert "Pod.v1./a.ns" in str(error)


def test_invalid_utf8_in_metadata_is_an_invalid_object_not_a_broken_stream() -> None:
    line = b'{"type":"ADDED","object":{"metadata":{"name":"a","resourceVersion":"5","labels":{"k":"\xff\xfe"}}}}'
    record = record_of(line)
    assert (record.valid, record.name, record.resource_version) == (False, "a", "5")
    assert "UTF-8" in str(record.error)


@pytest.mark.parametrize(("failure", "is_one"), [
    (UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"), True),  # up to msgspec 0.22
    (msgspec.DecodeError("Invalid UTF-8 encoded string"), True),  # from 0.23 on
    (msgspec.DecodeError("JSON is malformed: invalid character (byte 0)"), False),
    (msgspec.ValidationError("Invalid UTF-8 encoded string"), False)])
def test_what_is_not_utf8_is_told_apart_whichever_msgspec_says_so(failure: Exception, is_one: bool) -> None:
    assert is_no_utf8(failure) is is_one
    assert (problem_of(failure) == ("$", "$ is not valid UTF-8")) is is_one


def test_invalid_utf8_in_content_leaves_the_head_alone() -> None:
    assert record_of(b'{"type":"ADDED","object":{"metadata":{"name":"a"},"data":{"k":"\xff"}}}').valid


@pytest.mark.parametrize("text", ["héllo ✓ 😀", "日本語"])
def test_text_beyond_ascii_is_intact(text: str) -> None:
    raw = ('{"metadata":{"name":"a","labels":{"k":"' + text + '"}}}').encode()
    assert decode_object(raw, PODS).head.labels == {"k": text}


def test_content_nested_too_deep_for_any_parser_still_has_a_name() -> None:
    head = b'{"kind":"Pod","apiVersion":"v1","metadata":{"name":"a","namespace":"ns","resourceVersion":"5"},"spec":'
    body = head + DEEP
    for record in (decode_object(body + b"}", PODS), record_of(b'{"type":"MODIFIED","object":' + body + b"}}")):
        assert (record.name, record.namespace, record.resource_version) == ("a", "ns", "5")


def test_metadata_nested_too_deep_is_an_error_that_names_the_kind() -> None:
    with pytest.raises(DecodeError, match="pods"):
        decode_object(b'{"metadata":{"name":"a","labels":' + DEEP + b"}}", PODS)


def test_a_page_with_an_item_that_breaks_the_parser_is_decoded_item_by_item() -> None:
    text = (b'{"kind":"PodList","metadata":{"resourceVersion":"9","continue":"t"},'
            b'"items":[ {"metadata":{"name":"a"}} , {"metadata":{"name":"b"},"spec":' + DEEP +
            b'},{"metadata":{"name":"c","annotations":{"x":"]}\\"{"}}}]}')
    meta, records = decode_list(text, PODS)
    assert (meta.resource_version, meta.continue_token) == ("9", "t")
    assert [(record.name, record.valid) for record in records] == [("a", True), ("b", True), ("c", True)]


def test_one_bad_item_does_not_spoil_a_page() -> None:
    _, records = decode_list(page({"metadata": metadata("a")}, {"metadata": metadata("bad", labels=[1])},
                                  {"metadata": metadata("c")}), PODS)
    assert [(record.name, record.valid) for record in records] == [("a", True), ("bad", False), ("c", True)]


@pytest.mark.parametrize("line", [b"", b"{", b"null", b'{"type":3,"object":{}}', b"plain text", b'{"object":{}}'])
def test_a_line_that_is_no_event_raises(line: bytes) -> None:
    with pytest.raises(DecodeError, match="not an event"):
        decode_event(line, PODS)


def test_an_event_without_a_name_raises_since_nobody_could_be_told_which_object_it_is() -> None:
    with pytest.raises(DecodeError, match="without a readable name"):
        decode_event(event("ADDED", {"metadata": {"uid": "u"}}), PODS)


def test_an_unknown_type_of_event_keeps_its_object() -> None:
    kind, carried = decode_event(event("RENAMED", {"metadata": metadata()}), PODS)
    assert kind == "RENAMED"
    assert isinstance(carried, Record)


def test_repr_and_errors_show_no_content() -> None:
    secret = "hunter2"
    record = decode_object(encoded({"metadata": metadata(labels={"a": [secret]}), "data": {"k": secret}}), PODS)
    assert secret not in repr(record) + str(record.error)


class Grade(enum.Enum):
    LOW = "low"
    HIGH = "high"


class Square(msgspec.Struct, tag="square"):
    side: int = 1


class Circle(msgspec.Struct, tag="circle"):
    radius: int = 1


class Choosing(msgspec.Struct, rename="camel"):
    mode: Literal["fast", "slow"] | None = None
    grade: Grade = Grade.LOW
    level: Literal[1, 2] = 1
    many_modes: list[Literal["x", "y"]] = []
    by_name: dict[str, Literal["a", "b"]] = {}
    shape: Square | Circle | None = None
    deep: list[dict[str, Square | None]] = []


@pytest.mark.parametrize(("spec", "path", "problem"), [
    ({"mode": "new"}, "$.spec.mode", "'new' is not one of 'fast', 'slow'"),
    ({"grade": "middle"}, "$.spec.grade", "'middle' is not one of 'low', 'high'"),
    ({"level": 3}, "$.spec.level", "3 is not one of 1, 2"),
    ({"manyModes": ["x", "z"]}, "$.spec.manyModes[1]", "'z' is not one of 'x', 'y'"),
    ({"byName": {"k": "c"}}, "$.spec.byName[...]", "the value is not one of 'a', 'b'"),
    ({"shape": {"type": "line"}}, "$.spec.shape.type", "'line' is not one of 'square', 'circle'"),
    ({"mode": "n" * 500}, "$.spec.mode", f"'{'n' * 59}... is not one of 'fast', 'slow'"),
    ({"mode": "a\nb\x1b["}, "$.spec.mode", r"'a\nb\x1b[' is not one of 'fast', 'slow'"),
    ({"deep": [{"k": {"side": "long"}}]}, "$.spec.deep[0][...].side", "Expected `int`, got `str`")])
def test_an_error_names_the_value_and_what_is_allowed(spec: dict[str, Any], path: str, problem: str) -> None:
    class Thing(Resource, group="example.com", version="v1", kind="Thing"):
        spec: Choosing

    with pytest.raises(DecodeError) as refused:
        _ = Thing.from_dict({"metadata": {"name": "a"}, "spec": spec}).spec
    assert (refused.value.path, refused.value.problem) == (path, f"{path}: {problem}")


def test_an_error_names_no_value_of_a_secret() -> None:
    class Token(Resource, group="", version="v1", kind="Secret"):
        data: dict[str, Literal["a", "b"]]
        type: Literal["Opaque"] = "Opaque"

    for content in ({"data": {"k": "geheim"}}, {"data": {}, "type": "geheim"}):
        obj = Token.from_dict({"metadata": {"name": "a"}, **content})
        with pytest.raises(DecodeError, match="not one of the allowed values") as refused:
            _ = obj.data, obj.type
        assert "geheim" not in str(refused.value)
