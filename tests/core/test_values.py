"""Names of types, refs, times, errors: the small values."""
from __future__ import annotations

from copy import copy
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from kubectl_runtime.core.base.errors import (
    ApiError,
    KubeError,
    RequestError,
    Status,
    StatusCause,
    StatusDetails,
    WriteBackError,
)
from kubectl_runtime.core.meta.gvk import (
    ApiResource,
    GroupVersionKind,
    ObjectRef,
    Scope,
    api_resource_of,
    plural_of,
    split_api_version,
)
from kubectl_runtime.core.meta.metav1 import format_micro_time, format_time, parse_time
from kubectl_runtime.core.meta.problems import DecodeError
from tests.core.examples import DEPLOYMENTS, NODES, PODS, Widget


@pytest.mark.parametrize(("kind", "plural"), [
    ("Pod", "pods"), ("Ingress", "ingresses"), ("NetworkPolicy", "networkpolicies"), ("Gateway", "gateways"),
    ("Box", "boxes"), ("Endpoints", "endpoints"), ("EndpointSlice", "endpointslices"), ("NodeMetrics", "nodes"),
    ("PodMetrics", "pods"), ("Patch", "patches"), ("Proxy", "proxies"), ("Quiz", "quizes"),
])
def test_plurals(kind: str, plural: str) -> None:
    assert plural_of(kind) == plural
    assert ApiResource.from_gvk(GroupVersionKind("g", "v1", kind)).plural == plural


def test_api_versions_split_and_join() -> None:
    assert split_api_version("v1") == ("", "v1")
    assert split_api_version("apps/v1") == ("apps", "v1")
    assert GroupVersionKind.parse("apps/v1", "Deployment") == DEPLOYMENTS.gvk
    assert (PODS.api_version, DEPLOYMENTS.api_version) == ("v1", "apps/v1")
    assert (PODS.full_name, DEPLOYMENTS.full_name) == ("pods", "deployments.apps")
    for bad in ("", "a/b/c", "apps/"):
        with pytest.raises(RequestError, match="malformed apiVersion"):
            split_api_version(bad)


@pytest.mark.parametrize("name", ["group", "version", "kind", "plural"])
@pytest.mark.parametrize("value", [None, 5, b"v1"], ids=repr)
def test_a_resource_is_told_in_texts(name: str, value: Any) -> None:
    with pytest.raises(RequestError, match=f"the {name} of an ApiResource must be text"):
        ApiResource(**{"group": "g", "version": "v1", "kind": "Foo", "plural": "foos", name: value})


@pytest.mark.parametrize("kind", ["", "a\0b"], ids=repr)
def test_a_kind_has_a_name(kind: str) -> None:
    with pytest.raises(RequestError, match="the kind of an ApiResource must be a name"):
        ApiResource("g", "v1", kind, "foos")


@pytest.mark.parametrize("api_version", [None, 1, b"v1"], ids=repr)
def test_an_api_version_is_text(api_version: Any) -> None:
    with pytest.raises(RequestError, match="an apiVersion must be text"):
        GroupVersionKind.parse(api_version, "Pod")


def test_kind_arguments_are_classes_or_resources() -> None:
    assert api_resource_of(PODS) is PODS
    assert api_resource_of(Widget) is Widget.api_resource
    with pytest.raises(RequestError, match="neither"):
        api_resource_of("pods")  # type: ignore[arg-type]


def test_refs_compare_group_kind_namespace_and_name_only() -> None:
    ref = ObjectRef(DEPLOYMENTS, "a", "ns")
    same = ObjectRef(ApiResource("apps", "v1beta1", "Deployment", "deploys"), "a", "ns")
    assert ref == same
    assert hash(ref) == hash(same)
    for other in (ObjectRef(DEPLOYMENTS, "b", "ns"), ObjectRef(DEPLOYMENTS, "a", "other"), ObjectRef(DEPLOYMENTS, "a"),
                  ObjectRef(ApiResource("other", "v1", "Deployment", "deployments"), "a", "ns"), "a"):
        assert ref != other


def test_an_object_is_no_kind() -> None:
    with pytest.raises(RequestError, match="neither"):
        api_resource_of(Widget(name="a"))


def test_a_ref_is_made_of_a_kind_argument() -> None:
    assert ObjectRef.of(Widget, "a", "ns") == ObjectRef.of(Widget.api_resource, "a", "ns")
    assert ObjectRef.of(NODES, "n").resource is NODES
    with pytest.raises(RequestError, match="neither"):
        ObjectRef.of("pods", "a")  # type: ignore[arg-type]


