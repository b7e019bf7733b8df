"""Replays vectors: short scripts of requests with the answers that a real kube-apiserver gave; files.py has the format.

`run` makes the requests of one and shows each answer; `check` compares the answers and returns the differences.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from tests.tools.recorder.compare import comparable, differences
from tests.tools.recorder.symbols import UUID, Symbols
from tests.tools.recorder.wire import Server, Stream, body_of, headers_of

Answer = dict[str, Any]
Step = dict[str, Any]
Vector = dict[str, Any]
PLACEHOLDER = re.compile(r"\{\{([^{}]+)\}\}")


def pause(seconds: float) -> None:
    """Let time pass on a server that runs on real time: the recorded scripts have such steps."""
    threading.Event().wait(seconds)


def filled(value: Any, answers: Mapping[str, Any]) -> Any:
    """A copy of a step with {{placeholders}} replaced; a string that is one placeholder takes the value's own type."""
    if isinstance(value, dict):
        return {filled(key, answers): filled(item, answers) for key, item in value.items()}
    if isinstance(value, list):
        return [filled(item, answers) for item in value]
    if not isinstance(value, str):
        return value

    def look_up(path: str) -> Any:
        found: Any = answers
        for part in path.split("."):
            found = found[int(part)] if isinstance(found, list) else found[part]
        return found

    whole = PLACEHOLDER.fullmatch(value)
    return look_up(whole[1]) if whole else PLACEHOLDER.sub(lambda match: str(look_up(match[1])), value)


def run(vector: Vector, server: Server, ident: str, observe: Callable[[Step, Answer, Answer], None], *,
        replayed: bool = False) -> list[str]:
    """Run a vector's requests in order; observe(step, raw answer, normalised answer) sees each answer of its steps.

    `replayed`: the answers that it names are the right ones, and say how much of a watch is to be awaited. Returns the
    resourceVersion symbols that its expected answers show then, from low to high. Raises ValueError if a step of
    ``given`` fails.
    """
    answers: dict[str, Any] = {"id": ident, "ns": f"ns-{ident}"}
    requests_made = json.dumps([{**step, "expect": None} for step in vector.get("given", []) + vector["steps"]])
    symbols = Symbols({answers["ns"]: "{{ns}}", ident: "{{id}}"}, UUID.findall(requests_made))
    streams: dict[str, Stream] = {}
    made: list[str] = []
    held: set[str] = set()
    if "{{ns}}" in requests_made:
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": answers["ns"]}}
        server.send({"method": "POST", "path": "/api/v1/namespaces", "body": namespace}).raise_for_status()
        made.append(f"/api/v1/namespaces/{answers['ns']}")
    try:
        for index, step in enumerate(vector.get("given", []) + vector["steps"]):
            answer = perform(filled({k: v for k, v in step.items() if k != "expect"}, answers), server, streams,
                             step.get("expect", {}) if replayed else {})
            answers[step.get("id", f"step{index}")] = answer
            if answer is None:
                continue
            normal: Answer = {key: symbols.normalise(value) if key in ("headers", "body") else value
                              for key, value in answer.items()}
            if "events" in answer:
                normal["events"] = symbols.events(answer["events"])
            path, metadata = filled(step.get("path", ""), answers), metadata_of(answer)
            created = step.get("method") == "POST" and answer["status"] == 201 and metadata.get("name")
            if created and "/namespaces/" not in path:
                made.append(f"{path}/{metadata['name']}")
            if metadata.get("finalizers"):
                path = path.removesuffix("/status")
                held.add(path if path.endswith("/" + metadata["name"]) else f"{path}/{metadata['name']}")
            if index >= len(vector.get("given", [])):
                observe(step, answer, normal)
            elif answer["status"] >= 300:
                raise ValueError(f"could not prepare: {step['method']} {step['path']}: {json.dumps(normal)}")
        return symbols.order(vector["steps"])
    finally:
        for path in sorted(held):  # finalizers would keep namespaces and CRDs from going
            server.send({"method": "PATCH", "path": path, "body": {"metadata": {"finalizers": None}},
                         "headers": {"Content-Type": "application/merge-patch+json"}})
        for path in reversed(made):
            server.send({"method": "DELETE", "path": path})


def metadata_of(answer: Answer) -> dict[str, Any]:
    """The metadata of the object in an answer, {} if there is none."""
    body = answer.get("body")
    metadata = body.get("metadata") if isinstance(body, dict) else None
    return metadata if isinstance(metadata, dict) else {}


def perform(step: Step, server: Server, streams: dict[str, Stream], awaited: Answer) -> Answer | None:
    """Do one step, whose answer is `awaited`, as far as it is known; returns its raw answer, or None if it has none (a
    pause, a watch left open in the background)."""
    if "pause" in step:
        pause(step["pause"])
        return None
    if "collect" in step:
        return streams[step["collect"]].collect(step.get("count"), step.get("bookmarks", False), awaited)
    if "watch" in step:
        stream = Stream(lambda **options: server.send(step, **options))
        if step["watch"] == "background":
            streams[step["id"]] = stream
            return None
        return stream.collect(step.get("count"), step.get("bookmarks", False), awaited)
    deadline = time.monotonic() + step.get("patience", 20)
    while True:  # once, or until the answer is as the step wants it
        response = server.send(step)
        answer = {"status": response.status_code, "headers": headers_of(response), "body": body_of(response)}
        if "until" not in step or not differences(step["until"], answer, "contains") or time.monotonic() > deadline:
            return answer
        pause(0.1)


def by_number(symbols: list[str]) -> list[str]:
    """resourceVersion symbols in the order of their numbers, which is that of the versions if nothing else is said."""
    return sorted(symbols, key=lambda symbol: int(symbol[3:]))


def check(vector: Vector, server: Server, ident: str) -> list[str]:
    """Replay one vector; the differences as lines of text."""
    lines: list[str] = []

    def observe(step: Step, _: Answer, answer: Answer) -> None:
        expected, actual = comparable(step.get("expect", {}), step), comparable(answer, step)
        found = differences(expected, actual, step.get("compare", "full"))
        lines.extend(f"{step['id']}: {line}" for line in found)

    try:
        order = run(vector, server, ident, observe, replayed=True)
        wanted = vector.get("rvOrder", by_number(order))
        if not lines and order != wanted:
            lines.append(f"resourceVersions from low to high: expected {wanted}, got {order}")
    except Exception as error:  # whatever goes wrong belongs to this vector and must not hide the others
        lines.append(f"{type(error).__name__}: {error}")
    return lines
