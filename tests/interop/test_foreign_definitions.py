"""Definitions and manifests of public projects, read from clones of them: controller-gen's schemas of the API's parts,
classes generated from their CustomResourceDefinitions, and workloads as fields of a custom resource.

    FOREIGN_CLONES=~/clones .venv/bin/pytest -s tests/interop/test_foreign_definitions.py

The folder holds a clone a project, `OWNER+NAME` or `OWNER+NAME/repo`, with the commit that `COMMITS` names. Nothing of
them is kept here but what `tests/crd/test_parts.py` has: a digest of each part's schema.
"""
from __future__ import annotations

import functools
import importlib
import importlib.util
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml

from kubectl_runtime import resources
from kubectl_runtime.client.api.api import Api
from kubectl_runtime.client.api.client import Client
from kubectl_runtime.core.base.errors import ApiError
from kubectl_runtime.core.meta.problems import DecodeError
from kubectl_runtime.core.objects.resource import Resource
from kubectl_runtime.crd.codegen import module_of
from kubectl_runtime.crd.customresource import CustomResource
from kubectl_runtime.resources import batch_v1, core_v1
from kubectl_runtime.resources.apps_v1 import DaemonSetSpec, DeploymentSpec, ReplicaSetSpec, StatefulSetSpec
from kubectl_runtime.runtime.apply_crd import apply_crd
from kubectl_runtime.schema.validation import schema_causes
from kubectl_runtime.testing import ApiServer
from tests.crd.test_parts import RECORDED, at, differences, digest, our_schema, undescribed

COMMITS = {
    "kubernetes-sigs/kubebuilder": "5c400728930120dd385712db61cb0a937238ce81",
    "kubernetes-sigs/kueue": "ff69552e79ad21652c36caa97038382e55625cf7",
    "kubernetes-sigs/jobset": "08dfbdfd682714a9ab929633eca8dc95315187e7",
    "kubernetes-sigs/karpenter": "2266468104f36373ed002241afaee2d3bbc26078",
    "kubernetes-sigs/gateway-api": "4564255ac2c35d582249b3cdf261bdf51c8bca32",
    "aws/karpenter-provider-aws": "1d927085dd81a9df9301e613f371dac5b4d16bfe",
    "cert-manager/cert-manager": "2d0d7f7f74241a9cbf79f0e2a7bb247238ee09fd",
    "cloudnative-pg/cloudnative-pg": "a95a534dbe0854495b863bbc1b7651f74d310916",
    "external-secrets/external-secrets": "cc5bfbc2234ace9cb0caff4ea89c435cf517b27b",
    "kubeflow/spark-operator": "38082f3318e9d33f3e4a940c7cf165df6e40b422",
    "prometheus-operator/prometheus-operator": "6adcebc5076c34f4f55f8f5f7b1e528929373ac7",
    "ray-project/kuberay": "feeaf72facab4881ba2b179248bb67315634e229",
    "kubernetes/examples": "279e8e4fe314f6cb7bc55fa3fbc21bbeaa48c0ea",
    "GoogleCloudPlatform/microservices-demo": "34ffea9175946982c3088ed84994fe6019ad6e92",
    "GoogleCloudPlatform/kubernetes-engine-samples": "2b5036514162a489145c5e5570bc320efbcb37bf",
}
DEFINITIONS = {
    "kubernetes-sigs/kueue": "config/components/crd/bases/", "kubernetes-sigs/jobset": "config/components/crd/bases/",
    "kubernetes-sigs/karpenter": "pkg/apis/crds/", "kubernetes-sigs/gateway-api": "config/crd/",
    "aws/karpenter-provider-aws": "pkg/apis/crds/karpenter.k8s.aws", "cert-manager/cert-manager": "deploy/crds/",
    "cloudnative-pg/cloudnative-pg": "config/crd/bases/", "external-secrets/external-secrets": "config/crds/bases/",
    "kubeflow/spark-operator": "config/crd/bases/", "ray-project/kuberay": "ray-operator/config/crd/bases/",
    "prometheus-operator/prometheus-operator": "example/prometheus-operator-crd/",
}
WORKLOADS = ("kubernetes/examples", "GoogleCloudPlatform/microservices-demo",
             "GoogleCloudPlatform/kubernetes-engine-samples")

pytestmark = [
    pytest.mark.skipif("FOREIGN_CLONES" not in os.environ, reason="FOREIGN_CLONES names no folder of clones"),
    pytest.mark.timeout(900)]


@pytest.fixture(autouse=True)
def _only_this_cluster() -> None:
    """Each test has a server of its own."""


class Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """Times stay texts, as in JSON."""


Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in known if not tag.endswith(("timestamp", "value"))]
    for first, known in yaml.SafeLoader.yaml_implicit_resolvers.items()}