def test_refs_are_shown_as_kube_rs_writes_them() -> None:
    assert str(ObjectRef(PODS, "my-pod", "my-namespace")) == "Pod.v1./my-pod.my-namespace"
    assert str(ObjectRef(DEPLOYMENTS, "a", "ns")) == "Deployment.v1.apps/a.ns"
    assert repr(ObjectRef(NODES, "n")) == "Node.v1./n"


def test_refs_are_brought_to_the_scope_of_their_kind() -> None:
    assert ObjectRef(NODES, "n", "ns").canonical(NODES) == ObjectRef(NODES, "n")
    old = ObjectRef(DEPLOYMENTS.with_version("v1beta1"), "a", "ns").canonical(DEPLOYMENTS)
    assert old.resource is DEPLOYMENTS


def test_refs_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        ObjectRef(PODS, "a").name = "b"  # type: ignore[misc]


def test_times() -> None:
    moment = datetime(2026, 1, 1, 2, 3, 4, 5, tzinfo=timezone(timedelta(hours=1)))
    assert format_time(moment) == "2026-01-01T01:03:04Z"
    assert format_micro_time(moment) == "2026-01-01T01:03:04.000005Z"
    assert format_micro_time(moment.replace(microsecond=0)) == "2026-01-01T01:03:04.000000Z"
    assert parse_time("2026-01-01T02:03:04.000005+01:00") == moment
    assert parse_time("2026-01-01T01:03:04Z").tzinfo is UTC


@pytest.mark.parametrize("text", ["yesterday", "", "2026-01-01", "2026-01-01T01:03:04", "9999-12-31T23:59:59-23:59",
                                  "0001-01-01T00:00:00+01:00", 5, None])
def test_what_is_not_a_time_is_a_value_error(text: Any) -> None:
    with pytest.raises(ValueError, match="RFC3339"):
        parse_time(text)


@pytest.mark.parametrize(("status", "true"), [
    (Status(code=404), {"is_not_found"}), (Status(reason="NotFound", code=404), {"is_not_found"}),
    (Status(code=409), {"is_conflict"}), (Status(reason="AlreadyExists", code=409), {"is_already_exists"}),
    (Status(reason="Conflict", code=409), {"is_conflict"}), (Status(code=403), {"is_forbidden"}),
    (Status(code=401), {"is_unauthorized"}), (Status(reason="Invalid", code=422), {"is_invalid"}),
    (Status(code=410), {"is_expired"}), (Status(reason="Expired", code=410), {"is_expired"}),
    (Status(reason="Gone"), {"is_expired"}), (Status(reason="SomethingNew", code=404), {"is_not_found"}),
    (Status(code=504, reason="Timeout", details=StatusDetails(causes=[StatusCause(reason="ResourceVersionTooLarge")])),
     {"is_too_large_resource_version"}),
])
def test_errors_by_reason_and_by_code_when_there_is_none(status: Status, true: set[str]) -> None:
    error = ApiError(status)
    names = {name for name in dir(ApiError) if name.startswith("is_")}
    assert {name for name in names if getattr(error, name)} == true


def test_errors_say_operation_and_cause() -> None:
    assert str(ApiError(Status(message="gone"), "get pods a/b")) == "get pods a/b: gone"
    assert str(ApiError(Status(code=500))) == "HTTP 500"
    assert str(DecodeError(ObjectRef(PODS, "a"), "$.spec", "$.spec: bad")) == "Pod.v1./a: $.spec: bad"
    assert str(DecodeError(None, "$", "bad")) == "object: bad"
    assert WriteBackError("$.spec", "cannot").path == "$.spec"
    assert issubclass(RequestError, KubeError)
    assert issubclass(RequestError, ValueError)


def test_scopes_are_named_as_the_api_names_them() -> None:
    assert [scope.value for scope in Scope] == ["Namespaced", "Cluster"]


def test_a_scope_is_no_text() -> None:
    with pytest.raises(RequestError,
                       match=r"the scope of widgets\.example\.com must be Scope\.NAMESPACED or Scope\.CLUSTER"):
        ApiResource("example.com", "v1", "Widget", "widgets", "Cluster")  # type: ignore[arg-type]


@pytest.mark.parametrize(("one", "other", "equal"), [
    (ObjectRef(PODS, "a", "n"), ObjectRef(copy(PODS), "a", "n"), True),
    (ObjectRef(ApiResource("g", "v1", "Own", "owns"), "a"), ObjectRef(ApiResource("g", "v2", "Own", "owns"), "a", ""),
     True),
    (ObjectRef(PODS, "a", "n"), ObjectRef(PODS, "b", "n"), False),
    (ObjectRef(PODS, "a", "n"), "a", False)])
def test_refs_are_either_equal_or_not(one: ObjectRef, other: object, equal: bool) -> None:
    assert (one == other, one != other) == (equal, not equal)
