"""The built-in kinds: named, scoped and typed as the API server has them."""
from __future__ import annotations

import importlib
import pkgutil
import typing
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

import kubectl_runtime.resources as resources
from kubectl_runtime.apiserver.kinds.catalog import builtin_types
from kubectl_runtime.apiserver.schemas import Schema
from kubectl_runtime.core.base.wire import (
    alternatives,
    camel,
    field_types,
    is_record_type,
    map_keys,
    member_type,
    wire_names,
)
from kubectl_runtime.core.meta.metav1 import Condition, LabelSelector, TemplateMeta
from kubectl_runtime.core.objects.declare import attributes_of, codecs_of, hints_of
from kubectl_runtime.core.objects.resource import Resource
from kubectl_runtime.crd.parts import part_name
from kubectl_runtime.resources import ConfigMap, Deployment, Event, Pod, Secret
from kubectl_runtime.resources.apps_v1 import DeploymentSpec
from kubectl_runtime.resources.core_v1 import HTTPGetAction, PersistentVolumeClaimTemplate
from kubectl_runtime.schema.definitions import definitions

SERVED = {(served.group, served.version, served.kind): served for served in builtin_types()}
KINDS: list[type[Resource]] = [getattr(resources, name) for name in resources.__all__]


UNIQUE_THOUGH_ATOMIC = {"status.conditions", "status.containerStatuses", "status.initContainerStatuses",
                        "status.ephemeralContainerStatuses"}
"""Lists whose items are told apart by the key all the same, though server-side apply takes them as a whole."""

TEMPLATES = (TemplateMeta, PersistentVolumeClaimTemplate)
"""What stands for metadata and for an object inside another one: only what a template of it says."""


def parts_of(hint: Any, schema: Schema | None, path: str, above: tuple[Any, ...] = ()) -> typing.Iterator[
        tuple[str, Any, Schema | None]]:
    """Each record class below `hint`, its place, and the server's schema there; a recursive one once."""
    if schema is not None and schema.kind == "opaque":
        return
    for part in alternatives(hint):
        if is_record_type(part) and part not in above:
            yield path, part, schema
            for key, inner in field_types(part).items():
                yield from parts_of(inner, schema and schema.field(key), f"{path}.{key}", (*above, part))
        elif typing.get_origin(part) in (list, tuple):
            yield from parts_of(member_type(part, None), schema and schema.element, f"{path}[]", above)
        elif typing.get_origin(part) is dict:
            yield from parts_of(member_type(part, ""), schema and schema.element, f"{path}{{}}", above)


def parts_of_kind(kind: type[Resource]) -> typing.Iterator[tuple[str, Any, Schema | None]]:
    hints = hints_of(kind)
    schema = schema_of(kind)
    for name in attributes_of(kind):
        yield from parts_of(hints[name], schema.field(camel(name)), camel(name))


def schema_of(kind: type[Resource]) -> Schema:
    resource = kind.api_resource
    schema = SERVED[resource.group, resource.version, resource.kind].schema
    assert schema is not None
    return schema


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_plural_and_scope_are_the_servers(kind: type[Resource]) -> None:
    resource = kind.api_resource
    served = SERVED[resource.group, resource.version, resource.kind]
    assert (resource.plural, resource.namespaced) == (served.plural, served.namespaced)
    assert kind.__name__ == resource.kind


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_field_of_the_server_is_typed_and_no_other(kind: type[Resource]) -> None:
    own = {camel(name) for name in attributes_of(kind)} | {"apiVersion", "kind", "metadata"}
    assert own == schema_of(kind).fields.keys()
    for path, part, schema in parts_of_kind(kind):
        assert schema is not None, path
        if part in TEMPLATES:
            assert field_types(part).keys() <= schema.fields.keys(), path
            continue
        more = {"observedGeneration"} if issubclass(part, Condition) else set()
        assert field_types(part).keys() - more == schema.fields.keys() - more, path


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_lists_have_the_servers_keys(kind: type[Resource]) -> None:
    for path, part, schema in parts_of_kind(kind):
        for key, hint in field_types(part).items():
            node = schema and schema.field(key)
            if node is None or node.kind != "list":
                continue
            place = f"{path}.{key}"
            of_records = any(is_record_type(item) for item in alternatives(member_type(hint, None)))
            if place in UNIQUE_THOUGH_ATOMIC and node.list_type == "atomic":
                assert map_keys(hint) in (("type",), ("name",)), place
            else:
                expected = node.map_keys if of_records and node.list_type == "map" else ()
                assert set(map_keys(hint)) == set(expected), place


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_subresources_are_the_servers(kind: type[Resource]) -> None:
    resource = kind.api_resource
    served = SERVED[resource.group, resource.version, resource.kind]
    assert kind.subresources == tuple(sorted(subresource.name for subresource in served.subresources))


def test_every_kind_that_the_server_has_has_a_class() -> None:
    modules = {path.stem: importlib.import_module(f"kubectl_runtime.resources.{path.stem}")
               for path in Path(resources.__file__).parent.glob("*_v[0-9].py")}
    found = {(value.api_resource.group, value.api_resource.version, value.api_resource.kind)
             for module in modules.values() for value in vars(module).values()
             if isinstance(value, type) and issubclass(value, Resource) and value is not Resource}
    assert found == SERVED.keys()
    assert {kind for _, _, kind in SERVED} == set(resources.__all__)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_an_object_of_which_nothing_is_known_can_be_read(kind: type[Resource]) -> None:
    obj = kind.from_dict({"metadata": {"name": "a"}})
    obj.validate()
    assert "metadata" in codecs_of(kind)
    assert obj.to_dict() == {"apiVersion": kind.api_resource.api_version, "kind": kind.__name__,
                             "metadata": {"name": "a"}}


