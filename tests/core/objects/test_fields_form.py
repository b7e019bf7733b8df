"""Which classes can be the views of a watch that keeps declared fields."""
from __future__ import annotations

import copy
import pickle
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec
import pytest

from kubectl_runtime import RequestError
from kubectl_runtime.core.codec.jsonbytes import decode_object
from kubectl_runtime.core.objects.partial import FieldsForm
from kubectl_runtime.objects import PartialView
from kubectl_runtime.resources import Pod
from kubectl_runtime.resources.core_v1_parts import PodSpec


class OwnMetadata(msgspec.Struct, frozen=True):
    name: str


class Metadata(PartialView, frozen=True):
    metadata: OwnMetadata  # type: ignore[assignment]


class Name(PartialView, frozen=True):
    name: str = ""  # type: ignore[assignment]


class Labels(PartialView, frozen=True):
    labels: dict[str, str] | None = None  # type: ignore[assignment]


class Phase(msgspec.Struct, frozen=True):
    phase: str = ""


class Phases(PartialView, frozen=True):
    kind: str = ""
    status: Phase = Phase()


@pytest.mark.parametrize(("view", "taken"), [(Metadata, "metadata"), (Name, "name"), (Labels, "labels")])
def test_what_each_view_has_is_declared_by_none(view: Any, taken: str) -> None:
    with pytest.raises(RequestError, match=f"every view has '{taken}' already"):
        FieldsForm(Pod.api_resource, view)


@pytest.mark.parametrize("view", [Phase, dict, Phase()])
def test_what_is_no_class_of_views_is_refused(view: Any) -> None:
    with pytest.raises(RequestError, match=r"PartialView, frozen=True"):
        FieldsForm(Pod.api_resource, view)


def test_any_other_key_can_be_declared() -> None:
    view = FieldsForm(Pod.api_resource, Phases).decode_object(
        b'{"kind":"Pod","metadata":{"name":"a"},"status":{"phase":"Running"}}').view
    assert (view.name, view.kind, view.status.phase) == ("a", "Pod", "Running")


# What all readers share cannot be changed

class Labelled(msgspec.Struct, frozen=True):
    labels: dict[str, str] = msgspec.field(default_factory=dict)
    ports: list[int] = msgspec.field(default_factory=list)
    tags: set[str] = msgspec.field(default_factory=set)


@dataclass(frozen=True)
class Step:
    args: list[str] = field(default_factory=list)
    inner: Step | None = None


class Pair(NamedTuple):
    name: str
    items: list[int]


class Nested(PartialView, frozen=True):
    spec: Labelled | None = None
    steps: tuple[Step, ...] = ()
    by_name: dict[str, list[Labelled]] = msgspec.field(default_factory=dict)
    pairs: list[Pair] = msgspec.field(default_factory=list)
    free: Any = None
    mapped: Mapping[str, object] | None = None


NESTED = {
    "metadata": {"name": "a", "labels": {"app": "web"}, "annotations": {"x": "y"}},
    "spec": {"labels": {"a": "b"}, "ports": [1], "tags": ["t"]}, "steps": [{"args": ["x"], "inner": {"args": ["y"]}}],
    "byName": {"n": [{"ports": [2]}]}, "pairs": [["p", [3]]], "free": {"deep": [{"er": 1}]}, "mapped": {"m": [4]}}


def ways() -> list[tuple[str, Any]]:
    form = FieldsForm(Pod.api_resource, Nested)
    text, raw = msgspec.json.encode(NESTED).decode(), msgspec.json.encode(NESTED)
    line = b'{"type":"ADDED","object":' + raw + b"}"
    null = text.replace('"ports":[1]', '"ports":[1],"other":null,"labels":null').encode()  # decoded a second time
    return [("object", form.decode_object(raw)), ("event", form.decode_event(line)[1]),
            ("list", form.decode_list(b'{"kind":"PodList","items":[' + raw + b"]}")[1][0]),
            ("nulls", form.decode_object(null))]


@pytest.mark.parametrize("change", [
    lambda view: view.spec.labels.update(a="c"), lambda view: view.spec.labels.__setitem__("z", "c"),
    lambda view: view.spec.ports.append(5), lambda view: view.spec.ports.__iadd__([5]),
    lambda view: view.spec.tags.add(1),
    lambda view: view.steps[0].args.clear(), lambda view: view.steps[0].inner.args.sort(),
    lambda view: view.by_name.pop("n"), lambda view: view.by_name["n"].insert(0, None),
    lambda view: view.by_name["n"][0].ports.__setitem__(0, 9), lambda view: view.pairs[0].items.extend([1]),
    lambda view: view.free["deep"].pop(), lambda view: view.free["deep"][0].clear(),
    lambda view: view.mapped["m"].remove(4), lambda view: setattr(view.spec, "ports", []),
    lambda view: view.metadata.labels.update(app="db"), lambda view: view.metadata.annotations.clear()])
def test_nothing_that_a_view_holds_can_be_changed(change: Any) -> None:
    for way, record in ways():
        before = msgspec.json.encode(record.view)
        with pytest.raises((TypeError, AttributeError)):
            change(record.view)
        assert msgspec.json.encode(record.view) == before, way
        mine = copy.deepcopy(record.view)
        assert type(mine.spec.ports) is list
        mine.free["deep"][0]["er"] = 2
        pickle.loads(pickle.dumps(record.view)).by_name["n"].append(1)
        assert msgspec.json.encode(record.view) == before


class Mutable(msgspec.Struct):
    x: int = 0


@dataclass
class Open:
    x: int = 0


class HoldsStruct(PartialView, frozen=True):
    spec: Mutable | None = None


class HoldsDataclass(PartialView, frozen=True):
    status: Labelled | None = None
    steps: tuple[Open, ...] = ()


class HoldsDeeper(PartialView, frozen=True):
    by_name: dict[str, list[Mutable]] | None = None


class Wraps(msgspec.Struct, frozen=True):
    again: Wraps | None = None
    wrapped: Mutable | None = None


class HoldsInside(PartialView, frozen=True):
    spec: Wraps | None = None


class HoldsPart(PartialView, frozen=True):
    spec: PodSpec | None = None


class HoldsBytes(PartialView, frozen=True):
    data: bytearray = bytearray()


@pytest.mark.parametrize(("view", "place", "kind"), [
    (HoldsStruct, "spec", "Mutable"), (HoldsDataclass, "steps", "Open"), (HoldsDeeper, "byName", "Mutable"),
    (HoldsInside, "spec.wrapped", "Mutable"), (HoldsPart, "spec", "PodSpec"), (HoldsBytes, "data", "bytearray")])
def test_records_that_could_be_changed_are_refused_when_they_are_declared(view: Any, place: str, kind: str) -> None:
    with pytest.raises(RequestError, match=f"fields={view.__name__}: {place} is a {kind}, which is mutable"):
        FieldsForm(Pod.api_resource, view)


def test_a_view_of_what_cannot_be_changed_costs_nothing() -> None:
    form = FieldsForm(Pod.api_resource, Phases)
    assert not form._freezes


def test_the_head_of_a_stored_record_cannot_be_changed() -> None:
    record = decode_object(msgspec.json.encode(NESTED), Pod.api_resource)
    assert record.head.labels == {"app": "web"}
    for change in (lambda: record.head.labels.update(app="db"), lambda: record.head.labels.pop("app"),
                   lambda: setattr(record.head, "name", "b"), lambda: setattr(record.head, "labels", {})):
        with pytest.raises((TypeError, AttributeError)):
            change()
    assert Pod.from_record(record).labels == {"app": "web"}
