"""Recordings of which objects a server accepts and refuses at their creation, of one kind after the other.

A file is a list of groups ``{"name", "object", "cases"}``. A case is ``[changes, status, causes]``: the changes make
the object of the group another one (``"spec/containers/0/image": ""``; ``<absent>`` removes a field), the status is
that of its creation, the causes are ``[field, reason]`` of a refusal, in alphabetical order; they are left out if there
are none. ``{{ns}}`` in an object is the namespace, ``{{id}}`` a unique name. A new case is written as ``[changes]``.

The objects of a group are created for real, since one can be refused for what another one has (a node port): they are
deleted when the group is done, and groups run one after the other, since ports and names are the cluster's.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from tests.tools.recorder.recording import Recorded
from tests.tools.recorder.wire import Server, body_of

ABSENT = "<absent>"

Object = dict[str, Any]
Case = list[Any]
Ask = Callable[[str, str, Object | None], tuple[int, Any]]  # method, path and body of a request -> status and body


def observed(group: Object, ask: Ask, namespace: str, ident: str) -> list[Case]:
    """The cases of a group as a server answers them. ``ask`` sends a request; the namespace exists."""
    template = json.loads(json.dumps(group["object"]).replace("{{ns}}", namespace).replace("{{id}}", ident))
    path = collection(template, ask, namespace)
    found = []
    for index, (changes, *_) in enumerate(group["cases"]):
        status, body = ask("POST", path, changed(template, changes, f"{ident}-{index}"))
        causes = (body.get("details") or {}).get("causes") or [] if status == 422 else []
        told = sorted([cause.get("field", ""), cause["reason"].removeprefix("FieldValue")] for cause in causes)
        found.append([changes, status, *([told] if told else [])])
    return found


def changed(template: Object, changes: Object, name: str) -> Object:
    """The object of a group with a name and the changes of a case."""
    obj = json.loads(json.dumps(template))
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
    return obj  # type: ignore[no-any-return]


def collection(obj: Object, ask: Ask, namespace: str) -> str:
    """The path under which objects of a kind are created, by the server's discovery.

    Raises LookupError if the server does not serve the kind.
    """
    version, kind = obj["apiVersion"], obj["kind"]
    base = f"/{'apis' if '/' in version else 'api'}/{version}"
    status, body = ask("GET", base, None)
    for resource in body["resources"] if status == 200 else ():
        if resource["kind"] == kind and "/" not in resource["name"]:
            return base + (f"/namespaces/{namespace}" if resource["namespaced"] else "") + f"/{resource['name']}"
    raise LookupError(f"the server does not serve {kind} of {version}")


def record(group: Object, server: Server, ident: str, fresh: bool = False) -> Recorded:
    """Create the objects of a group and write down what became of them. Blocks until all were answered."""
    del fresh  # all of an outcome is compared, so nothing else could be taken over

    made: list[tuple[str, Object]] = []

    def ask(method: str, path: str, body: Object | None) -> tuple[int, Any]:
        response = server.send({"method": method, "path": path, "body": body})
        answer = body_of(response)
        if response.status_code == 201:
            made.append((f"{path}/{answer['metadata']['name']}", answer["metadata"]))
        return response.status_code, answer

    namespace = f"ns-{ident}"
    try:
        ask("POST", "/api/v1/namespaces", {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}})
        try:
            return Recorded({**group, "cases": observed(group, ask, namespace, ident)})
        finally:
            for path, metadata in reversed(made):
                remove(server, path, metadata)
    except Exception as error:  # told, so that one bad group does not lose the others
        return Recorded(group, [f"FAILED {type(error).__name__}: {error}"], failed=True)


def remove(server: Server, path: str, metadata: Object) -> None:
    """Delete an object at once, whatever finalizers its kind gives it."""
    if metadata.get("finalizers"):
        server.send({"method": "PATCH", "path": path, "body": {"metadata": {"finalizers": None}},
                     "headers": {"Content-Type": "application/merge-patch+json"}})
    server.send({"method": "DELETE", "path": path, "query": {"gracePeriodSeconds": "0"}})


def check(group: Object, server: Server, ident: str) -> list[str]:
    """The cases that a server answers otherwise, as lines of text."""
    recorded = record(group, server, ident)
    pairs = zip(group["cases"], recorded.entry["cases"], strict=True)
    return recorded.notes + [f"{json.dumps(case[0])}: expected {json.dumps(case[1:])}, got {json.dumps(found[1:])}"
                             for case, found in pairs if case != found]