def test_an_unknown_kind_is_an_error_that_helps() -> None:
    with pytest.raises(AttributeError, match="ApiResource"):
        _ = resources.Widget  # type: ignore[attr-defined]
    with pytest.raises(AttributeError, match="did you mean 'Deployment'"):
        _ = resources.Deploymnt  # type: ignore[attr-defined]
    with pytest.raises(ImportError, match="Contianer"):
        from kubectl_runtime.resources.core_v1 import Contianer  # type: ignore[attr-defined]  # noqa: F401
    assert "Pod" in dir(resources)


def test_data_of_config_maps_can_be_filled() -> None:
    obj = ConfigMap(name="a", data={"k": "v"})
    obj.data["l"] = "w"
    assert obj.to_dict()["data"] == {"k": "v", "l": "w"}


def test_secrets_are_bytes_here_and_base64_on_the_wire() -> None:
    obj = Secret.from_dict({"metadata": {"name": "a"}, "data": {"k": "aHVudGVyMg=="}})
    assert obj.data == {"k": b"hunter2"}
    obj.data["l"] = b"\x00\xff"
    assert obj.to_dict()["data"] == {"k": "aHVudGVyMg==", "l": "AP8="}
    assert "hunter2" not in repr(obj)


def test_a_pod_keeps_what_its_view_does_not_name() -> None:
    container = {"name": "c", "image": "i:1", "ports": [{"containerPort": 80, "hostPort": 1}], "stdin": True}
    obj = Pod.from_dict({"metadata": {"name": "a"}, "spec": {"containers": [container], "hostPID": True},
                         "status": {"podIP": "10.0.0.1", "startTime": "2026-01-01T00:00:00Z", "containerStatuses": [
                             {"name": "c", "imageID": "sha", "restartCount": 3}]}})
    assert (obj.status.pod_ip, obj.status.container_statuses[0].image_id) == ("10.0.0.1", "sha")
    assert isinstance(obj.status.start_time, datetime)
    obj.spec.containers[0].image = "i:2"
    assert obj.to_dict()["spec"] == {"containers": [{**container, "image": "i:2"}], "hostPID": True}


def test_a_deployment_is_scaled_by_one_assignment() -> None:
    content = {"metadata": {"name": "a"},
               "spec": {"replicas": 1, "template": {"spec": {"containers": [{"name": "c"}]}}}}
    obj = Deployment.from_dict(content)
    obj.spec.replicas = 3
    assert obj.to_dict()["spec"] == {**content["spec"], "replicas": 3}  # type: ignore[dict-item]


def test_events_name_what_they_are_about() -> None:
    obj = Event.from_dict({"metadata": {"name": "e"}, "involvedObject": {"kind": "Pod", "name": "a"},
                           "eventTime": "2026-01-01T00:00:00.000000Z"})
    assert (obj.involved_object.kind, obj.event_time) == ("Pod", "2026-01-01T00:00:00.000000Z")


def classes_of_modules() -> list[type]:
    found = [importlib.import_module(f"{resources.__name__}.{module.name}") for module in
             pkgutil.iter_modules(resources.__path__)]
    return [cls for module in found for cls in vars(module).values()
            if isinstance(cls, type) and cls.__module__ == module.__name__]


def test_typing_resolves_the_hints_of_all_classes() -> None:
    classes = classes_of_modules()
    assert len(classes) > 480
    for cls in classes:
        assert typing.get_type_hints(cls) is not None
    assert typing.get_type_hints(Deployment)["spec"] is DeploymentSpec
    assert typing.get_type_hints(Pod)["status"].__name__ == "PodStatus"
    assert typing.get_type_hints(Event)["series"] == typing.get_type_hints(Event)["series"].__args__[0] | None


NULL_THOUGH_REQUIRED = {("Event", "event_time"), ("EventSeries", "last_observed_time")}
"""Times that the API requires, and writes as null."""


def test_what_the_api_requires_is_never_none() -> None:
    """Of each class by its definition; parts and kinds alike."""
    checked = 0
    for cls in classes_of_modules():
        name = part_name(cls) if is_record_type(cls) else None
        if name is None:
            continue
        for attribute, key in wire_names(cls).items():
            if key in definitions()[name].get("required", ()) and (cls.__name__, attribute) not in NULL_THOUGH_REQUIRED:
                checked += 1
                assert type(None) not in alternatives(field_types(cls)[key]), (cls, key)
    assert checked > 300
    assert DeploymentSpec().selector == LabelSelector()
    assert HTTPGetAction().port == 0
    assert msgspec.to_builtins(HTTPGetAction()) == {}


@pytest.mark.parametrize(("content", "selector"), [
    ({"selector": {"matchLabels": {"a": "b"}}}, {"matchLabels": {"a": "b"}}), ({}, None), ({"selector": None}, None)])
def test_an_absent_required_field_is_empty_and_is_not_sent(content: dict[str, Any], selector: Any) -> None:
    obj = Deployment.from_dict({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a"},
                                "spec": content})
    assert (obj.spec.selector.match_labels or None) == (selector or {}).get("matchLabels")
    obj.spec.paused = True
    assert obj.to_dict()["spec"] == {**content, "paused": True}
