"""Lists give their items one by one."""

from __future__ import annotations

import pytest

from kubectl_runtime.manifests.documents import objects_of
from kubectl_runtime.manifests.scalars import ManifestError

POD = {"apiVersion": "v1", "kind": "Pod"}


@pytest.mark.parametrize(("value", "objects"), [
    (POD, [POD]),
    ({"kind": "List", "apiVersion": "v1", "items": None}, []),
    ({"kind": "List", "items": []}, []),
    ({"kind": "List", "items": [POD, {"kind": "List", "items": [POD]}]}, [POD, POD]),
    ({"kind": "PodList", "apiVersion": "v1", "items": [{"metadata": {}}]}, [{**POD, "metadata": {}}]),
    ({"kind": "List", "apiVersion": "v1"}, [{"kind": "List", "apiVersion": "v1"}]),
    ({"kind": "Menu", "items": [1]}, [{"kind": "Menu", "items": [1]}]),
])
def test_objects(value, objects):
    assert [obj for obj, _ in objects_of(value, "x")] == objects


def test_each_object_tells_its_place():
    value = {"kind": "List", "items": [POD, {"kind": "List", "items": [POD]}]}
    assert [place for _, place in objects_of(value, "x.yaml")] == ["x.yaml, item 1", "x.yaml, item 2, item 1"]


@pytest.mark.parametrize(("value", "says"), [
    (5, "x: there is a number where a Kubernetes object is expected"),
    ({"kind": "List", "items": [None]}, "x, item 1: there is null where"),
    ({"kind": "List", "items": "xx"}, "x: items of List must be a list, not a text"),
])
def test_what_is_no_object_is_refused(value, says):
    with pytest.raises(ManifestError, match=says):
        list(objects_of(value, "x"))
