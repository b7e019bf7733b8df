"""The metadata of a new object from single arguments, checked: what is wrong in them would be found by the server, or
by JSON, in words that name no argument.
"""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kubectl_runtime.core.base.errors import RequestError
from kubectl_runtime.core.meta.metav1 import ObjectMeta, OwnerReference

ARGUMENTS = ("name", "namespace", "generate_name", "labels", "annotations", "owner_references", "finalizers",
             "metadata")
"""Of a new object, beside the attributes of its class."""


def new_metadata(kind: str, *, name: Any, namespace: Any, generate_name: Any, labels: Any, annotations: Any,
                 owner_references: Any, finalizers: Any) -> ObjectMeta:
    """As `Resource` takes them. Raises RequestError that names the argument; `kind` is for its text."""
    for argument, value in (("name", name), ("namespace", namespace), ("generate_name", generate_name)):
        if value is not None and not isinstance(value, str):
            raise RequestError(f"{kind}({argument}={value!r}): a {type(value).__name__} where text is expected")
    if owner_references is not None and not (isinstance(owner_references, list | tuple) and all(
            isinstance(reference, OwnerReference) for reference in owner_references)):
        raise RequestError(f"{kind}(owner_references=…): a list of OwnerReference is expected: obj.set_owner(owner), "
                           "or [owner.owner_ref()]")
    if finalizers is not None and not (isinstance(finalizers, list | tuple) and all(
            isinstance(finalizer, str) for finalizer in finalizers)):
        raise RequestError(f"{kind}(finalizers=…): a list of texts is expected, not {type(finalizers).__name__}")
    return ObjectMeta(name=name, namespace=namespace, generate_name=generate_name,
                      labels=_texts(kind, "labels", labels), annotations=_texts(kind, "annotations", annotations),
                      finalizers=None if finalizers is None else list(finalizers),
                      owner_references=None if owner_references is None else list(owner_references))


def _texts(kind: str, argument: str, given: Any) -> dict[str, str] | None:
    if not given:
        return None
    if not isinstance(given, Mapping):
        raise RequestError(f"{kind}({argument}=…): a map of texts is expected, not {type(given).__name__}")
    for key, value in given.items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise RequestError(f"{kind}({argument}=…): the value of {key!r} is of type {type(value).__name__}: "
                               f"{argument} are texts")
    return dict(given)