def git(project: str, *arguments: str) -> str:
    folder = Path(os.environ["FOREIGN_CLONES"]).expanduser() / project.replace("/", "+")
    folder = folder / "repo" if (folder / "repo").exists() else folder
    ran = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, check=False)
    return ran.stdout.decode()


@functools.cache
def documents(project: str, path: str) -> list[Any]:
    """The documents of a YAML file at the commit; none for a template."""
    try:
        return [found for found in yaml.load_all(git(project, "show", f"{COMMITS[project]}:{path}"), Loader) if found]
    except yaml.YAMLError:
        return []


def files_with(project: str, pattern: str, *paths: str) -> list[str]:
    found = git(project, "grep", "-lE", pattern, COMMITS[project], "--", *(paths or ("*.yaml", "*.yml")))
    return sorted({line.partition(":")[2] for line in found.splitlines()})


def definitions_of(project: str) -> Iterator[dict[str, Any]]:
    for path in files_with(project, "^kind: CustomResourceDefinition", f"{DEFINITIONS[project]}*.yaml"):
        yield from (found for found in documents(project, path) if found["kind"] == "CustomResourceDefinition")


@pytest.mark.parametrize("part", RECORDED)
def test_the_schema_of_a_part_is_the_one_that_controller_gen_wrote(part: str) -> None:
    record = RECORDED[part]
    assert COMMITS[record.project] == record.commit
    [crd] = documents(record.project, record.file)
    [version] = [found for found in crd["spec"]["versions"] if found["name"] == record.version]
    theirs = undescribed(at(version["schema"]["openAPIV3Schema"], record.path))
    assert list(differences(theirs, our_schema(part))) == []
    assert digest(theirs) == record.digest


OWN = {  # paths at which the example says something else than the tutorial
    "apiVersion", "kind", "metadata",  # an API server knows these of every kind
    "spec.failedJobsHistoryLimit.default", "spec.successfulJobsHistoryLimit.default", "spec.suspend.default",
    "spec.schedule.minLength", "spec.startingDeadlineSeconds.format", "status.conditions", "status.active.maxItems",
    "status.active.minItems", "status.active.x-kubernetes-list-type",
    "status.nullable", "spec.startingDeadlineSeconds.nullable", "status.lastScheduleTime.nullable",  # None in Python
}


def test_the_definition_of_the_example_is_the_tutorials_but_for_what_is_named() -> None:
    sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))
    cronjob = importlib.import_module("cronjob")
    record = RECORDED["PodTemplateSpec"]

    bare: Any = type("Bare", (CustomResource,), {
        "__annotations__": {"spec": cronjob.CronJobSpec, "status": cronjob.CronJobStatus | None}, "status": None,
        "__module__": __name__}, group="batch.tutorial.kubebuilder.io", version="v1", kind="CronJob",
        embedded_metadata=False)
    [crd] = documents(record.project, record.file)
    theirs, ours = (undescribed(found["spec"]["versions"][0]["schema"]["openAPIV3Schema"])
                    for found in (crd, bare.crd()))
    assert {text.partition(": ")[0].replace("properties.", "").removeprefix("$.")
            for text in differences(theirs, ours)} == OWN


