"""The project's own tests against a real kube-apiserver: whoever says `ApiServer()` gets that one, emptied before.

    PYTHONPATH=. pytest -p tests.tools.real_server --real-server KUBECONFIG tests/manager tests/crd

A test that needs what only the embedded server has (faults, a clock, the requests so far, arguments) is skipped, and
says why. The server has to listen on loopback, since everything in it is deleted; its ServiceAccount admission plugin
has to be off, so that Pods can be made at once. Beside it runs a kube-controller-manager, without which namespaces do
not end, but without root-ca-certificate-publisher, as tests count ConfigMaps. The tests share it: one process.
"""
from __future__ import annotations

import inspect
import ipaddress
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

import pytest
import yaml

import kubectl_runtime.apiserver.server as embedded
from kubectl_runtime import Api, Client, Config, KubeError, Patch
from kubectl_runtime.client import Discovery
from kubectl_runtime.core.meta.gvk import GroupVersionKind
from kubectl_runtime.manifests import apply_manifests
from kubectl_runtime.manifests.documents import Manifests, read_objects
from kubectl_runtime.params import DeleteParams
from kubectl_runtime.testing.asking import eventually

_KEPT_NAMESPACES = frozenset(("default", "kube-system", "kube-public", "kube-node-lease"))
_KEPT = frozenset(("kubernetes", "kube-root-ca.crt"))
"""Objects in the namespace default that the server, or its controllers, would make again."""
_MADE_BY_THE_SERVER = frozenset(("endpoints", "endpointslices"))
_OF_THE_SYSTEM = frozenset(("configmaps", "events", "leases", "rolebindings", "roles", "serviceaccounts"))
"""Kinds of which the server itself has some in its namespaces."""
_OF_THE_CLUSTER = frozenset(("customresourcedefinitions", "namespaces", "nodes", "validatingwebhookconfigurations",
                             "mutatingwebhookconfigurations", "validatingadmissionpolicies",
                             "validatingadmissionpolicybindings"))
"""What is emptied outside of namespaces."""
_EMBEDDED_ONLY = re.compile(
    r"\b\w*(?:server|cluster|embedded|simulated)\.(?:requests|faults|restart|transport|snapshot|restore|handle"
    r"|expire_history|drop_connections|mount_webhook|kubelet|core|access|clock|credentials|tls|stop|server)\b"
    r"|\bSimClock\b|_embedded_server_|\b[Ss]imulat\w*|\bApiServer\((?!\))")
"""What a test says that needs the embedded server. Found in its text, before it has begun anything that would wait."""
PATIENCE = 60.0
"""Seconds for everything to be gone: a CustomResourceDefinition takes some, and a namespace a few more."""


class RealServer:
    """What tests use of an `ApiServer`, for the server of a kubeconfig."""

    kubeconfig: Path

    def __init__(self, **arguments: Any) -> None:
        if arguments.keys() - {"seed", "record"}:
            pytest.skip(f"a real server takes no arguments ({', '.join(arguments)})")
        self.url = Config.from_kubeconfig(self.kubeconfig).cluster_url

    def start(self) -> Self:
        with self.client() as client:
            empty(client)
        return self

    def stop(self) -> None:
        """It goes on."""

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *exc: object) -> None:
        self.stop()

    def config(self, user: object = None, *, certificate: bool = False, timeout: float = 60) -> Config:
        if user is not None or certificate:
            pytest.skip("users of a real server are its own")
        return replace(Config.from_kubeconfig(self.kubeconfig), timeout=timeout)

    def client(self, user: object = None, *, certificate: bool = False, timeout: float = 60) -> Client:
        return Client(self.config(user, certificate=certificate, timeout=timeout))

    def write_kubeconfig(self, path: str | Path, user: object = None, *, certificate: bool = False) -> Path:
        if user is not None or certificate:
            pytest.skip("users of a real server are its own")
        content = yaml.safe_load(self.kubeconfig.read_bytes())
        (context,) = (each for each in content["contexts"] if each["name"] == content["current-context"])
        context["name"] = content["current-context"] = "embedded"  # as in those of embedded servers
        Path(path).write_text(yaml.safe_dump(content), "utf-8")
        return Path(path)

    def load(self, manifests: Manifests) -> int:
        found = [obj for obj, _ in read_objects(manifests)]
        with self.client() as client:
            apply_manifests(client, found, field_manager="load", force=True, progress=False)
            for obj in found:
                group, _, version = obj["apiVersion"].rpartition("/")
                if obj.get("status") and obj["kind"] != "CustomResourceDefinition":
                    kind = client.discovery.resolve_gvk(GroupVersionKind(group, version, obj["kind"])).resource
                    namespace = obj["metadata"].get("namespace") or "default"
                    api = Api.namespaced(client, kind, namespace) if kind.namespaced else Api.all(client, kind)
                    api.patch_status(obj["metadata"]["name"], Patch.merge({"status": obj["status"]}))
        return len(found)

    def __getattr__(self, name: str) -> Any:
        pytest.skip(f"a real server has no ApiServer.{name}")


