"""Parts of the API's own kinds as fields of custom resources: upstream's schema, taken by a server and read again."""
from __future__ import annotations

import hashlib
import importlib
import json
import pkgutil
from collections.abc import Iterator
from copy import deepcopy
from typing import Annotated, Any, NamedTuple

import msgspec
import pytest

from kubectl_runtime import resources
from kubectl_runtime.client.api.api import Api
from kubectl_runtime.client.api.client import Client
from kubectl_runtime.core.base.errors import ApiError
from kubectl_runtime.core.base.wire import MapKeys
from kubectl_runtime.core.codec.views import MISSING
from kubectl_runtime.core.meta.metav1 import Condition, LabelSelector, ObjectMeta, TemplateMeta
from kubectl_runtime.crd.customresource import CustomResource
from kubectl_runtime.crd.parts import GO_DEFAULTS, Style, part_name, part_schema
from kubectl_runtime.crd.schema import object_schema
from kubectl_runtime.resources.batch_v1 import JobTemplateSpec
from kubectl_runtime.resources.core_v1 import (
    Affinity,
    Container,
    ContainerStateTerminated,
    ISCSIVolumeSource,
    ObjectReference,
    PodSpec,
    PodTemplateSpec,
    Probe,
    ResourceRequirements,
    ServiceSpec,
    Volume,
)
from kubectl_runtime.resources.storage_v1 import VolumeAttachmentStatus
from kubectl_runtime.runtime.apply_crd import apply_crd
from kubectl_runtime.schema.definitions import definitions
from kubectl_runtime.schema.structural import schema_definition_causes
from kubectl_runtime.testing import ApiServer

INT_OR_STRING = {"anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": True}


def all_parts() -> Iterator[type]:
    for module in pkgutil.iter_modules(resources.__path__):
        found = importlib.import_module(f"{resources.__name__}.{module.name}")
        yield from (cls for cls in vars(found).values() if isinstance(cls, type)
                    and cls.__module__ == found.__name__ and issubclass(cls, msgspec.Struct))


PARTS = sorted(all_parts(), key=lambda cls: (cls.__module__, cls.__name__))


def field(schema: dict[str, Any], *path: str) -> dict[str, Any]:
    for key in path:
        schema = schema["items"] if key == "[]" else schema["properties"][key]
    return schema


def bare(schema: dict[str, Any]) -> dict[str, Any]:
    """What a node says of itself, without what is below it."""
    return {key: value for key, value in schema.items() if key not in ("properties", "items", "required")}


class RunnerSpec(msgspec.Struct, rename="camel"):
    template: PodTemplateSpec
    job: JobTemplateSpec | None = None
    affinity: Affinity | None = None
    probe: Probe | None = None
    service: ServiceSpec | None = None
    resources: ResourceRequirements = msgspec.field(default_factory=ResourceRequirements)
    volumes: Annotated[list[Volume], MapKeys("name")] = []
    target: ObjectReference | None = None
    selector: LabelSelector | None = None


class RunnerStatus(msgspec.Struct, rename="camel"):
    conditions: Annotated[list[Condition], MapKeys("type")] = []


class Runner(CustomResource, group="run.example.com", version="v1", kind="Runner"):
    spec: RunnerSpec
    status: RunnerStatus | None = None


@pytest.mark.parametrize("module", sorted({part.__module__ for part in PARTS}))
def test_all_parts_have_a_structural_schema(module: str) -> None:
    for part in (part for part in PARTS if part.__module__ == module):
        schema = object_schema(Runner, [("spec", part, None)])
        assert not [cause.text() for cause in schema_definition_causes(schema)], part


def test_all_parts_have_their_definition() -> None:
    assert len(PARTS) == 413
    assert [part for part in PARTS if part_name(part) is None] == []


