"""Typed modules for definitions of others: they type-check, and objects are read, changed and written without loss."""
from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import typing
from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path
from random import Random
from types import ModuleType
from typing import Any

import msgspec
import pytest

from kubectl_runtime.client.api.api import Api
from kubectl_runtime.client.api.client import Client
from kubectl_runtime.core.base.errors import RequestError
from kubectl_runtime.core.codec.views import without_nulls
from kubectl_runtime.core.meta.gvk import Scope
from kubectl_runtime.core.meta.metav1 import Condition, LabelSelector
from kubectl_runtime.core.meta.problems import DecodeError
from kubectl_runtime.core.meta.quantities import Quantity
from kubectl_runtime.crd.codegen import CodegenError, module_of
from kubectl_runtime.crd.customresource import CustomResource, Validator
from kubectl_runtime.crd.parts import part_schema
from kubectl_runtime.manifests.documents import read_objects
from kubectl_runtime.resources.core_v1 import Affinity, ObjectReference, PodTemplateSpec, ResourceRequirements
from kubectl_runtime.runtime.apply_crd import apply_crd
from kubectl_runtime.testing import ApiServer
from tests.crd.test_random_types import content, kind_of, some_shape

FOREIGN = Path(__file__).parent / "foreign"
DEFINITIONS = {crd["spec"]["names"]["kind"]: crd for crd, _ in read_objects(FOREIGN / "definitions.yaml")}
OBJECTS = {obj["kind"]: obj for obj, _ in read_objects(FOREIGN / "objects.yaml")}


def loaded(text: str, folder: Path, name: str = "generated") -> ModuleType:
    (folder / f"{name}.py").write_text(text)
    spec = importlib.util.spec_from_file_location(name, folder / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # types are resolved in the module that defines them
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModuleType]:
    yield loaded(module_of(DEFINITIONS.values()), tmp_path_factory.mktemp("generated"), "foreign_kinds")
    del sys.modules["foreign_kinds"]


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with ApiServer() as server, server.client() as client:
        for crd in DEFINITIONS.values():
            apply_crd(client, crd)
        yield client


def change_certificate(spec: Any) -> None:
    spec.dns_names.append("new.example.org")
    spec.private_key.algorithm = "RSA"
    spec.email_sans = None


def change_application(spec: Any) -> None:
    spec.source.helm.values_object["image"]["tag"] = 2.0
    spec.source.target_revision = "v2"
    spec.source.kustomize.replicas[1].count = 4


def change_monitor(spec: Any) -> None:
    spec.endpoints[0].target_port = "web"
    spec.endpoints[0].params["match[]"].append("c")
    expressions = spec.selector.match_expressions
    expressions[0] = msgspec.structs.replace(expressions[0], values=["c", "d"])


def change_alerts(spec: Any) -> None:
    spec.route.continue_ = False
    spec.route.routes[0]["routes"][0]["receiver"] = "deepest"
    spec.mute_time_intervals[0].time_intervals[0].days_of_month[0].end = -2


def change_route(spec: Any) -> None:
    spec.rules[0].filters[0].request_header_modifier.add[1].value = "3"
    spec.rules[0].matches[0].path.type = "RegularExpression"
    spec.rules[0].timeouts.request = "2h"


def change_service(spec: Any) -> None:
    spec.http[0].match[0].headers["end-user"].exact = "john"
    spec.http[0].fault.delay.percentage.value = 0.25
    spec.http[0].route[1].weight = 70


def change_scaler(spec: Any) -> None:
    spec.triggers[0].metadata["lagThreshold"] = "6"
    spec.advanced.horizontal_pod_autoscaler_config.behavior.scale_down.tolerance = 1
    spec.max_replica_count = None


def change_pipeline(spec: Any) -> None:
    spec.params[1].default = ["c"]
    spec.tasks[0].when[0].cel = "false"
    spec.tasks[1].from_ = ["a", "c"]


