"""`InvalidObject`: stands in streams and stores for an object whose metadata did not decode."""
from __future__ import annotations

from typing import Any

from kubectl_runtime.core.codec.record import Record
from kubectl_runtime.core.meta.gvk import ApiResource
from kubectl_runtime.core.meta.problems import DecodeError, Problem
from kubectl_runtime.core.meta.refs import ObjectRef

_UNKNOWN = Problem("$", "does not decode")


class InvalidObject:
    """Takes the place of an object whose metadata cannot be read, in lists and stores, so that it breaks nothing else.

    It has what is known (`ref`, `name`, `namespace`, `uid`, `resource_version`) and what is wrong (`error`). Everything
    else, content and other metadata, raises the DecodeError. Immutable, safe from any thread.

    >>> [each.ref for each in Api.all(client, ConfigMap).list() if isinstance(each, InvalidObject)]
    []
    """

    __slots__ = ("record",)

    def __init__(self, record: Record) -> None:
        """`record` is one with a `problem`."""
        self.record = record

    @property
    def ref(self) -> ObjectRef:
        """Which object it is, as far as that can be told."""
        return self.record.ref

    @property
    def api_resource(self) -> ApiResource:
        """The kind's ApiResource."""
        return self.record.resource

    @property
    def name(self) -> str:
        """The object's name; empty when that cannot be read."""
        return self.record.name

    @property
    def namespace(self) -> str | None:
        """The object's namespace; None for a cluster-scoped object, and when that cannot be read."""
        return self.record.namespace

    @property
    def uid(self) -> str:
        """The object's uid; empty when it could not be read."""
        return self.record.uid

    @property
    def resource_version(self) -> str:
        """The version of the object; empty when it could not be read."""
        return self.record.resource_version

    @property
    def error(self) -> DecodeError:
        """The DecodeError that says what is wrong with it; a new exception each time."""
        problem = self.record.problem or _UNKNOWN
        return DecodeError(self.ref, problem.path, problem.text)

    def __reduce__(self) -> tuple[Any, ...]:
        return InvalidObject, (self.record,)

    def __getitem__(self, key: str) -> Any:
        raise self.error

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # what Python itself looks for (copying, pickling) is simply not there
            raise AttributeError(name)
        raise self.error

    def __repr__(self) -> str:
        return f"<invalid {self.ref}>"
