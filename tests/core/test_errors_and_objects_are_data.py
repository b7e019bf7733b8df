"""Every public error and object pickles and copies to the same class, text and attributes."""
from __future__ import annotations

import copy
import importlib
import multiprocessing
import pickle
import pkgutil
from collections.abc import Callable
from typing import Any

import pytest

import kubectl_runtime
from kubectl_runtime import ApiError, ApiResource, KubeError, ObjectRef, PartialObjectMeta
from kubectl_runtime import Resource as BaseResource
from kubectl_runtime.client.http.retry import Failure
from kubectl_runtime.client.streaming.process import CompletedExec
from kubectl_runtime.controller import Children
from kubectl_runtime.core.base.errors import RequestError, Status, StatusCause, StatusDetails
from kubectl_runtime.core.codec.jsonbytes import decode_object
from kubectl_runtime.core.objects.partial import DynamicObject, FieldsForm, dynamic
from kubectl_runtime.kubectl.report import ManifestReport
from kubectl_runtime.objects import InvalidObject, PartialView
from kubectl_runtime.resources import ConfigMap, Secret
from tests.core.examples import PODS, Widget, encoded, metadata, widget

REF = ObjectRef(PODS, "a", "ns")
STATUS = Status(code=422, reason="Invalid", message="no", details=StatusDetails(
    name="a", causes=[StatusCause(field="spec.x", reason="FieldValueInvalid")]))


def error_classes() -> list[type[KubeError]]:
    for module in pkgutil.walk_packages(kubectl_runtime.__path__, "kubectl_runtime."):
        if not module.name.startswith("kubectl_runtime.cli.") and not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    found: set[type[KubeError]] = {KubeError}
    waiting = [KubeError]
    while waiting:
        for cls in waiting.pop().__subclasses__():
            if cls.__module__.startswith("kubectl_runtime.") and cls not in found:
                found.add(cls)
                waiting.append(cls)
    return sorted(found, key=lambda cls: (cls.__module__, cls.__name__))


ARGUMENTS: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
    ((STATUS, "get pods ns/a"), {"retry_after": 3.0, "remedy": "Do something"}), (("lost", Failure(sent=False)), {}),
    ((REF, "$.spec", "$.spec is wrong"), {}), (("$.spec", "two items"), {}), (("lost",), {"sent": False}),
    (("text",), {}), (("pods", "text"), {}), (("a", "b", "c"), {}), ((REF, None), {}), (("text", None, None), {}),
    (("exec pods ns/a", CompletedExec(3, b"", b"no")), {}), (("apply", ManifestReport(())), {}),
    ((ApiResource("g", "v1", "Kind", "kinds"), "ns", ("list", "watch")), {}),
    ((Children(),), {}),
]


def made(cls: type[KubeError]) -> KubeError:
    """An error of the class, from the first arguments that it takes."""
    for positional, keywords in ARGUMENTS:
        try:
            error = cls(*positional, **keywords)
            str(error)
        except (TypeError, AttributeError, RequestError):  # arguments of another class
            continue
        return error
    raise AssertionError(f"no arguments are known for {cls.__name__}")


WAYS: list[Callable[[Any], Any]] = [
    lambda value: pickle.loads(pickle.dumps(value)), lambda value: pickle.loads(pickle.dumps(value, 0)), copy.copy,
    copy.deepcopy]


def data(value: Any) -> Any:
    """What is compared: objects as errors carry them are equal only to themselves."""
    return repr(value) if isinstance(value, BaseException | BaseResource) else value


@pytest.mark.parametrize("cls", error_classes(), ids=lambda cls: cls.__name__)
def test_an_error_comes_back_with_its_class_text_and_attributes(cls: type[KubeError]) -> None:
    error = made(cls)
    for way in WAYS:
        back = way(error)
        assert type(back) is cls
        assert (str(back), back.args) == (str(error), error.args)
        assert {name: data(value) for name, value in vars(back).items()} == {
            name: data(value) for name, value in vars(error).items()}


def fail(_: int) -> None:
    raise ApiError(Status(code=404, reason="NotFound", message="not found"), "get pods ns/a")


def test_an_error_raised_in_another_process_is_raised_here() -> None:
    with multiprocessing.get_context("spawn").Pool(1) as pool, pytest.raises(ApiError) as error:
        pool.apply_async(fail, (0,)).get(60)
    assert error.value.is_not_found
    assert str(error.value) == "get pods ns/a: not found"


class NameView(PartialView, frozen=True):
    spec: dict[str, Any] | None = None


def changed() -> Widget:
    obj = widget(spec={"replicas": 3})
    obj.spec.replicas = 4
    obj["spec"]["args"] = ["x"]
    return obj


OBJECTS: dict[str, Callable[[], Any]] = {
    "received": lambda: widget(spec={"replicas": 3}),
    "changed": changed,
    "made here": lambda: ConfigMap(name="a", labels={"x": "y"}, data={"k": "v"}),
    "secret": lambda: Secret(name="a", data={"k": b"v"}),
    "dynamic": lambda: dynamic(PODS).from_dict({"metadata": {"name": "a"}, "spec": {"x": 1}}),
    "dynamic of another kind": lambda: dynamic(ApiResource("g", "v1", "Other", "others"))(name="b", spec={"x": 1}),
    "metadata only": lambda: PartialObjectMeta.of(PODS).from_dict({"metadata": metadata()}),
}


@pytest.mark.parametrize("make", OBJECTS.values(), ids=OBJECTS)
def test_an_object_comes_back_with_its_class_and_content(make: Callable[[], Any]) -> None:
    obj = make()
    for way in WAYS:
        back = way(obj)
        assert type(back) is type(obj)
        assert (back.to_dict(), back.ref, repr(back)) == (obj.to_dict(), obj.ref, repr(obj))


def test_a_copy_is_changed_without_the_original() -> None:
    obj = ConfigMap(name="a", data={"k": "v"})
    for way in WAYS:
        twin = way(obj)
        twin.data = {"k": "w"}
        assert obj.data == {"k": "v"}


def test_a_view_of_fields_and_an_invalid_object_come_back_too() -> None:
    view = NameView.from_record(FieldsForm(PODS, NameView).decode_object(encoded({"metadata": metadata()})))
    invalid = InvalidObject(decode_object(encoded({"metadata": metadata(labels=3)}), PODS))
    for way in WAYS:
        assert (way(view).name, way(view).labels) == (view.name, view.labels)
        assert (str(way(invalid).ref), str(way(invalid).error)) == (str(invalid.ref), str(invalid.error))


def test_no_object_shows_its_content() -> None:
    secret = Secret(name="a", data={"k": b"hunter2"})
    assert "hunter2" not in repr(secret) + repr(dynamic(PODS)(name="a", spec={"x": "hunter2"}))
    assert isinstance(dynamic(PODS)(name="a"), DynamicObject)


def test_a_long_message_is_cut_and_keeps_the_fields_at_fault() -> None:
    causes = [StatusCause(field="spec.containers[0].image", reason="FieldValueInvalid", message="x" * 100_000)]
    status = Status(code=422, reason="Invalid", message="x" * 200_000, details=StatusDetails(causes=causes))
    error = ApiError(status, "replace pods ns/a")
    assert len(str(error)) < 1200
    assert "spec.containers[0].image" in str(error)
    assert error.status.message == "x" * 200_000