# what the change is on the wire: (path, value), None: the key is gone
CHANGES: dict[str, tuple[Callable[[Any], None], list[tuple[tuple[Any, ...], Any]]]] = {
    "Certificate": (change_certificate, [
        (("dnsNames",), ["example.org", "www.example.org", "example.org", "new.example.org"]),
        (("privateKey", "algorithm"), "RSA"), (("emailSANs",), None)]),
    "Application": (change_application, [
        (("source", "helm", "valuesObject", "image", "tag"), 2.0), (("source", "targetRevision"), "v2"),
        (("source", "kustomize", "replicas", 1, "count"), 4)]),
    "ServiceMonitor": (change_monitor, [
        (("endpoints", 0, "targetPort"), "web"), (("endpoints", 0, "params", "match[]"), ["a", "b", "c"]),
        (("selector", "matchExpressions", 0, "values"), ["c", "d"])]),
    "AlertmanagerConfig": (change_alerts, [
        (("route", "continue"), False), (("route", "routes", 0, "routes", 0, "receiver"), "deepest"),
        (("muteTimeIntervals", 0, "timeIntervals", 0, "daysOfMonth", 0, "end"), -2)]),
    "HTTPRoute": (change_route, [
        (("rules", 0, "filters", 0, "requestHeaderModifier", "add", 1, "value"), "3"),
        (("rules", 0, "matches", 0, "path", "type"), "RegularExpression"),
        (("rules", 0, "timeouts", "request"), "2h")]),
    "VirtualService": (change_service, [
        (("http", 0, "match", 0, "headers", "end-user", "exact"), "john"),
        (("http", 0, "fault", "delay", "percentage", "value"), 0.25), (("http", 0, "route", 1, "weight"), 70)]),
    "ScaledObject": (change_scaler, [
        (("triggers", 0, "metadata", "lagThreshold"), "6"), (("maxReplicaCount",), None),
        (("advanced", "horizontalPodAutoscalerConfig", "behavior", "scaleDown", "tolerance"), 1)]),
    "Pipeline": (change_pipeline, [
        (("params", 1, "default"), ["c"]), (("tasks", 0, "when", 0, "cel"), "false"),
        (("tasks", 1, "from"), ["a", "c"])]),
}


def with_changes(spec: Any, changes: list[tuple[tuple[Any, ...], Any]]) -> Any:
    wanted = deepcopy(spec)
    for path, value in changes:
        place = wanted
        for part in path[:-1]:
            place = place[part]
        if value is None:
            del place[path[-1]]
        else:
            place[path[-1]] = value
    return wanted


def test_there_is_an_object_and_a_change_for_each_definition() -> None:
    assert DEFINITIONS.keys() == OBJECTS.keys() == CHANGES.keys()


@pytest.mark.parametrize("kind", DEFINITIONS)
def test_an_object_is_read_changed_and_written_back_without_loss(client: Client, generated: ModuleType,
                                                                 kind: str) -> None:
    api = Api.namespaced(client, getattr(generated, kind), "default")
    stored = api.create(OBJECTS[kind]).to_dict()
    obj = api.get("example")
    change, wanted = CHANGES[kind]
    change(obj.spec)
    written = api.replace(obj).to_dict()
    assert written["spec"] == with_changes(stored["spec"], wanted)
    rest = {"spec", "metadata"}
    assert {key: value for key, value in written.items() if key not in rest} == {
        key: value for key, value in stored.items() if key not in rest}
    unchanged = api.get("example")
    _ = unchanged.spec
    assert api.replace(unchanged).resource_version == unchanged.resource_version


