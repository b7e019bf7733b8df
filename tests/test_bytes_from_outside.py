"""Whatever bytes come from outside, each reader says in its own words that it cannot read them.

msgspec raises three unrelated exceptions for them; `DECODE_FAILURES` has all three.
"""
from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from kubectl_runtime import DecodeError
from kubectl_runtime.cli.places import CommandError
from kubectl_runtime.cli.rbac import _recorded
from kubectl_runtime.cli.top import read
from kubectl_runtime.client.server import ServerVersion
from kubectl_runtime.client.streaming.process import _status
from kubectl_runtime.core.requests.rights import _blocked_owners
from kubectl_runtime.runtime.recording import Folded
from kubectl_runtime.testing.lab.recordings import Recording, RecordingError

PACKAGE = Path(__file__).parent.parent / "kubectl_runtime"

DEEP = b'{"version": 1, "o": ' + b"[" * 1_000_000 + b"]" * 1_000_000 + b"}"
NOT_UTF_8 = b'{"version": "\xff", "rights": "\xff", "gitVersion": "\xff", "reason": "\xff", "k": "\xff"}'
NOT_JSON = b"\x1f\x8b\x08"

outside = pytest.mark.parametrize("content", [DEEP, NOT_UTF_8, NOT_JSON], ids=["deep", "not UTF-8", "not JSON"])


def version(content: bytes, _: Path) -> None:
    with pytest.raises(DecodeError, match="https://here to /version cannot be read"):
        ServerVersion.decoded(content, "https://here")


def status_of_a_process(content: bytes, _: Path) -> None:
    assert _status(content) is None


def status_page(content: bytes, _: Path) -> None:
    with pytest.raises(ValueError, match=r"."):
        read(content)


def recorded_rights(content: bytes, folder: Path) -> None:
    (folder / "rights.json").write_bytes(content)
    with pytest.raises(CommandError, match=r"rights\.json"):
        _recorded(folder / "rights.json", [])


def torn_line_of_a_flight_recorder(content: bytes, _: Path) -> None:
    stored = Folded()
    stored.add(content)
    assert stored.lines(0.0) == []


def recording_to_replay(content: bytes, folder: Path) -> None:
    (folder / "flight").write_bytes(content)
    with pytest.raises(RecordingError, match="is not a recording"):
        Recording.read(folder / "flight")


def owners_in_a_body(content: bytes, _: Path) -> None:
    assert list(_blocked_owners(content)) == []


@outside
@pytest.mark.parametrize("reader", [
    version, status_of_a_process, status_page, recorded_rights, torn_line_of_a_flight_recorder, recording_to_replay,
    owners_in_a_body])
def test_a_reader_names_what_it_cannot_read(reader: Callable[[bytes, Path], None], content: bytes,
                                            tmp_path: Path) -> None:
    reader(content, tmp_path)


def test_the_failures_of_msgspec_are_listed_in_one_place() -> None:
    """Outside the embedded server, that is; a reader of YAML may catch one of them alone to try something else."""
    partial = re.compile(r"except \(?[^:]*msgspec\.(?:MsgspecError|DecodeError)")
    found = [str(path.relative_to(PACKAGE)) for path in sorted(PACKAGE.rglob("*.py"))
             if "apiserver" not in path.parts and partial.search(path.read_text())]
    assert found == ["client/config/exec_plugin.py"]
