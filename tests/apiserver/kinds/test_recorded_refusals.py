"""What kube-apiserver 1.36 accepts and refuses of each built-in kind: about a thousand objects, as recorded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.apiserver.kinds.kindapi import Api
from tests.tools.recorder.files import RecordingFile
from tests.tools.recorder.refusals import observed

FOLDER = Path(__file__).parent / "refusals"
NAMESPACE = "team"


def groups() -> list[Any]:
    files = map(RecordingFile.read, sorted(FOLDER.glob("*.json")))
    return [pytest.param(group, id=file.label(group)) for file in files for group in file.entries]


@pytest.mark.parametrize("group", groups())
def test_objects_are_accepted_and_refused_as_by_the_real_server(api: Api, group: dict[str, Any]) -> None:
    def ask(method: str, path: str, body: dict[str, Any] | None) -> tuple[int, Any]:
        answer = api(method, path, body, content_type="application/json")
        return answer.status, answer.body

    api.made({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    found = observed(group, ask, NAMESPACE, "x")
    assert not [(case, other) for case, other in zip(group["cases"], found, strict=True) if case != other]