def test_the_module_passes_mypy_strict_and_so_does_its_use(tmp_path: Path) -> None:
    pytest.importorskip("mypy", reason="mypy comes with the extra 'lint'")
    (tmp_path / "foreign_kinds.py").write_text(module_of(DEFINITIONS.values()))
    (tmp_path / "use.py").write_text('''
from foreign_kinds import Certificate, CertificateSpec, CertificateSpecIssuerRef, HTTPRoute, HTTPRouteSpec
from foreign_kinds import ServiceMonitor

made: CertificateSpec = CertificateSpec(issuer_ref=CertificateSpecIssuerRef(name="ca"), secret_name="tls", is_ca=True)
obj = Certificate(name="a", spec=made)
obj.spec.dns_names = [*(obj.spec.dns_names or ()), "example.org"]
route: HTTPRoute = HTTPRoute(name="a", spec=HTTPRouteSpec())
names: list[str | None] = [rule.name for rule in route.spec.rules or ()]
assert route.status is None or route.status.parents[0].parent_ref.name


def port(monitor: ServiceMonitor) -> int | str | None:
    return monitor.spec.endpoints[0].target_port
''')
    (tmp_path / "wrong.py").write_text("from foreign_kinds import Certificate\n\n\ndef f(obj: Certificate) -> int:\n"
                                       "    obj.spec.usages = ['unknown']\n    return obj.spec.dns_names\n")
    command = [sys.executable, "-m", "mypy", "--strict"]
    done = subprocess.run([*command, "foreign_kinds.py", "use.py"], cwd=tmp_path, capture_output=True, text=True,
                          timeout=110, check=False)
    assert done.returncode == 0, done.stdout
    wrong = subprocess.run([*command, "wrong.py"], cwd=tmp_path, capture_output=True, text=True, timeout=110,
                           check=False)
    assert wrong.stdout.count("error:") == 1, wrong.stdout
    (tmp_path / "foreign_kinds.py").write_text(module_of(DEFINITIONS.values(), strict_enums=True))
    strict = subprocess.run([*command, "wrong.py"], cwd=tmp_path, capture_output=True, text=True, timeout=110,
                            check=False)
    assert strict.stdout.count("error:") == 2, strict.stdout


def test_the_text_is_always_the_same_and_no_line_of_code_is_too_long() -> None:
    text = module_of(DEFINITIONS.values())
    assert text == module_of(deepcopy(list(DEFINITIONS.values())))
    assert max(map(len, text.splitlines())) <= 120
    assert text.startswith('"""Generated by `kubectl-runtime codegen`:\n\n    Certificate of cert-manager.io/v1\n')


def definition(schema: Any, **more: Any) -> dict[str, Any]:
    version = {"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    return {"kind": "CustomResourceDefinition", "metadata": {"name": "things.example.com"}, "spec": {
        "group": "example.com", "scope": "Cluster", "names": {"kind": "Thing", "plural": "things"},
        "versions": [version], **more}}


ODD_NAMES = ["class", "list", "str", "x-y.z", "snake_case", "2fast", "clusterIPs", "HTTPGet", "fooBar", "foo-bar",
             "from", "_", "externalURLs", "datetime", "msgspec", "Ünicode", "self", "a1B2"]


def test_keys_that_are_no_names_of_attributes_are_kept(tmp_path: Path) -> None:
    fields = {name: {"type": "integer"} for name in ODD_NAMES}
    only = {"type": "object", "properties": {"snake_case": {"type": "string"}}}
    module = loaded(module_of([definition({"type": "object", "properties": {"spec": {
        "type": "object", "properties": {**fields, "only": only}}, "data": {"type": "object"},
        "name": {"type": "string"}, "labels": {"type": "object"}}})]), tmp_path)
    content = {"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "a"},
               "spec": {**{name: number for number, name in enumerate(ODD_NAMES)}, "only": {"snake_case": "s"}},
               "data": {"x": 1}, "labels": {"own": "l"}, "name": "n"}
    obj = module.Thing.from_dict(content)
    assert {name: getattr(obj.spec, name) for name in type(obj.spec).__struct_fields__ if name != "only"} == dict(zip(
        ["class_", "list_", "str_", "x_y_z", "snake_case_", "field_2fast", "cluster_ips", "http_get", "foo_bar",
         "foo_bar_", "from_", "field", "external_urls", "datetime_", "msgspec_", "nicode", "self", "a1_b2"],
        range(len(ODD_NAMES)), strict=True))
    assert obj.spec.only.snake_case_ == "s"
    assert obj.data == {"x": 1}
    assert (obj["name"], obj["labels"], module.Thing.api_resource.scope) == ("n", {"own": "l"}, Scope.CLUSTER)
    obj.spec.class_ = 7
    assert obj.to_dict() == {**content, "spec": {**content["spec"], "class": 7}}  # type: ignore[dict-item]


