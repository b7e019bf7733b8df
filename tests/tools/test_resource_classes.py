"""The generator of resource classes: what is committed is what it writes, and what it makes of each form of field."""

from __future__ import annotations

import pytest

from kubectl_runtime.apiserver.kinds.catalog import builtin_types
from tests.tools.generators import outputs, resourceclasses, resourcedata, resourcetext


@pytest.fixture(scope="module")
def classes():
    return resourceclasses.Classes(resourcedata.schemas(), resourcedata.types(), builtin_types())


def test_the_committed_modules_are_what_the_generator_writes(classes):
    written = resourcetext.modules(classes)
    assert [name for name, text in written.items() if outputs.differs(outputs.module(name), text.encode())] == []
    stale = {path.stem for path in outputs.RESOURCES.glob("*_v*.py")} - written.keys()
    assert not stale


def test_every_generated_module_says_so_in_its_first_line(classes):
    assert all("Generated" in text.partition("\n")[0] for text in resourcetext.modules(classes).values())


@pytest.mark.parametrize(("key", "attribute"), [
    ("podIP", "pod_ip"), ("podIPs", "pod_ips"), ("nonResourceURLs", "non_resource_urls"), ("uid", "uid"),
    ("x-kubernetes-map-type", "x_kubernetes_map_type"), ("$ref", "ref"), ("from", "from_"), ("not", "not_"),
    ("caBundle", "ca_bundle"), ("targetWWNs", "target_wwns"), ("hostPID", "host_pid"), ("int", "int_"),
])
def test_keys_become_attributes(key, attribute):
    assert resourceclasses.snake(key) == attribute


@pytest.mark.parametrize(("definition", "key", "declared"), [
    ("core.v1.PodSpec", "containers", ('Annotated[list[Container], MapKeys("name")]', "[]")),
    ("core.v1.PodSpec", "nodeSelector", ("dict[str, str]", "{}")),
    ("core.v1.PodSpec", "hostPID", ("bool", "False")),
    ("core.v1.PodSpec", "nodeName", ("str | None", "None")),
    ("core.v1.PodSpec", "activeDeadlineSeconds", ("int | None", "None")),
    ("core.v1.PodStatus", "phase", ("str", '""')),
    ("core.v1.Container", "name", ("str", '""')),
    ("core.v1.Container", "resources", ("ResourceRequirements", "msgspec.field(default_factory=ResourceRequirements)")),
    ("core.v1.ContainerPort", "protocol", ("str", '"TCP"')),
    ("core.v1.ServicePort", "targetPort", ("int | str | None", "None")),
    ("core.v1.Secret", "data", ("dict[str, bytes]", "{}")),
    ("coordination.v1.LeaseSpec", "renewTime", ("str | None", "None")),
    ("apps.v1.StatefulSetSpec", "volumeClaimTemplates", ("list[PersistentVolumeClaimTemplate]", "[]")),
])
def test_a_field_is_what_its_go_declaration_says(classes, definition, key, declared):
    assert classes.field(classes.known[f"io.k8s.api.{definition}"], key) == declared
