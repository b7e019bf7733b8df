"""The built-in kinds: named, scoped and typed as the API server has them."""
from __future__ import annotations

import typing
from datetime import datetime
from typing import Any

import pytest

import kubectl_runtime.resources as resources
from kubectl_runtime.apiserver.kinds.catalog import builtin_types
from kubectl_runtime.apiserver.schemas.schema import Schema
from kubectl_runtime.core.base.wire import alternatives, camel, field_types, is_record_type, map_keys, member_type
from kubectl_runtime.core.meta.metav1 import Condition
from kubectl_runtime.core.objects.declare import attributes_of, codecs_of, hints_of
from kubectl_runtime.core.objects.resource import Resource
from kubectl_runtime.resources import ConfigMap, Deployment, Event, Pod, Secret

SERVED = {(served.group, served.version, served.kind): served for served in builtin_types()}
KINDS: list[type[Resource]] = [getattr(resources, name) for name in resources.__all__]


UNIQUE_THOUGH_ATOMIC = {"status.conditions", "status.containerStatuses"}
"""Lists whose items are told apart by the key all the same, though server-side apply takes them as a whole."""


def fields_beyond(hint: Any, schema: Schema | None, path: str) -> list[str]:
    """The typed fields below `hint` that the server's schema does not have."""
    if schema is None:
        return [path]
    found: list[str] = []
    for part in alternatives(hint):
        if is_record_type(part):
            for key, inner in field_types(part).items():
                if part is Condition and key == "observedGeneration":
                    continue  # one class serves all kinds, of which the older have no such field
                found += fields_beyond(inner, schema.field(key), f"{path}.{key}")
        elif typing.get_origin(part) in (list, tuple):
            item = member_type(part, None)
            if any(is_record_type(option) for option in alternatives(item)):
                found += fields_beyond(item, schema.element, f"{path}[]")
    return found


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_plural_and_scope_are_the_servers(kind: type[Resource]) -> None:
    resource = kind.api_resource
    served = SERVED[resource.group, resource.version, resource.kind]
    assert (resource.plural, resource.namespaced) == (served.plural, served.namespaced)
    assert kind.__name__ == resource.kind


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_every_typed_field_exists(kind: type[Resource]) -> None:
    schema = SERVED[kind.api_resource.group, kind.api_resource.version, kind.api_resource.kind].schema
    assert schema is not None
    hints = hints_of(kind)
    unknown = [place for name in attributes_of(kind)
               for place in fields_beyond(hints[name], schema.field(camel(name)), f"{kind.__name__}.{camel(name)}")]
    assert unknown == []


def keyed_lists(hint: Any, schema: Schema | None, path: str) -> typing.Iterator[tuple[str, tuple[str, ...], Schema]]:
    if schema is None:
        return
    if keys := map_keys(hint):
        yield path, keys, schema
    for part in alternatives(hint):
        if is_record_type(part):
            for key, inner in field_types(part).items():
                yield from keyed_lists(inner, schema.field(key), f"{path}.{key}")
        elif typing.get_origin(part) in (list, tuple):
            yield from keyed_lists(member_type(part, None), schema.element, f"{path}[]")


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_lists_have_the_servers_keys(kind: type[Resource]) -> None:
    schema = SERVED[kind.api_resource.group, kind.api_resource.version, kind.api_resource.kind].schema
    assert schema is not None
    hints = hints_of(kind)
    for name in attributes_of(kind):
        for path, keys, node in keyed_lists(hints[name], schema.field(camel(name)), camel(name)):
            if path in UNIQUE_THOUGH_ATOMIC and node.list_type == "atomic":
                continue
            assert node.list_type == "map", path
            assert set(keys) == set(node.map_keys), path


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__)
def test_an_object_of_which_nothing_is_known_can_be_read(kind: type[Resource]) -> None:
    obj = kind.from_dict({"metadata": {"name": "a"}})
    obj.validate()
    assert set(codecs_of(kind)) >= {"metadata"}
    assert obj.to_dict() == {"apiVersion": kind.api_resource.api_version, "kind": kind.__name__,
                             "metadata": {"name": "a"}}


def test_an_unknown_kind_is_an_error_that_helps() -> None:
    with pytest.raises(AttributeError, match="ApiResource"):
        _ = resources.Widget  # type: ignore[attr-defined]
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