def test_the_schema_is_what_controller_gen_writes() -> None:
    template = part_schema(part_name(PodTemplateSpec) or "")
    container = field(template, "spec", "containers", "[]")
    assert bare(field(template, "spec", "containers")) == {
        "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}
    assert field(template, "spec")["required"] == ["containers"]
    assert container["required"] == ["name"]
    assert field(container, "name") == {"type": "string"}  # no '' of the published OpenAPI, which would satisfy it
    assert bare(field(container, "ports")) == {"type": "array", "x-kubernetes-list-type": "map",
                                               "x-kubernetes-list-map-keys": ["containerPort", "protocol"]}
    assert field(container, "ports", "[]", "protocol") == {"type": "string", "default": "TCP"}
    assert field(container, "ports", "[]", "hostPort") == {"type": "integer", "format": "int32"}
    assert field(container, "ports", "[]")["required"] == ["containerPort"]
    assert field(container, "resources", "limits") == {"type": "object", "additionalProperties": {
        **INT_OR_STRING, "pattern": r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|"
                                    r"([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$"}}
    assert bare(field(container, "resources", "claims")) == {
        "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}
    assert field(container, "livenessProbe", "httpGet", "port") == INT_OR_STRING
    assert field(container, "livenessProbe", "httpGet")["required"] == ["port"]
    assert field(container, "livenessProbe", "timeoutSeconds") == {"type": "integer", "format": "int32"}
    assert field(container, "livenessProbe", "grpc", "service") == {"type": "string", "default": ""}
    assert field(container, "env", "[]", "valueFrom", "fieldRef") == {
        "type": "object", "required": ["fieldPath"], "x-kubernetes-map-type": "atomic",
        "properties": {"apiVersion": {"type": "string"}, "fieldPath": {"type": "string"}}}
    assert field(container, "env", "[]", "valueFrom", "secretKeyRef", "name") == {"type": "string", "default": ""}
    assert field(template, "metadata") == {"type": "object", "properties": {
        "annotations": {"type": "object", "additionalProperties": {"type": "string"}},
        "finalizers": {"type": "array", "items": {"type": "string"}},
        "labels": {"type": "object", "additionalProperties": {"type": "string"}},
        "name": {"type": "string"}, "namespace": {"type": "string"}}}
    selector = part_schema(part_name(LabelSelector) or "")
    assert selector["x-kubernetes-map-type"] == "atomic"
    assert bare(field(selector, "matchExpressions")) == {"type": "array", "x-kubernetes-list-type": "atomic"}
    assert part_schema(part_name(ObjectReference) or "") == {
        "type": "object", "x-kubernetes-map-type": "atomic", "properties": {key: {"type": "string"} for key in (
            "apiVersion", "fieldPath", "kind", "name", "namespace", "resourceVersion", "uid")}}
    service = part_schema(part_name(ServiceSpec) or "")
    assert field(service, "ports", "[]", "targetPort") == INT_OR_STRING
    assert field(service, "ports", "[]", "protocol")["default"] == "TCP"
    claim = field(part_schema(part_name(Volume) or ""), "ephemeral", "volumeClaimTemplate")
    assert claim["required"] == ["spec"]


class Record(NamedTuple):
    """Where controller-gen's schema of a part stands, and the digest of it without its descriptions."""

    digest: str
    path: str
    project: str = "kubernetes-sigs/kubebuilder"
    commit: str = "5c400728930120dd385712db61cb0a937238ce81"
    file: str = ("docs/book/src/cronjob-tutorial/testdata/project/config/crd/bases/"
                 "batch.tutorial.kubebuilder.io_cronjobs.yaml")
    version: str = "v1"


_JOB = "spec.jobTemplate"
_POD = f"{_JOB}.spec.template"
_KUEUE = ("kubernetes-sigs/kueue", "ff69552e79ad21652c36caa97038382e55625cf7",
          "config/components/crd/bases/kueue.x-k8s.io_workloads.yaml", "v1beta2")
RECORDED = {
    "PodTemplateSpec": Record("0b7046120bdb531c", _POD),
    "JobTemplateSpec": Record("bb04b5fa272522f1", _JOB),
    "Affinity": Record("71fd8b46e6a7ecad", f"{_POD}.spec.affinity"),
    "Probe": Record("d2c44ac38324f01e", f"{_POD}.spec.containers.[].livenessProbe"),
    "Volume": Record("0218854b488449e8", f"{_POD}.spec.volumes.[]"),
    "ResourceRequirements": Record("d02b67f72b13d066", f"{_POD}.spec.containers.[].resources"),
    "ObjectReference": Record("11046fd97a127905", "status.active.[]"),
    "LabelSelector": Record("0cc060c7ccb732bb", f"{_JOB}.spec.selector"),
    "Condition": Record("70a1e3806f56f7e3", "status.conditions.[]"),
    "ServiceSpec": Record("4bcefbbae179a594", "spec.managed.services.additional.[].serviceTemplate.spec",
                          "cloudnative-pg/cloudnative-pg", "a95a534dbe0854495b863bbc1b7651f74d310916",
                          "config/crd/bases/postgresql.cnpg.io_clusters.yaml"),
    "PodTemplateSpec with metadata": Record("62b10afe8e25bffd", "spec.podSets.[].template", *_KUEUE),
}


def at(schema: dict[str, Any], path: str) -> dict[str, Any]:
    return field(schema, *path.split("."))


def undescribed(node: Any) -> Any:
    """A schema without descriptions, and with what is required in order."""
    if isinstance(node, list):
        return [undescribed(item) for item in node]
    if not isinstance(node, dict):
        return node
    return {key: sorted(value) if key == "required" and isinstance(value, list)
            else {name: undescribed(child) for name, child in value.items()} if key == "properties"
            else undescribed(value) for key, value in node.items() if key != "description"}


def our_schema(part: str) -> Any:
    """The schema of a part here; of a Condition, which may be written without a reason, a message and a time, with what
    Go's class always writes."""
    if part == "Condition":
        schema = deepcopy(field(object_schema(Runner, [("spec", Condition, MISSING)]), "spec"))
        assert schema.pop("required") == ["type", "status"]
        assert field(schema, "reason").pop("pattern") == "^([A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?)?$"
        assert field(schema, "lastTransitionTime").pop("nullable")
        assert field(schema, "observedGeneration").pop("nullable")
        field(schema, "reason").update(minLength=1, pattern="^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$")
        return undescribed({**schema, "required": ["type", "status", "reason", "message", "lastTransitionTime"]})
    cls = next(cls for cls in (*PARTS, LabelSelector) if cls.__name__ == part.partition(" ")[0])
    return undescribed(part_schema(part_name(cls) or "", Style(metadata=" " in part)))


def digest(schema: Any) -> str:
    return hashlib.sha256(json.dumps(schema, sort_keys=True).encode()).hexdigest()[:16]


def differences(theirs: Any, ours: Any, path: str = "$") -> Iterator[str]:
    """Each place where two schemas differ, with both values."""
    if isinstance(theirs, dict) and isinstance(ours, dict):
        for key in sorted(theirs.keys() | ours.keys()):
            yield from differences(theirs.get(key), ours.get(key), f"{path}.{key}")
    elif theirs != ours or type(theirs) is not type(ours):
        yield f"{path}: {theirs!r} there, {ours!r} here"


@pytest.mark.parametrize("part", RECORDED)
def test_a_part_has_the_schema_that_controller_gen_wrote_of_it(part: str) -> None:
    assert digest(our_schema(part)) == RECORDED[part].digest, (
        f"tests/interop/test_foreign_definitions.py shows the fields of {RECORDED[part]}")


def test_only_the_defaults_of_upstream_are_there() -> None:
    found: dict[str, dict[str, Any]] = {}
    for name in {part_name(part) or "" for part in PARTS} | GO_DEFAULTS.keys():
        for key, node in part_schema(name).get("properties", {}).items():
            if "default" in node:
                found.setdefault(name, {})[key] = node["default"]
    assert found == dict(GO_DEFAULTS)
    for name, values in GO_DEFAULTS.items():
        assert values.keys() <= definitions()[name]["properties"].keys()
        assert not values.keys() & set(definitions()[name].get("required", ()))


def test_descriptions_and_metadata_are_options() -> None:
    class Described(CustomResource, group="run.example.com", version="v1", kind="Described", describe_parts=True):
        spec: RunnerSpec

    class Bare(CustomResource, group="run.example.com", version="v1", kind="Bare", embedded_metadata=False):
        spec: RunnerSpec

    def template(kind: type[CustomResource]) -> dict[str, Any]:
        [version] = kind.crd()["spec"]["versions"]
        return field(version["schema"]["openAPIV3Schema"], "spec", "template")

    assert "description" not in str(template(Runner))
    assert field(template(Described), "spec", "containers", "[]", "image")["description"].startswith("Container image")
    assert template(Described)["description"].startswith("PodTemplateSpec describes")
    assert field(template(Bare), "metadata") == {"type": "object"}


def test_classes_of_ones_own_extend_a_part() -> None:
    class Sidecar(Container, kw_only=True):
        inject: bool = True
        mode: str

    schema = field(object_schema(Runner, [("spec", Sidecar, None)]), "spec")
    assert field(schema, "inject") == {"type": "boolean", "default": True}
    assert schema["required"] == ["name", "mode"]
    assert field(schema, "livenessProbe", "httpGet", "port") == INT_OR_STRING


@pytest.mark.parametrize("hint", [ObjectMeta, TemplateMeta])
def test_metadata_alone_is_a_field(hint: type) -> None:
    schema = object_schema(Runner, [("spec", hint, None)])
    assert field(schema, "spec", "labels") == {"type": "object", "additionalProperties": {"type": "string"}}


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with ApiServer() as server, server.client() as client:
        apply_crd(client, Runner)
        yield client


def test_a_server_takes_what_is_written_and_it_is_read_again(client: Client) -> None:
    api = Api.namespaced(client, Runner, "default")
    web = Container(name="web", image="nginx", resources=ResourceRequirements(limits={"cpu": "500m"}))
    spec = RunnerSpec(template=PodTemplateSpec(metadata=TemplateMeta(labels={"app": "web"}),
                                               spec=PodSpec(containers=[web])),
                      selector=LabelSelector(match_labels={"app": "web"}))
    made = api.create(Runner(name="typed", spec=spec))
    assert made.spec.template.metadata.labels == {"app": "web"}
    assert made["spec"]["template"] == {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [
        {"name": "web", "image": "nginx", "resources": {"limits": {"cpu": "500m"}}}]}}
    with pytest.raises(ApiError, match="name: Required value"):
        api.create(Runner(name="nameless", spec=RunnerSpec(PodTemplateSpec(spec=PodSpec(containers=[Container()])))))


@pytest.mark.parametrize(("part", "sent"), [
    (ISCSIVolumeSource(target_portal="t:3260", iqn="iqn.2001-04.com.example:a"), {"lun": 0}),
    (ContainerStateTerminated(reason="Completed"), {"exitCode": 0}), (VolumeAttachmentStatus(), {"attached": False})])
def test_what_the_api_requires_is_sent_although_it_is_zero(client: Client, part: Any, sent: dict[str, Any]) -> None:
    kind: Any = type("Zero", (CustomResource,), {"__annotations__": {"spec": type(part)}, "__module__": __name__},
                     group="run.example.com", version="v1", kind=f"Z{type(part).__name__}".lower().capitalize())
    apply_crd(client, kind)
    obj = kind(name="zero", spec=part)
    assert obj.to_dict()["spec"].items() >= sent.items()
    assert Api.namespaced(client, kind, "default").create(obj)["spec"].items() >= sent.items()
    assert not obj.to_dict(defaults=False)["spec"].keys() & sent.keys()  # an apply owns no default
    read = kind.from_dict({"metadata": {"name": "zero"}, "spec": {"note": 1}})
    assert read.spec is not None
    assert read.to_dict()["spec"] == {"note": 1}


NUMBERS = {"limits": {"cpu": 1, "memory": "1Gi"}, "requests": {"cpu": 2, "example.com/gpu": 4}}
ODD = [
    {"spec": {"containers": [{"name": "a", "resources": NUMBERS}]}},
    {"metadata": None, "spec": {"containers": [{"name": "a", "ports": None, "resources": None}]}},
    {"metadata": {"labels": None}, "spec": {"containers": [{"name": "a", "livenessProbe": {"httpGet": {"port": 1}}}],
                                            "volumes": [{"name": "v", "emptyDir": {"sizeLimit": 5}}]}},
    {"spec": {"containers": [{"name": "a", "env": [{"name": "X", "valueFrom": {"resourceFieldRef": {
        "resource": "limits.cpu", "divisor": 1}}}]}], "overhead": {"cpu": 0.5}}},
]


@pytest.mark.parametrize("template", ODD)
def test_what_a_server_may_hold_is_read_and_written_back_as_it_was(template: dict[str, Any]) -> None:
    content = {"apiVersion": "run.example.com/v1", "kind": "Runner", "metadata": {"name": "odd"},
               "spec": {"template": template}}
    obj = Runner.from_dict(content)
    assert obj.spec.template.spec is not None
    assert obj.spec.template.spec.containers[0].name == "a"
    assert obj.to_dict() == content
    obj.spec.template.spec.containers[0].image = "nginx"
    sent = obj.to_dict()
    assert sent["spec"]["template"]["spec"]["containers"][0].pop("image") == "nginx"
    assert sent == content


def test_numbers_of_quantities_are_read_as_text(client: Client) -> None:
    api = Api.namespaced(client, Runner, "default")
    made = api.create({"metadata": {"name": "numbers"}, "spec": {"template": ODD[0], "resources": NUMBERS}})
    assert made["spec"]["template"]["spec"]["containers"][0]["resources"]["limits"]["cpu"] == 1
    assert made.spec.template.spec is not None
    assert made.spec.template.spec.containers[0].resources.limits == {"cpu": "1", "memory": "1Gi"}
    assert made.spec.resources.requests == {"cpu": "2", "example.com/gpu": "4"}
    halves = Runner.from_dict({**made.to_dict(), "spec": {"template": ODD[3]}}).spec.template.spec
    assert halves is not None
    assert halves.overhead == {"cpu": "0.5"}