@pytest.mark.parametrize("name", ["Resource", "Any", "Scope"])
def test_kinds_that_are_called_as_what_the_module_imports_get_another_name(tmp_path: Path, name: str) -> None:
    crd = definition({"type": "object", "properties": {"spec": {"type": "object", "properties": {
        "any": {"x-kubernetes-preserve-unknown-fields": True}}}}}, names={"kind": name, "plural": "things"})
    module = loaded(module_of([crd, definition({"type": "object"})]), tmp_path)
    kind = getattr(module, f"{name}2")
    assert (kind.api_resource.kind, module.Thing.api_resource.kind) == (name, "Thing")
    assert kind.from_dict({"metadata": {"name": "a"}, "spec": {"any": [1]}}).spec.any == [1]


def test_the_stored_version_is_taken_unless_another_one_is_wanted() -> None:
    def version(name: str, field: str) -> dict[str, Any]:
        return {"name": name, "served": True, "storage": name == "v2", "schema": {"openAPIV3Schema": {
            "type": "object", "properties": {"spec": {"type": "object", "properties": {field: {"type": "string"}}}}}}}

    crd = definition({}, versions=[version("v1", "old"), version("v2", "new")])
    assert "new: str" in module_of([crd])
    assert "new: str" not in module_of([crd], "v1")
    assert 'version="v1"' in module_of([crd], "v1")
    with pytest.raises(CodegenError, match=r"things\.example\.com has no version v3; its versions: v1, v2"):
        module_of([crd], "v3")


@pytest.mark.parametrize(("crds", "problem"), [
    ([], "there is no CustomResourceDefinition"),
    ([{"kind": "Pod", "metadata": {"name": "a"}}], "Pod a is not a CustomResourceDefinition: KeyError"),
    ([definition(None)], "things.example.com has no schema for v1")])
def test_what_a_module_cannot_be_made_of_is_told(crds: list[Any], problem: str) -> None:
    with pytest.raises(CodegenError, match=problem):
        module_of(crds)


@pytest.mark.parametrize("kind", DEFINITIONS)
def test_an_object_of_a_foreign_kind_is_validated_without_a_server(kind: str) -> None:
    validator, obj = Validator.of(DEFINITIONS[kind]), OBJECTS[kind]
    before = deepcopy(obj)
    assert validator.violations(obj) == []
    assert validator.violations(obj, obj) == []
    wrong = {**obj, "spec": []}
    assert next(cause.field for cause in validator.violations(wrong)) == "spec"
    assert obj == before


def test_rules_of_foreign_kinds_are_asked_without_a_server() -> None:
    filters = [{"type": "RequestRedirect"}]
    told = Validator.of(DEFINITIONS["HTTPRoute"]).violations({**OBJECTS["HTTPRoute"], "spec": {
        "rules": [{"filters": filters}]}})
    assert [(cause.field, cause.message.partition(": ")[2]) for cause in told] == [
        ("spec.rules[0].filters[0]", "filter.requestRedirect must be specified for RequestRedirect filter.type")]
    with pytest.raises(RequestError, match="has no schema for v9; its versions: v1"):
        Validator.of(DEFINITIONS["HTTPRoute"], "v9")


@pytest.mark.parametrize("seed", range(25))
def test_objects_of_random_definitions_are_read_and_written_back_as_they_came(tmp_path: Path, seed: int) -> None:
    draw = Random(seed)
    shape = some_shape(draw, 4)
    kind = kind_of(shape.hint)
    module = loaded(module_of([kind.crd()]), tmp_path, f"random_kinds_{seed}")
    foreign = getattr(module, kind.__name__)
    for _ in range(5):
        obj = content(kind, shape.value(draw))
        read = foreign.from_dict(obj)
        made = foreign(name="a", spec=read.spec)  # what is null may be left out, and nothing else
        assert without_nulls(made.to_dict()["spec"]) == without_nulls(obj["spec"])
        assert read.to_dict() == obj