def empty(client: Client) -> None:
    """Delete all that a fresh server does not have, and block until it is gone."""
    eventually(lambda: [_delete(api, name, held) for api, name, held in [*_left(client)]], lambda left: not left,
               timeout=PATIENCE)


def _left(client: Client) -> Iterator[tuple[Api[Any], str, bool]]:
    """What is to go: where, its name, and whether finalizers hold it. Objects before what defines them."""
    kinds = [kind for kind in Discovery(client).kinds()
             if {"list", "delete"} <= set(kind.verbs) and kind.resource.plural not in _MADE_BY_THE_SERVER]
    for kind in sorted(kinds, key=lambda kind: kind.resource.plural in _OF_THE_CLUSTER):
        resource = kind.resource
        custom = "." in resource.group and not resource.group.endswith(".k8s.io")
        if not (custom or resource.namespaced or resource.plural in _OF_THE_CLUSTER):
            continue
        for obj in Api.all(client, resource).with_metadata_only().list_all():
            if resource.plural == "namespaces" and obj.name in _KEPT_NAMESPACES:
                continue
            if resource.namespaced and _is_kept(resource.plural, obj):
                continue
            api = Api.namespaced(client, resource, obj.namespace) if resource.namespaced else Api.all(client, resource)
            yield api, obj.name or "", bool(obj.finalizers) and resource.plural not in _OF_THE_CLUSTER


def _is_kept(plural: str, obj: Any) -> bool:
    """Whether the server, or a controller, would make it again; other namespaces take theirs along."""
    if obj.namespace != "default":
        return obj.namespace not in _KEPT_NAMESPACES or plural in _OF_THE_SYSTEM
    return obj.name in _KEPT or (plural == "serviceaccounts" and obj.name == "default")


def _delete(api: Api[Any], name: str, held: bool) -> str:
    try:
        if held:
            api.patch(name, Patch.merge({"metadata": {"finalizers": None}}))
        api.delete(name, DeleteParams(grace_period_seconds=0))
    except KubeError as error:  # it went by itself, or with its definition: the next look tells
        return f"{name}: {error}"
    return name


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--real-server", metavar="KUBECONFIG", help="the server that every ApiServer() of the tests is")


def pytest_configure(config: pytest.Config) -> None:
    given = config.getoption("--real-server")
    if given is None:
        return
    path = Path(config.invocation_params.dir, given)
    host = urlsplit(Config.from_kubeconfig(path).cluster_url).hostname or ""
    if host != "localhost" and not _is_loopback(host):
        raise pytest.UsageError(f"--real-server: everything in the server is deleted, and {host} is not this machine")
    RealServer.kubeconfig = path
    embedded.ApiServer = RealServer  # type: ignore[assignment,misc]


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.config.getoption("--real-server") is None or not isinstance(item, pytest.Function):
        return
    fixtures = [defined[-1].func for name in item.fixturenames
                if (defined := item._fixtureinfo.name2fixturedefs.get(name))]
    for function in (item.function, *fixtures):
        of_a_test = not function.__module__.startswith(("kubectl_runtime", "_pytest", "_hypothesis"))
        if of_a_test and (found := _EMBEDDED_ONLY.search(inspect.getsource(function))):
            pytest.skip(f"it needs the embedded server: {found.group()}")
