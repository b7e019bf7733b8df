"""What no recording holds: the data of Secrets, the tokens of service accounts, and what a server says of either.

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

_LAST_APPLIED = "kubectl.kubernetes.io/last-applied-configuration"


def is_withheld(resource_name: str, subresource: str | None = None) -> bool:
    """Whether objects of this resource, `plural.group`, hold what is not to be recorded."""
    return resource_name == "secrets" or (resource_name == "serviceaccounts" and subresource == "token")


def without_secrets(document: bytes) -> bytes:
    """The JSON of an object, a list, a patch or a Status, without the values. What is not JSON is withheld whole."""
    try:
        value = msgspec.json.decode(document)
    except DECODE_FAILURES:
        return msgspec.json.encode(TEXT)
    return msgspec.json.encode(_cleaned(value))


def _cleaned(value: Any) -> Any:
    if isinstance(value, list):  # a JSON patch, or items
        return [_cleaned(item) for item in value]
    if not isinstance(value, dict):
        return value
    if value.get("kind") == "Status":
        return {key: TEXT if key == "message" else part for key, part in value.items() if key != "details"}
    if "op" in value and "path" in value:
        return {key: TEXT if key == "value" else part for key, part in value.items()}
    found = dict(value)
    for key, text in (("data", BASE64), ("stringData", TEXT)):
        if isinstance(found.get(key), dict):
            found[key] = {name: None if part is None else text for name, part in found[key].items()}
        elif found.get(key) is not None:
            found[key] = TEXT
    if isinstance(status := found.get("status"), dict) and "token" in status:
        found["status"] = {**status, "token": TEXT}
    if isinstance(found.get("items"), list):
        found["items"] = _cleaned(found["items"])
    if isinstance(found.get("object"), dict):  # of a watch line
        found["object"] = _cleaned(found["object"])
    if isinstance(metadata := found.get("metadata"), dict):
        annotations = metadata.get("annotations")
        if isinstance(annotations, dict) and _LAST_APPLIED in annotations:
            found["metadata"] = {**metadata, "annotations": {**annotations, _LAST_APPLIED: TEXT}}
    return found
