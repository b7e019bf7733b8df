"""Which built-in kinds are served."""

from __future__ import annotations

from typing import Any

import pytest

from kubectl_runtime.apiserver.kinds import typed
from kubectl_runtime.apiserver.kinds.catalog import builtin_types, storage_version_hash
from kubectl_runtime.apiserver.schemas import definition_names

TYPES = list(builtin_types())
# Kinds that the definitions name and that are no resources of their own.
NOT_SERVED = {"APIGroup", "APIGroupList", "APIResourceList", "APIVersions", "DeleteOptions", "Status", "WatchEvent",
              "Eviction", "Scale", "TokenRequest"}


def test_every_kind_of_the_default_apis_is_served_and_no_other() -> None:
    served = {(found.group, found.version, found.kind) for found in TYPES}
    versions = {(group, version) for group, version, _ in served}
    defined = {key for key in definition_names() if key[:2] in versions and key[2] not in NOT_SERVED}
    lists = {(found.group, found.version, found.list_kind) for found in TYPES}
    assert defined - lists == served


def test_beta_versions_are_off_as_in_the_real_server() -> None:
    assert {found.version for found in TYPES} == {"v1", "v2"}


@pytest.mark.parametrize("found", TYPES, ids=lambda found: f"{found.qualified}/{found.version}")
def test_each_kind_has_a_typed_shape_a_schema_and_columns_that_bear_an_empty_object(found: Any) -> None:
    assert typed.known(found.strategy.type_name)
    assert found.schema is not None
    if "list" in found.verbs:
        assert found.list_kind.endswith("List")


def test_resources_of_a_version_are_in_alphabetical_order_with_their_subresources() -> None:
    for group, version in {(found.group, found.version) for found in TYPES}:
        plurals = [found.plural for found in TYPES if (found.group, found.version) == (group, version)]
        assert plurals == sorted(plurals)
    for found in TYPES:
        names = [sub.name for sub in found.subresources]
        assert names == sorted(names)


def test_the_hash_of_the_storage_version_is_the_real_servers() -> None:
    assert storage_version_hash("", "v1", "ConfigMap") == "qFsyl6wFWjQ="
    assert storage_version_hash("apps", "v1", "Deployment") == "8aSe+NMegvE="
    hashes = {(found.group, found.version, found.plural): found.storage_version_hash for found in TYPES}
    assert hashes["events.k8s.io", "v1", "events"] == hashes["", "v1", "events"]
    autoscalers = {hashes["autoscaling", version, "horizontalpodautoscalers"] for version in ("v1", "v2")}
    assert len(autoscalers) == 1
    assert hashes["authorization.k8s.io", "v1", "subjectaccessreviews"] == ""


def test_namespaces_have_no_collection_to_delete_and_daemon_sets_no_scale() -> None:
    by_name = {found.qualified: found for found in TYPES}
    assert "deletecollection" not in by_name["namespaces"].verbs
    assert by_name["daemonsets.apps"].subresource("scale") is None
    assert by_name["deployments.apps"].subresource("scale") is not None