def of_spec(tmp_path: Path, name: str, properties: dict[str, Any], *required: str, strict: bool = False) -> Any:
    """The module of a definition whose spec has these properties."""
    schema = {"type": "object", "properties": {"spec": {
        "type": "object", "properties": properties, **({"required": list(required)} if required else {})}}}
    crd = {"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
           "metadata": {"name": "things.example.com"}, "spec": {
               "group": "example.com", "scope": "Namespaced", "names": {"kind": "Thing", "plural": "things"},
               "versions": [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}]}}
    return loaded(module_of([crd], strict_enums=strict), tmp_path, name)


def thing(module: Any, spec: dict[str, Any]) -> Any:
    return module.Thing.from_dict({"metadata": {"name": "a"}, "spec": spec}).spec


def test_one_more_value_of_an_enum_leaves_the_object_readable(tmp_path: Path) -> None:
    properties = {"mode": {"type": "string", "enum": ["fast", "slow"], "description": "How."},
                  "level": {"type": "integer", "enum": [1, 2]}}
    module = of_spec(tmp_path, "enums_of_thing", properties)
    assert thing(module, {"mode": "newer", "level": 1}).mode == "newer"
    assert "How. One of: fast, slow." in Path(module.__file__).read_text()
    strict = of_spec(tmp_path, "strict_enums_of_thing", properties, strict=True)
    with pytest.raises(DecodeError, match=r"\$\.spec\.mode"):
        thing(strict, {"mode": "newer"})


def test_a_required_field_with_a_default_need_not_be_given(tmp_path: Path) -> None:
    module = of_spec(tmp_path, "defaults_of_thing", {
        "most": {"type": "integer", "default": 10}, "mode": {"type": "string", "default": "fast"},
        "on": {"type": "boolean", "default": True}, "texts": {"type": "array", "items": {"type": "string"},
                                                              "default": ["a"]}, "name": {"type": "string"}},
        "most", "mode", "on", "texts", "name")
    spec = thing(module, {"name": "n"})
    assert (spec.most, spec.mode, spec.on, spec.texts) == (10, "fast", True, None)
    assert module.ThingSpec(name="n").most == 10
    with pytest.raises(DecodeError, match="name"):
        thing(module, {})


def test_quantities_are_known(tmp_path: Path) -> None:
    memory, port = part_schema("io.k8s.apimachinery.pkg.api.resource.Quantity"), {"x-kubernetes-int-or-string": True}

    class Own(CustomResource, group="example.com", version="v1", kind="Own"):
        spec: Quantity

    own = Own.crd()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
    module = of_spec(tmp_path, "quantities_of_thing", {
        "memory": memory, "own": own, "limits": {"type": "object", "additionalProperties": memory}, "port": port,
        "other": {**port, "pattern": "^[0-9]+%$"}, "sizes": {"type": "array", "items": memory}}, "memory")
    hints = typing.get_type_hints(module.ThingSpec)
    assert hints == {"memory": Quantity, "own": Quantity | None, "limits": dict[str, Quantity] | None,
                     "port": int | str | None, "other": int | str | None, "sizes": list[Quantity] | None}
    content = {"metadata": {"name": "a"}, "spec": {"memory": 2, "own": "0.5", "limits": {"cpu": "1000m"},
                                                   "sizes": ["1Gi", 3]}}
    obj = module.Thing.from_dict(content)
    assert obj.spec.limits["cpu"] == Quantity("1")
    assert obj.spec.sizes == [Quantity("1024Mi"), Quantity("3")]
    obj.spec = obj.spec
    assert obj.to_dict()["spec"] == content["spec"]
    obj.spec.memory = Quantity("3Gi")
    assert obj.to_dict()["spec"] == {**content["spec"], "memory": "3Gi"}


