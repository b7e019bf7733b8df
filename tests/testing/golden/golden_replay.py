"""Replays golden vectors: short scripts of requests with the answers that a real kube-apiserver 1.36 gave.

The vectors lie beside this module, one file for each topic: those in ``vectors`` as they were given, those in
``recorded`` made later in the same format. `check` runs one against a server and returns the differences.
"""

from __future__ import annotations

import json
import re
import threading
import time
from pathlib import Path

from tests.testing.golden.golden_compare import comparable, differences
from tests.testing.golden.golden_symbols import UUID, Symbols
from tests.testing.golden.golden_wire import Stream, body_of, headers_of

FOLDERS = ("vectors", "recorded")
PLACEHOLDER = re.compile(r"\{\{([^{}]+)\}\}")


def pause(seconds):
    """Let time pass on a server that runs on real time: the recorded scripts have such steps."""
    threading.Event().wait(seconds)


def topics():
    """(topic, vector) of everything that was recorded."""
    for folder in FOLDERS:
        for path in sorted((Path(__file__).parent / folder).glob("*.json")):
            content = json.loads(path.read_text(encoding="utf-8"))
            for vector in content["vectors"]:
                yield content["topic"], vector


def filled(value, answers):
    """A copy of a step with {{placeholders}} replaced; a string that is one placeholder takes the value's own type."""
    if isinstance(value, dict):
        return {filled(key, answers): filled(item, answers) for key, item in value.items()}
    if isinstance(value, list):
        return [filled(item, answers) for item in value]
    if not isinstance(value, str):
        return value

    def look_up(path):
        found = answers
        for part in path.split("."):
            found = found[int(part)] if isinstance(found, list) else found[part]
        return found

    whole = PLACEHOLDER.fullmatch(value)
    return look_up(whole[1]) if whole else PLACEHOLDER.sub(lambda match: str(look_up(match[1])), value)


def run(vector, server, ident, observe):
    """Run a vector's requests in order; observe(step, raw answer, normalised answer) sees each answer of its steps."""
    answers = {"id": ident, "ns": f"ns-{ident}"}
    requests_made = json.dumps([{**step, "expect": None} for step in vector.get("given", []) + vector["steps"]])
    symbols = Symbols({answers["ns"]: "{{ns}}", ident: "{{id}}"}, UUID.findall(requests_made))
    streams, made, held = {}, [], set()
    if "{{ns}}" in requests_made:
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": answers["ns"]}}
        server.send({"method": "POST", "path": "/api/v1/namespaces", "body": namespace}).raise_for_status()
        made.append(f"/api/v1/namespaces/{answers['ns']}")
    try:
        for index, step in enumerate(vector.get("given", []) + vector["steps"]):
            answer = perform(filled({k: v for k, v in step.items() if k != "expect"}, answers), server, streams)
            answers[step.get("id", f"step{index}")] = answer
            if answer is None:
                continue
            normal = {**answer, **{key: symbols.normalise(answer[key]) for key in ("headers", "body") if key in answer}}
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


def metadata_of(answer):
    """The metadata of the object in an answer, {} if there is none."""
    body = answer.get("body")
    metadata = body.get("metadata") if isinstance(body, dict) else None
    return metadata if isinstance(metadata, dict) else {}


def perform(step, server, streams):
    """Do one step; returns its raw answer, or None if it has none (a pause, a watch left open in the background)."""
    if "pause" in step:
        return pause(step["pause"])
    if "collect" in step:
        return streams[step["collect"]].collect(step.get("count"), step.get("bookmarks", False))
    if "watch" in step:
        stream = Stream(lambda **options: server.send(step, **options))
        if step["watch"] == "background":
            streams[step["id"]] = stream
            return None
        return stream.collect(step.get("count"), step.get("bookmarks", False))
    deadline = time.monotonic() + step.get("patience", 20)
    while True:  # once, or until the answer is as the step wants it
        response = server.send(step)
        answer = {"status": response.status_code, "headers": headers_of(response), "body": body_of(response)}
        if "until" not in step or not differences(step["until"], answer, "contains") or time.monotonic() > deadline:
            return answer
        pause(0.1)


def check(vector, server, ident):
    """Replay one vector; the differences as lines of text."""
    lines = []

    def observe(step, _, answer):
        found = differences(comparable(step["expect"], step), comparable(answer, step), step.get("compare", "full"))
        lines.extend(f"{step['id']}: {line}" for line in found)

    try:
        order = run(vector, server, ident, observe)
        wanted = vector.get("rvOrder", sorted(order, key=lambda symbol: int(symbol[3:])))
        if not lines and order != wanted:
            lines.append(f"resourceVersions from low to high: expected {wanted}, got {order}")
    except Exception as error:  # whatever goes wrong belongs to this vector and must not hide the others
        lines.append(f"{type(error).__name__}: {error}")
    return lines