def imported(text: str, name: str, folder: Path) -> Any:
    path = folder / f"{name}.py"
    path.write_text(text, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(f"generated_{name}", path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_classes_of_public_definitions_are_imported_and_read_samples(tmp_path: Path) -> None:
    count, samples, unread = 0, Counter[str](), []
    for project in DEFINITIONS:
        kinds: dict[Any, tuple[type[Resource], dict[str, Any]]] = {}
        for number, crd in enumerate(definitions_of(project)):
            count += 1
            name = re.sub(r"\W", "_", f"{project}_{number}")
            for version in crd["spec"]["versions"]:
                module = imported(module_of([crd], version["name"]), f"{name}_{version['name']}", tmp_path)
                kind = getattr(module, crd["spec"]["names"]["kind"])
                assert kind.api_resource.kind == crd["spec"]["names"]["kind"]
                kinds[f"{crd['spec']['group']}/{version['name']}", kind.api_resource.kind] = (
                    kind, version["schema"]["openAPIV3Schema"])
        names = "|".join(sorted({kind for _, kind in kinds}))
        for path in files_with(project, f"^kind: ({names})$"):
            for sample in documents(project, path):
                key = (sample.get("apiVersion"), sample.get("kind")) if isinstance(sample, dict) else None
                if key not in kinds:
                    continue
                cls, schema = kinds[key]
                obj = cls.from_dict(sample)
                try:
                    obj.validate()
                except DecodeError as error:
                    unread.append(f"{project} {path}: {error}")
                    assert schema_causes(sample, schema), unread[-1]  # no server takes it as it is, either
                    continue
                for part in cls.__annotations__.keys() - {"api_version", "kind", "metadata"}:
                    if getattr(obj, part) is not None:
                        setattr(obj, part, getattr(obj, part))  # read, and written back as it was
                assert obj.to_dict() == sample, path
                samples[project] += 1
    print(f"\n{count} definitions, {samples.total()} samples: {dict(samples)}; unread {len(unread)}")
    print("\n".join(unread))
    assert count >= 90
    checks = (["ruff", "check", "--isolated", "--select", "E,F,W,I", "--line-length", "120"], ["mypy", "--strict"])
    for command in (command for command in checks if importlib.util.find_spec(command[0])):
        ran = subprocess.run([sys.executable, "-m", *command, "."], cwd=tmp_path, capture_output=True, text=True,
                             check=False, env={**os.environ, "MYPYPATH": str(Path(__file__).parents[2])})
        assert ran.returncode == 0, ran.stdout[-5000:] + ran.stderr[-2000:]


class HolderSpec(msgspec.Struct, rename="camel", kw_only=True):
    pod: core_v1.PodSpec | None = None
    deployment: DeploymentSpec | None = None
    stateful_set: StatefulSetSpec | None = None
    daemon_set: DaemonSetSpec | None = None
    replica_set: ReplicaSetSpec | None = None
    job: batch_v1.JobSpec | None = None
    cron_job: batch_v1.CronJobSpec | None = None


class Holder(CustomResource, group="holders.example.com", version="v1", kind="Holder"):
    spec: HolderSpec


FIELDS = {("v1", "Pod"): "pod", ("apps/v1", "Deployment"): "deployment", ("apps/v1", "StatefulSet"): "statefulSet",
          ("apps/v1", "DaemonSet"): "daemonSet", ("apps/v1", "ReplicaSet"): "replicaSet", ("batch/v1", "Job"): "job",
          ("batch/v1", "CronJob"): "cronJob"}


def workloads() -> Iterator[tuple[str, str, dict[str, Any]]]:
    names = "|".join(kind for _, kind in FIELDS)
    for project in WORKLOADS:
        for path in files_with(project, f"^kind: ({names})"):
            for found in documents(project, path):
                field = FIELDS.get((found.get("apiVersion"), found.get("kind"))) if isinstance(found, dict) else None
                if field is not None and found.get("spec"):
                    yield f"{project} {path}", field, found["spec"]


def test_public_workloads_are_valid_as_fields_and_come_back_as_they_were() -> None:
    kinds, refused, fractions = Counter[str](), [], 0
    with ApiServer() as server, server.client() as client:
        apply_crd(client, Holder)
        api = Api.namespaced(client, Holder, "default")
        for number, (where, field, spec) in enumerate(workloads()):
            if not is_taken(client, field, spec):
                continue  # a template, a patch of kustomize, a misspelt field
            try:
                round_trip(api, number, field, spec)
            except Exception as error:
                if 'must be of type integer,string: "number"' in str(error):
                    fractions += 1  # `cpu: 0.1`, which controller-gen's int-or-string refuses as well
                else:
                    refused.append(f"{where}: {type(error).__name__}: {error}")
                continue
            kinds[field] += 1
    print(f"\n{kinds.total()} workloads unchanged: {dict(kinds)}; {fractions} with a fraction; {len(refused)} not")
    print("\n".join(refused))
    assert kinds.total() >= 200
    assert not refused


def is_taken(client: Client, field: str, spec: dict[str, Any]) -> bool:
    """Whether a server takes it as an object of its own kind, without a warning."""
    kind = {name: getattr(resources, kind) for (_, kind), name in FIELDS.items()}[field]
    try:
        Api.namespaced(client, kind, "default").create({"metadata": {"name": "taken"}, "spec": spec},
                                                       field_validation="Strict", dry_run=True)
    except ApiError as error:
        return error.status.code not in (400, 422)
    return True


def round_trip(api: Api[Holder], number: int, field: str, spec: dict[str, Any]) -> None:
    sent = {"metadata": {"name": f"w{number}"}, "spec": {field: spec}}
    stored = api.create(sent)["spec"]
    read = api.get(f"w{number}")
    read.validate()
    assert holds(stored[field], spec)
    read.spec = read.spec
    read.labels["seen"] = "yes"
    assert api.replace(read)["spec"] == stored
    typed = api.create(Holder(name=f"t{number}", spec=Holder.from_dict(sent).spec))  # written by the class
    assert typed.spec == read.spec


def holds(stored: Any, sent: Any) -> bool:
    """Whether all that was sent is stored: a server adds defaults, and takes away what is null."""
    if isinstance(sent, dict):
        return all(value is None or (key in stored and holds(stored[key], value)) for key, value in sent.items())
    if isinstance(sent, list):
        return len(sent) == len(stored) and all(map(holds, stored, sent))
    return bool(stored == sent)
