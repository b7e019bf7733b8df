"""Files, folders and standard input are read as ``kubectl apply -f`` reads them."""

from __future__ import annotations

import io
import shutil
import subprocess
import sys

import pytest

from kubectl_runtime.manifests.documents import read_files
from kubectl_runtime.manifests.scalars import ManifestError


@pytest.fixture
def folder(tmp_path):
    for name in ("b.yml", "a.yaml", "c.json", ".yaml", "notes.txt", "z/d.yaml", "d/e.yaml"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(f"apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: {path.stem.strip('.')}}}")
    (tmp_path / "link.yaml").symlink_to(tmp_path / "notes.txt")
    (tmp_path / "linked").symlink_to(tmp_path / "z")
    return tmp_path


def names(path, **options):
    return [document.value["metadata"]["name"] for document in read_files(path, **options)]


def test_a_folder_gives_its_manifests_by_name(folder):
    assert names(folder) == ["yaml", "a", "b", "c", "notes"]


def test_the_folders_in_it_only_if_asked_for(folder):
    assert names(folder, recursive=True) == ["yaml", "a", "b", "c", "e", "notes", "d"]


def test_a_file_that_is_named_is_read_whatever_its_name(folder):
    assert names(folder / "notes.txt") == ["notes"]


def test_a_folder_without_manifests_is_told(tmp_path):
    with pytest.raises(ManifestError, match=r"the folder has no file that ends with \.json, \.yaml, \.yml"):
        names(tmp_path)


def test_a_missing_file_is_an_os_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        names(tmp_path / "missing.yaml")


def test_standard_input(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("metadata: {name: a}".encode("utf-16"))))
    assert names("-") == ["a"]


def test_an_error_names_the_file(tmp_path):
    (tmp_path / "bad.yaml").write_text("a: 1\n---\na: [")
    with pytest.raises(ManifestError, match=r"bad\.yaml, document 2, line [34]: yaml"):
        list(read_files(tmp_path))


@pytest.mark.kubectl
@pytest.mark.skipif(shutil.which("kubectl") is None, reason="there is no kubectl")
@pytest.mark.parametrize("recursive", [False, True])
def test_kubectl_reads_the_same_files_in_the_same_order(folder, recursive):
    done = subprocess.run(["kubectl", "--kubeconfig", "/dev/null", "annotate", "--local", "-f", str(folder), "-o",
                           "name", "a=b", f"--recursive={recursive}".lower()], capture_output=True, text=True,
                          timeout=60, check=True)
    assert names(folder, recursive=recursive) == [line.partition("/")[2] for line in done.stdout.splitlines()]
