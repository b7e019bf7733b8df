"""`Record`: an object as a store holds it, which is the bytes as received plus a decoded head.

Immutable, shared by all readers, safe to use from any thread. Neither class is seen by the garbage collector
(`gc=False`): with tens of thousands of objects its passes would cost more than the decoding. They can hold no cycle.
"""
from __future__ import annotations

from typing import Any

import msgspec

from kubectl_runtime.core.base.keys import Key, key_of, namespace_or_none
from kubectl_runtime.core.meta.gvk import ApiResource
from kubectl_runtime.core.meta.metav1 import OwnerReference
from kubectl_runtime.core.meta.problems import DecodeError, Problem
from kubectl_runtime.core.meta.read_only import ReadOnlyDict
from kubectl_runtime.core.meta.refs import ObjectRef


class Head(msgspec.Struct, frozen=True, gc=False, eq=False, kw_only=True, rename="camel"):
    """The metadata that the library itself works with, decoded once, in the same pass as the event. The rest is decoded
    for who reads it (`seldom.py`).

    A time stays text as received: most are never looked at. All readers of the object share a head, so nothing of it
    can be changed.
    """

    name: str = ""
    namespace: str | None = None
    uid: str = ""
    resource_version: str = ""
    generation: int | None = None
    deletion_timestamp: str | None = None
    _labels: dict[str, str] | None = msgspec.field(name="labels", default=None)
    owner_references: tuple[OwnerReference, ...] | None = None
    finalizers: tuple[str, ...] | None = None

    @property
    def labels(self) -> dict[str, str] | None:
        """The object's labels, made read-only when they are looked at: the garbage collector passes over what is
        held."""
        return None if self._labels is None else ReadOnlyDict(self._labels)


class Record(msgspec.Struct, frozen=True, gc=False, eq=False):
    """One object of `resource`: its head, and `raw`, its JSON or (`enveloped`) the watch line that carried it.

    `partial`: parts were removed or never requested, so it must not replace the object. `view`: the declared fields,
    in the form that keeps only these; `raw` is empty then. `problem`: the head could not be decoded, and `head`
    holds what could be read.
    """

    head: Head
    resource: ApiResource
    raw: bytes
    enveloped: bool = False
    partial: bool = False
    view: Any = None
    problem: Problem | None = None

    @property
    def name(self) -> str:
        """The object's name; empty for one that has none yet."""
        return self.head.name

    @property
    def namespace(self) -> str | None:
        """The object's namespace; None for a cluster-scoped one."""
        return namespace_or_none(self.head.namespace)

    @property
    def key(self) -> Key:
        """What tells it from the other objects of its kind."""
        head = self.head
        return key_of(head.namespace, head.name)

    @property
    def uid(self) -> str:
        """What tells the object from a namesake that was made later; empty when it is not known."""
        return self.head.uid

    @property
    def resource_version(self) -> str:
        """The version of the object that this is; empty when it is not known."""
        return self.head.resource_version

    @property
    def valid(self) -> bool:
        """Whether the head could be decoded."""
        return self.problem is None

    @property
    def ref(self) -> ObjectRef:
        """Which object it is: kind, namespace and name."""
        head = self.head
        return ObjectRef(self.resource, head.name, namespace_or_none(head.namespace))

    @property
    def error(self) -> DecodeError | None:
        """A new DecodeError when the head could not be decoded."""
        if self.problem is None:
            return None
        return DecodeError(self.ref, self.problem.path, self.problem.text)

    def __repr__(self) -> str:
        return f"<Record {self.ref} at {self.head.resource_version or 'no version'}>"
