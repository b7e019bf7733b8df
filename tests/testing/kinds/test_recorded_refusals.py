"""What kube-apiserver 1.36 accepts and refuses of each built-in kind: about a thousand objects, as recorded.

``refusals/*.json`` hold groups ``{"name", "object", "cases"}``. A case is ``[changes, status, causes]``: the changes
make the object of the group another one (``"spec/containers/0/image": ""``; ``<absent>`` removes a field), the status
is that of its creation, the causes are ``[field, reason]`` of a refusal, in no particular order.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kubectl_runtime.testing.apiserver.kinds.catalog import builtin_types
from tests.testing.kinds.kindapi import Api

FOLDER = Path(__file__).parent / "refusals"
ABSENT = "<absent>"
NAMESPACE = "team"


def groups() -> list[Any]:
    found = []
    for path in sorted(FOLDER.glob("*.json")):
        found += [pytest.param(group, id=f"{path.stem}: {group['name']}")
                  for group in json.loads(path.read_text(encoding="utf-8"))]
    return found


def changed(template: dict[str, Any], changes: dict[str, Any], name: str) -> dict[str, Any]:
    """The object of a group with the changes of a case."""
    obj = json.loads(json.dumps(template).replace("{{ns}}", NAMESPACE).replace("{{id}}", "x"))
    obj.setdefault("metadata", {})["name"] = name
    for path, value in changes.items():
        *parents, last = path.split("/")
        target: Any = obj
        for part in parents:
            if isinstance(target, dict) and target.get(part) is None:
                target[part] = {}
            target = target[int(part) if isinstance(target, list) else part]
        if value == ABSENT:
            target.pop(last, None)
        else:
            target[int(last) if isinstance(target, list) else last] = value
    return obj


def collection(obj: dict[str, Any]) -> str:
    """The path under which objects of a kind are created."""
    wanted = (obj["apiVersion"], obj["kind"])
    found = next(entry for entry in builtin_types() if (entry.api_version, entry.kind) == wanted)
    scope = f"/namespaces/{NAMESPACE}" if found.namespaced else ""
    return f"/{'apis' if found.group else 'api'}/{found.api_version}{scope}/{found.plural}"


@pytest.mark.parametrize("group", groups())
def test_objects_are_accepted_and_refused_as_by_the_real_server(api: Api, group: dict[str, Any]) -> None:
    api.made({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    path, wrong = collection(group["object"]), []
    for index, (changes, status, *expected) in enumerate(group["cases"]):
        answer = api("POST", path, changed(group["object"], changes, f"x{index}"), content_type="application/json")
        causes = (answer.body.get("details") or {}).get("causes") or [] if answer.status == 422 else []
        got = sorted([cause.get("field", ""), cause["reason"].removeprefix("FieldValue")] for cause in causes)
        if [answer.status, got] != [status, expected[0] if expected else []]:
            wrong.append((changes, (status, *expected), (answer.status, got)))
    assert not wrong
