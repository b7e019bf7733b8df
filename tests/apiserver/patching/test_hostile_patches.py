"""Whatever a client sends, a patch is applied or refused with a Status; nothing else comes out."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubectl_runtime.apiserver.errors import StatusError
from kubectl_runtime.apiserver.managedfields import apply, update
from kubectl_runtime.apiserver.patching import apply_json_patch, apply_merge_patch, apply_strategic_merge_patch
from kubectl_runtime.apiserver.patching.json_patch import (
    read_configuration,
    read_json_patch,
    read_merge_patch,
    read_strategic_merge_patch,
)
from kubectl_runtime.apiserver.schemas import builtin, from_openapi

POD = builtin("", "v1", "Pod")
OPEN = from_openapi(None)
NOW = datetime(2026, 1, 1, tzinfo=UTC)

names = st.sampled_from([
    "metadata", "spec", "containers", "name", "env", "ports", "containerPort", "finalizers", "labels", "tolerations",
    "a", "managedFields", "operation", "apiVersion", "fieldsV1", "f:a", ".", "$patch", "$retainKeys",
    "$setElementOrder/containers", "$deleteFromPrimitiveList/finalizers", "$setElementOrder/finalizers",
    "ownerReferences"])
scalars = (st.none() | st.booleans() | st.integers(-2, 90) | st.floats(allow_nan=False)
           | st.sampled_from(["", "a", "replace", "delete", "merge", "x/y"]))
values = st.recursive(scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=4),
                      max_leaves=20)
objects = st.dictionaries(names, values, max_size=4)
pointers = st.lists(names | st.sampled_from(["0", "-1", "-", "7", "", "~1"]), max_size=4).map("/".join)
operations = st.fixed_dictionaries({}, optional={
    "op": st.sampled_from(["add", "remove", "replace", "move", "copy", "test", "x"]) | scalars,
    "path": pointers.map("/".__add__) | pointers | scalars, "from": pointers.map("/".__add__) | scalars,
    "value": values})


@given(objects, st.lists(operations | values, max_size=5))
def test_json_patches(current: dict[str, Any], patch: list[Any]) -> None:
    before = copy.deepcopy((current, patch))
    with contextlib.suppress(StatusError):
        assert isinstance(apply_json_patch(current, patch), dict)
    assert (current, patch) == before


@given(objects, objects)
def test_merge_and_strategic_patches(current: dict[str, Any], patch: dict[str, Any]) -> None:
    before = copy.deepcopy((current, patch))
    assert isinstance(apply_merge_patch(current, patch), dict)
    with contextlib.suppress(StatusError):
        assert isinstance(apply_strategic_merge_patch(current, patch, POD), dict)
    assert (current, patch) == before


@given(objects, objects, st.booleans())
def test_ownership_of_anything(old: dict[str, Any], new: dict[str, Any], force: bool) -> None:
    for schema in (POD, OPEN):
        old_pod, new_pod = ({**obj, "apiVersion": "v1", "kind": "Pod", "metadata": _metadata(obj)}
                            for obj in (old, new))
        live = update(None, old_pod, manager="a", api_version="v1", schema=schema, now=NOW)
        update(live, new_pod, manager="b", api_version="v1", schema=schema, now=NOW)
        with contextlib.suppress(StatusError):
            apply(live, new_pod, manager="c", force=force, api_version="v1", schema=schema, now=NOW)


def _metadata(obj: dict[str, Any]) -> dict[str, Any]:
    metadata = obj.get("metadata")
    kept = {**metadata} if isinstance(metadata, dict) else {}
    kept.pop("managedFields", None)  # decoded and validated before
    return kept


@pytest.mark.parametrize("read", [read_merge_patch, read_json_patch, read_strategic_merge_patch,
                                  lambda body: read_configuration(body, "v1", "Pod")])
@given(body=st.binary(max_size=12) | st.text("[]{}\",:0e-.anult\\ \n", max_size=14).map(str.encode))
def test_bodies_of_patches(read: Callable[[bytes], Any], body: bytes) -> None:
    with contextlib.suppress(StatusError):
        assert isinstance(read(body)[0], dict | list)
