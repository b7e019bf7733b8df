"""Which classes can be the views of a watch that keeps declared fields."""
from __future__ import annotations

from typing import Any

import msgspec
import pytest

from kubectl_runtime import PartialView, RequestError
from kubectl_runtime.core.objects.partial import FieldsForm
from kubectl_runtime.resources import Pod


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
