"""What heads say alike is held once."""
from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from kubectl_runtime.core.codec.jsonbytes import decode_object
from kubectl_runtime.core.objects.partial import FieldsForm
from kubectl_runtime.objects import PartialView
from kubectl_runtime.resources import Pod


class Nothing(PartialView, frozen=True):
    """Metadata alone."""


FORM = FieldsForm(Pod.api_resource, Nothing)
OWNER = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "uid": "u"}


def raw(name: str, **metadata: Any) -> bytes:
    return json.dumps({"metadata": {"name": name, "namespace": "ns", **metadata}}).encode()


def test_equal_parts_of_two_objects_are_the_same_ones() -> None:
    said = {"labels": {"app": "web"}, "ownerReferences": [{**OWNER, "name": "r"}], "finalizers": ["f/g"]}
    one, other = (FORM.decode_object(raw(name, **said)).head for name in ("one", "other"))
    assert one.namespace is other.namespace
    assert one.labels is other.labels is not None
    assert one.owner_references is other.owner_references is not None
    assert one.finalizers is other.finalizers is not None


_texts = st.dictionaries(st.sampled_from("abc"), st.sampled_from("xy"), max_size=3)


@given(st.lists(st.tuples(_texts, st.lists(st.sampled_from("rs"), max_size=2), st.lists(st.sampled_from("fg"))),
                min_size=2, max_size=6))
def test_a_shared_head_says_what_the_object_said(
        said: list[tuple[dict[str, str], list[str], list[str]]]) -> None:
    for labels, owners, finalizers in said:
        bytes_ = raw("a", labels=labels, ownerReferences=[{**OWNER, "name": name} for name in owners],
                     finalizers=finalizers)
        shared, own = FORM.decode_object(bytes_).head, decode_object(bytes_, Pod.api_resource).head
        for name in own.__struct_fields__:
            assert getattr(shared, name) == getattr(own, name)
        assert list(shared.labels or {}) == list(labels)
