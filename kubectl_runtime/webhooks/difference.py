"""From an object as it came and as it is to be, to the JSON patch between the two.

This is the only module that imports the package jsonpatch, at the first use; the extra ``kubectl_runtime[webhooks]``
brings it. What did not change is not in the patch, byte for byte: neither defaults of a class nor its forms of numbers
and dates, since the objects are compared as plain JSON values, in which 1 is neither true nor 1.0.
"""
from __future__ import annotations

from typing import Any

from kubectl_runtime.core.base.errors import MissingExtra
from kubectl_runtime.core.codec.jsonvalues import same_json
from kubectl_runtime.core.requests.patch import pointer

Object = dict[str, Any]


def require_jsonpatch() -> Any:
    """The package jsonpatch. Raises MissingExtra when it cannot be imported."""
    try:
        import jsonpatch
    except ImportError as error:
        raise MissingExtra("a webhook that changes objects needs", "webhooks", "jsonpatch", error) from error
    return jsonpatch


def patch_between(before: Object, after: Object) -> list[Object]:
    """The operations that make `after` of `before`, of which neither is changed; none if both are the same JSON.

    Each changed value is replaced where it stands; a list that became longer or shorter is compared by jsonpatch, which
    finds what was inserted, removed or moved. Raises MissingExtra if jsonpatch is not there, whatever has changed: a
    webhook that fails for some objects only would be found late.
    """
    require_jsonpatch()
    operations: list[Object] = []
    for key in (*before, *(key for key in after if key not in before)):
        if key not in before or key not in after or not same_json(before[key], after[key]):
            _compare_member(before, after, key, "", operations)
    return operations


def _compare_member(old: Object, new: Object, key: str, path: str, operations: list[Object]) -> None:
    place = path + pointer(key)
    if key not in new:
        operations.append({"op": "remove", "path": place})
    elif key not in old:
        operations.append({"op": "add", "path": place, "value": new[key]})
    else:
        _compare(old[key], new[key], place, operations)


def _compare(old: Any, new: Any, path: str, operations: list[Object]) -> None:
    kind = type(old)
    if kind is not type(new):
        operations.append({"op": "replace", "path": path, "value": new})
    elif kind is dict:
        for key in (*old, *(key for key in new if key not in old)):
            _compare_member(old, new, key, path, operations)
    elif kind is not list:
        if old != new:
            operations.append({"op": "replace", "path": path, "value": new})
    elif len(old) == len(new):
        for index, (one, other) in enumerate(zip(old, new, strict=True)):
            _compare(one, other, f"{path}/{index}", operations)
    else:
        operations += _list_patch(old, new, path)


def _list_patch(old: list[Any], new: list[Any], path: str) -> list[Object]:
    jsonpatch = require_jsonpatch()
    found: list[Object] = jsonpatch.make_patch(old, new).patch
    # Its shortest patches have been wrong before; one that leads the server to something else must never leave.
    if not same_json(jsonpatch.apply_patch(old, found), new):
        return [{"op": "replace", "path": path, "value": new}]
    return [{**one, **{key: path + one[key] for key in ("path", "from") if key in one}} for one in found]
