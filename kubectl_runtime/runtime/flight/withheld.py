"""What no recording holds: the data of Secrets, the tokens of reviews and requests, and what a server says of either.

    the resource says so     secrets, tokenreviews, the token of a service account: all that is sent and answered, also
                             a patch, a Status, and text that is no JSON
    the content says so      an object of such a kind anywhere in a document: in a list, in a watch line, in another
                             object

Keys stay, so that a replayed program finds what it looks for; each value is `WITHHELD`, in base64 where values are. The
annotation in which kubectl keeps an object as it was last applied goes as well.
"""
from __future__ import annotations

from typing import Any

import msgspec

from kubectl_runtime.core.meta.problems import DECODE_FAILURES

TEXT = "withheld"
BASE64 = "d2l0aGhlbGQ="
"""The same in base64."""

_TOKENS = ("token", "clientKeyData")
_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


_KINDS = frozenset({"Secret", "SecretList", "TokenReview", "TokenRequest", "ExecCredential"})
_MARKS = (b'"Secret', b'"Token', b'"ExecCredential', rb"\u00")
"""One of these is in every document that names one of the kinds; an escape may stand for any letter."""


def is_withheld(resource_name: str, subresource: str | None = None) -> bool:
    """Whether objects of this resource, `plural.group`, hold what is not to be recorded."""
    return resource_name in ("secrets", "tokenreviews.authentication.k8s.io") or (
        resource_name == "serviceaccounts" and subresource == "token")


def without_secrets(document: bytes, *, withheld: bool = True) -> bytes:
    """The JSON of an object, a list, a patch or a Status, without the values. `withheld`: it is about a resource that
    is; then what is not JSON is withheld whole. Otherwise the kinds in it decide, and the rest is as it was."""
    if not withheld and not any(mark in document for mark in _MARKS):
        return document
    try:
        return msgspec.json.encode(_cleaned(msgspec.json.decode(document), withheld))
    except DECODE_FAILURES:
        return msgspec.json.encode(TEXT) if withheld else document


def _may_hold_secrets(text: Any) -> bool:
    return isinstance(text, str) and any(mark in text.encode(errors="replace") for mark in _MARKS)


def _cleaned(value: Any, withheld: bool) -> Any:
    if isinstance(value, list):  # a JSON patch, or items
        return [_cleaned(item, withheld) for item in value]
    if not isinstance(value, dict):
        return value
    kind = value.get("kind")
    if not withheld and not (isinstance(kind, str) and kind in _KINDS):
        return {key: TEXT if key == _LAST_APPLIED and _may_hold_secrets(part) else _cleaned(part, False)
                for key, part in value.items()}
    if kind == "Status":
        return {key: TEXT if key == "message" else part for key, part in value.items() if key != "details"}
    if "op" in value and "path" in value:
        return {key: TEXT if key == "value" else part for key, part in value.items()}
    found = {key: _cleaned(part, key in ("items", "object", "rows")) for key, part in value.items()}
    for key, text in (("data", BASE64), ("stringData", TEXT)):
        if isinstance(found.get(key), dict):
            found[key] = {name: None if part is None else text for name, part in found[key].items()}
        elif found.get(key) is not None:
            found[key] = TEXT
    for key in ("spec", "status"):
        if isinstance(part := found.get(key), dict):
            found[key] = part | {name: TEXT for name in _TOKENS if part.get(name) is not None}
    if isinstance(metadata := found.get("metadata"), dict):
        annotations = metadata.get("annotations")
        if isinstance(annotations, dict) and _LAST_APPLIED in annotations:
            found["metadata"] = {**metadata, "annotations": {**annotations, _LAST_APPLIED: TEXT}}
    return found
