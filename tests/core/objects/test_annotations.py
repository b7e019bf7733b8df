"""What a class declares is found whichever way its module's Python keeps annotations: as text, or unevaluated."""
from __future__ import annotations

import sys
import types
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kubectl_runtime.core.base.guard import misfit
from kubectl_runtime.core.base.wire import annotations_of, signature_of
from kubectl_runtime.core.codec.jsonbytes import decode_object
from kubectl_runtime.core.objects.declare import hints_of

TEXT = "from __future__ import annotations\n"
KINDS = '''
import typing
from typing import ClassVar

import msgspec

from kubectl_runtime.core.objects.resource import Resource

if typing.TYPE_CHECKING:
    from nowhere import Absent


class Widget(Resource, group="demo.example.com", version="v1", kind="Widget"):
    known: ClassVar[list[Absent]] = []
    spec: Spec
    more: dict[str, Spec] | None
    list: Demanded | None
    rest: list[OnDemand]
    parent: Widget | None


class Spec(msgspec.Struct):
    size: int = 1


class Lost(Resource, group="demo.example.com", version="v1", kind="Lost"):
    spec: Absent


def reconcile(obj: Absent, ctx: Absent) -> Absent: ...


def __getattr__(name):
    if name in ("Demanded", "OnDemand"):
        return Spec
    raise AttributeError(name)
'''
LAZY = pytest.param("", id="unevaluated", marks=pytest.mark.skipif(
    sys.version_info < (3, 14), reason="before Python 3.14 such a module fails at import"))


@pytest.fixture(params=[pytest.param(TEXT, id="text"), LAZY])
def kinds(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    module = types.ModuleType("kinds_of_a_test")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(compile(request.param + KINDS, tmp_path / "kinds.py", "exec", dont_inherit=True), vars(module))
    return module


def test_types_may_come_later_in_the_module_or_be_imported_on_demand(kinds: Any) -> None:
    spec = kinds.Spec
    assert hints_of(kinds.Widget) == {"spec": spec, "more": dict[str, spec] | None, "list": spec | None,
                                      "rest": list[spec], "parent": kinds.Widget | None}


def test_they_are_what_is_decoded(kinds: Any) -> None:
    body = {"apiVersion": "demo.example.com/v1", "kind": "Widget", "metadata": {"name": "a"},
            "spec": {"size": 3}, "list": {"size": 5}}
    widget = kinds.Widget.from_record(decode_object(msgspec.json.encode(body), kinds.Widget.api_resource))
    assert (widget.spec.size, widget.list.size) == (3, 5)


def test_a_type_that_is_nowhere_is_named(kinds: Any) -> None:
    with pytest.raises(TypeError, match="Lost: name 'Absent' is not defined; its attributes' types must be visible"):
        hints_of(kinds.Lost)


def test_a_function_is_checked_whose_annotations_exist_for_type_checkers_only(kinds: Any) -> None:
    assert misfit(kinds.reconcile, ("obj", "ctx")) is None
    assert list(signature_of(kinds.reconcile).parameters) == ["obj", "ctx"]
    assert "cannot be called with 1 arguments" in str(misfit(kinds.reconcile, ("obj",)))


def test_the_annotations_of_bases_are_not_those_of_a_class(kinds: Any) -> None:
    class Other(kinds.Widget):  # type: ignore[misc,name-defined]
        pass

    assert annotations_of(Other) == {}
    assert list(annotations_of(kinds.Widget)) == ["known", "spec", "more", "list", "rest", "parent"]
