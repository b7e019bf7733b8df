"""From an object as it came and as it is to be, to the JSON patch between the two.

This is the only module that imports the package jsonpatch, at the first use; the extra ``kubectl_runtime[webhooks]``
brings it. What did not change is not in the patch, byte for byte: neither defaults of a class nor its forms of numbers
and dates, since the objects are compared as plain JSON values, in which 1 is neither true nor 1.0.
"""
from __future__ import annotations

from typing import Any

from kubectl_runtime.core.codec.jsonvalues import same_json
from kubectl_runtime.core.requests.patch import pointer

Object = dict[str, Any]


class MissingWebhooksExtra(ImportError):
    """A webhook changes objects, and the package jsonpatch is not installed."""

    def __init__(self) -> None:
        super().__init__("a webhook that changes objects needs the package jsonpatch: "
                         'install it with pip install "kubectl_runtime[webhooks]"')


def require_jsonpatch() -> Any:
    """The package. Raises MissingWebhooksExtra."""
    try:
        import jsonpatch
    except ImportError:
        raise MissingWebhooksExtra from None
    return jsonpatch


def patch_between(before: Object, after: Object) -> list[Object]:
    """The operations that make `after` of `before`, of which neither is changed; none if both are the same JSON.

    Raises MissingWebhooksExtra if they differ and jsonpatch is not there.
    """
    keys = [key for key in (*before, *(key for key in after if key not in before))
            if key not in before or key not in after or not same_json(before[key], after[key])]
    if not keys:
        return []
    jsonpatch = require_jsonpatch()
    old = {key: before[key] for key in keys if key in before}
    new = {key: after[key] for key in keys if key in after}
    operations: list[Object] = jsonpatch.make_patch(old, new).patch
    # Its shortest patches have been wrong before; one that the server applies to something else must never leave.
    if same_json(jsonpatch.apply_patch(old, operations), new):
        return operations
    return [{"op": "remove", "path": pointer(key)} if key not in new else
            {"op": "replace" if key in old else "add", "path": pointer(key), "value": new[key]} for key in keys]
