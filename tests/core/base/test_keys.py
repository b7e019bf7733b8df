"""One shape for keys, and one spelling of "no namespace"."""
from __future__ import annotations

import pytest

from kubectl_runtime.core.base.plain import key_of, namespace_or_none
from kubectl_runtime.core.codec.jsonbytes import decode_object
from kubectl_runtime.core.meta.gvk import ObjectRef
from kubectl_runtime.core.objects.partial import FieldsForm, InvalidObject, PartialView
from kubectl_runtime.core.objects.resource import Resource
from tests.core.examples import NODES, PODS


class Node(Resource, version="v1", kind="Node"):
    pass


class NodeView(PartialView, frozen=True):
    pass


SPELLINGS = [b'{"metadata":{"name":"a"}}', b'{"metadata":{"name":"a","namespace":""}}',
             b'{"metadata":{"name":"a","namespace":null}}']


def test_the_key_of_an_object_in_a_namespace() -> None:
    assert key_of("ns", "a") == ObjectRef(PODS, "a", "ns").key == ("ns", "a")


def test_no_namespace_is_none_however_it_is_spelled() -> None:
    assert namespace_or_none("") is namespace_or_none(None) is None
    assert key_of("", "a") == key_of(None, "a") == (None, "a")
    assert ObjectRef.of(NODES, "a", "").namespace is None
    empty, none = ObjectRef(NODES, "a", ""), ObjectRef(NODES, "a")
    assert empty == none
    assert hash(empty) == hash(none)
    assert empty.key == none.key == (None, "a")


@pytest.mark.parametrize("raw", SPELLINGS)
def test_every_way_to_hold_an_object_gives_the_same_key(raw: bytes) -> None:
    record = decode_object(raw, NODES)
    assert record.key == record.ref.key == (None, "a")
    view = NodeView.from_record(FieldsForm(NODES, NodeView).decode_object(raw))
    for held in (record, Node.from_record(record), InvalidObject(record), view):
        assert held.namespace is None