def test_only_what_is_used_is_imported(tmp_path: Path) -> None:
    module = of_spec(tmp_path, "imports_of_thing", {
        "size": {"type": "integer", "description": "Any datetime, Annotated or Literal: MapKeys, Scope, msgspec.Raw."},
        "text": {"type": "string", "default": '"""', "description": "One."}}, "text")
    imports = [line for line in Path(module.__file__ or "").read_text().splitlines() if "import " in line]
    assert imports == ["from __future__ import annotations", "import msgspec", "from kubectl_runtime import Resource"]


@pytest.mark.parametrize("length", [3, 20, 35, 50])
def test_lines_of_deep_definitions_stay_short(tmp_path: Path, length: int) -> None:
    node: dict[str, Any] = {"type": "object", "properties": {"aLongerKey": {"type": "integer"}}}
    for key in ("Again", "sELinux"):
        node = {"type": "object", "properties": {key + "x" * length: node, "list": {
            "type": "array", "items": node, "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["aLongerKey"]}}}
    module = of_spec(tmp_path, f"deep_{length}", {"thing": node})
    assert max(map(len, Path(module.__file__ or "").read_text().splitlines())) <= 120
    thing(module, {"thing": {"list": [{"list": [{"aLongerKey": 1}]}]}})


def test_parts_of_the_api_are_known(tmp_path: Path) -> None:
    properties = {key: part_schema(name) for key, name in (
        ("selector", "io.k8s.apimachinery.pkg.apis.meta.v1.LabelSelector"),
        ("template", "io.k8s.api.core.v1.PodTemplateSpec"), ("target", "io.k8s.api.core.v1.ObjectReference"),
        ("resources", "io.k8s.api.core.v1.ResourceRequirements"), ("affinity", "io.k8s.api.core.v1.Affinity"))}
    properties["conditions"] = {"type": "array", "items": part_schema("io.k8s.apimachinery.pkg.apis.meta.v1.Condition")}
    properties["other"] = {"type": "object", "properties": {"metadata": {"type": "object"}, "spec": {
        "type": "object", "properties": {"size": {"type": "integer"}}}}}
    module = of_spec(tmp_path, "parts_of_thing", properties)
    hints = typing.get_type_hints(module.ThingSpec)
    for key, part in (("selector", LabelSelector), ("template", PodTemplateSpec), ("target", ObjectReference),
                      ("resources", ResourceRequirements), ("affinity", Affinity), ("other", module.ThingSpecOther)):
        assert hints[key] == part | None
    assert hints["conditions"] == list[Condition] | None
    spec = thing(module, {"selector": {"matchLabels": {"a": "b"}}, "resources": {"limits": {"cpu": 1}},
                          "template": {"spec": {"containers": [{"name": "a"}]}}})
    assert spec.resources.limits == {"cpu": "1"}
    assert spec.template.spec.containers[0].name == "a"


@pytest.mark.parametrize("encoding", ["cp1252", "cp437", "ascii"])
def test_files_are_utf8_whatever_the_terminal_is(tmp_path: Path, encoding: str) -> None:
    (tmp_path / "kinds.py").write_text(
        "import msgspec\nfrom kubectl_runtime import CustomResource\n\n\nclass Spec(msgspec.Struct):\n"
        '    """Größe ✓ und Höhe."""\n\n    size: int = 1\n\n\n'
        'class Box(CustomResource, group="example.com", version="v1", kind="Box"):\n    spec: Spec\n', "utf-8")
    environment = {**os.environ, "PYTHONPATH": f"{os.environ.get('PYTHONPATH', '')}:{tmp_path}",
                   "PYTHONIOENCODING": encoding}
    made = subprocess.run([sys.executable, "-m", "kubectl_runtime", "crd", "kinds:Box"], env=environment, cwd=tmp_path,
                          capture_output=True, timeout=60, check=True).stdout
    assert "Größe ✓ und Höhe." in made.decode("utf-8")
    (tmp_path / "crd.yaml").write_bytes(made)
    made = subprocess.run([sys.executable, "-m", "kubectl_runtime", "codegen", "crd.yaml"], env=environment,
                          cwd=tmp_path, capture_output=True, timeout=60, check=True).stdout
    assert "Größe ✓ und Höhe." in made.decode("utf-8")
