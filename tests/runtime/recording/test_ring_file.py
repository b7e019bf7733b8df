"""Two files at most, each whole in itself, whatever is killed when."""
from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubectl_runtime.runtime.recording import Folded, RingFile
from tests.thoroughness import examples


def head(part: int, partial: bool) -> bytes:
    return msgspec.json.encode({"k": "begin", "part": part, "partial": partial})


def change(kind: str, name: str, text: str = "", *, line: bool = False) -> bytes:
    obj = {"metadata": {"name": name}, "data": text}
    return json.dumps({"k": kind, "w": "maps", "key": f"d/{name}",
                       **({"line": {"type": "X", "object": obj}} if line else {"o": obj})}).encode()


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def held(path: Path) -> dict[str, Any]:
    folded = Folded()
    for line in path.read_bytes().splitlines():
        folded.add(line)
    return {key[1]: json.loads(obj)["data"] for key, obj in folded.held.items()}


@settings(max_examples=examples(30), deadline=None)
@given(changes=st.lists(st.tuples(st.sampled_from("abcd"), st.booleans(), st.integers(0, 300)), max_size=120))
def test_each_file_knows_what_is_stored_and_both_stay_below_the_limit(
        changes: list[tuple[str, bool, int]], tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("ring") / "flight"
    limit = 10_000
    ring = RingFile(path, limit, head)
    stored: dict[str, str] = {}
    for number, (name, goes, size) in enumerate(changes):
        if goes:
            stored.pop(f"d/{name}", None)
            line = change("delete", name)
        else:
            stored[f"d/{name}"] = text = f"{number}" + "x" * size
            line = change("apply", name, text, line=number % 2 == 0)
        assert ring.write([line], 1.0) == 0
    ring.close()
    assert held(path) == stored
    files = [file for file in path.parent.iterdir() if not file.name.endswith(".new")]
    assert sum(file.stat().st_size for file in files) <= limit
    for file in files:
        assert lines(file)[0]["k"] == "begin"
    earlier = Path(f"{path}.1")
    if earlier.exists():
        assert lines(path)[0]["part"] == lines(earlier)[0]["part"] + 1


def test_what_was_stored_is_left_out_when_it_is_too_much_and_that_is_said(tmp_path: Path) -> None:
    path = tmp_path / "flight"
    ring = RingFile(path, 4000, head)
    for number in range(40):
        ring.write([change("apply", f"n{number}", "x" * 100)], 1.0)
    ring.close()
    assert lines(path)[0]["partial"] is True
    assert not any(line["k"] == "held" for line in lines(path))


def test_a_line_above_a_quarter_of_the_limit_is_lost_and_counted(tmp_path: Path) -> None:
    ring = RingFile(tmp_path / "flight", 4000, head)
    assert ring.write([change("apply", "a", "x" * 1100), change("apply", "b")], 1.0) == 1
    ring.close()
    assert held(tmp_path / "flight") == {"d/b": ""}


def test_the_recording_of_the_process_before_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "flight"
    for text in ("first", "second", "third"):
        ring = RingFile(path, 4000, head)
        ring.write([change("apply", "a", text)], 1.0)
        ring.close()
    assert held(path) == {"d/a": "third"}
    assert held(Path(f"{path}.before")) == {"d/a": "second"}
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_two_writers_of_one_file_are_refused(tmp_path: Path) -> None:
    pytest.importorskip("fcntl")
    path = tmp_path / "flight"
    ring = RingFile(path, 4000, head)
    with pytest.raises(BlockingIOError):
        RingFile(path, 4000, head)
    for number in range(40):  # and after another file has taken its place
        ring.write([change("apply", "a", f"{number}" + "x" * 100)], 1.0)
    with pytest.raises(BlockingIOError):
        RingFile(path, 4000, head)
    ring.close()
    RingFile(path, 4000, head).close()


NAMES = ("flight", "flight.1", "flight.before", "flight.before.1")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("kind", ["link", "dangling link", "pipe", "folder"])
def test_what_is_no_regular_file_is_refused_and_left_as_it_is(tmp_path: Path, name: str, kind: str) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    place = put(kind, tmp_path / name, victim)
    before = place.lstat()
    with pytest.raises(OSError, match="not a regular file"):
        RingFile(tmp_path / "flight", 4000, head)
    assert victim.read_text() == "precious"
    assert (place.lstat().st_mode, place.lstat().st_ino) == (before.st_mode, before.st_ino)


def put(kind: str, place: Path, victim: Path) -> Path:
    match kind:
        case "link":
            place.symlink_to(victim)
        case "dangling link":
            place.symlink_to(victim.parent / "nothing")
        case "pipe":
            os.mkfifo(place)
        case "folder":
            place.mkdir()
    return place


@pytest.mark.parametrize("kind", ["link", "dangling link", "pipe", "stale file"])
def test_what_lies_where_a_file_begins_is_taken_away_and_not_followed(tmp_path: Path, kind: str) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    made = tmp_path / "flight.new"
    made.write_text("torn") if kind == "stale file" else put(kind, made, victim)
    ring = RingFile(tmp_path / "flight", 4000, head)
    for number in range(40):
        if number == 20:  # and in the middle, where the next file begins
            put("link", made, victim)
        ring.write([change("apply", "a", f"{number}" + "x" * 100)], 1.0)
    ring.close()
    assert victim.read_text() == "precious"
    assert not (tmp_path / "nothing").exists()
    for name in ("flight", "flight.1"):
        assert lines(tmp_path / name)[0]["k"] == "begin"
        assert stat.S_ISREG(mode := (tmp_path / name).lstat().st_mode)
        assert stat.S_IMODE(mode) == 0o600


def test_a_device_is_refused() -> None:
    with pytest.raises(OSError, match="not a regular file"):
        RingFile(Path("/dev/null"), 4000, head)


def test_the_next_file_begins_with_what_this_process_wrote(tmp_path: Path) -> None:
    """And not with what has taken the place of its file since: a pipe there would never be read to its end."""
    path = tmp_path / "flight"
    ring = RingFile(path, 4000, head)
    ring.write([change("apply", "a", "x" * 100)], 1.0)
    path.unlink()
    os.mkfifo(path)
    for _ in range(8):
        ring.write([change("apply", "b", "y" * 300)], 1.0)
    ring.close()
    assert set(held(path)) == {"d/a", "d/b"}


def test_a_torn_line_is_no_change() -> None:
    folded = Folded()
    whole = change("apply", "a", "text")
    folded.add(whole)
    for end in range(len(whole)):
        folded.add(whole[:end])
    assert list(folded.held) == [("maps", "d/a")]
