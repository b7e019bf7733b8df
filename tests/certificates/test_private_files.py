"""What the library writes under a name goes into a file of its owner, and nowhere else."""
from __future__ import annotations

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from kubectl_runtime.certificates.bundles import create_private, write_private
from kubectl_runtime.testing import ApiServer
from kubectl_runtime.testing.rights_recorder import RightsRecorder


def kubeconfig(path: Path) -> None:
    with ApiServer() as server:
        server.write_kubeconfig(path)


WRITERS: list[Callable[[Path], object]] = [lambda path: write_private(path, b"{}"), kubeconfig, RightsRecorder().write]


@pytest.mark.parametrize("write", WRITERS)
@pytest.mark.parametrize("kind", ["link", "dangling link", "pipe", "folder", "device"])
def test_anything_but_a_file_is_refused_and_left_as_it_is(tmp_path: Path, write: Callable[[Path], object],
                                                          kind: str) -> None:
    victim, place = tmp_path / "victim", tmp_path / "place"
    victim.write_text("precious")
    match kind:
        case "link":
            place.symlink_to(victim)
        case "dangling link":
            place.symlink_to(tmp_path / "nothing")
        case "pipe":
            os.mkfifo(place)
        case "folder":
            place.mkdir()
        case "device":
            place = Path("/dev/null")
    before = place.lstat()
    with pytest.raises(OSError, match="not a regular file"):
        write(place)
    assert (victim.read_text(), place.lstat().st_ino) == ("precious", before.st_ino)
    assert {file.name for file in tmp_path.iterdir()} <= {"victim", "place"}


@pytest.mark.parametrize("write", WRITERS)
def test_a_file_is_replaced_as_a_whole_and_is_its_owners(tmp_path: Path, write: Callable[[Path], object]) -> None:
    place, other = tmp_path / "place", tmp_path / "other"
    place.write_text("x" * 100_000)
    place.chmod(0o666)
    os.link(place, other)
    with place.open() as reader:
        write(place)
        assert reader.read(1) == "x"  # whoever reads the old one reads it to its end
    assert other.read_text() == "x" * 100_000
    assert place.read_text().startswith("{")
    assert stat.S_IMODE(place.stat().st_mode) == 0o600
    assert {file.name for file in tmp_path.iterdir()} == {"place", "other"}


def test_what_cannot_be_written_leaves_nothing_behind(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        write_private(tmp_path / "absent" / "file", b"x")
    with pytest.raises(TypeError):
        write_private(tmp_path / "file", "text")  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []


def test_a_new_file_takes_no_name_that_is_taken(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "nothing")
    (tmp_path / "file").write_text("")
    for name in ("link", "file"):
        with pytest.raises(FileExistsError):
            create_private(tmp_path / name)
    assert not (tmp_path / "nothing").exists()
