"""Whatever somebody has manifests in is read the same way, and every object says where it stands."""

from __future__ import annotations

import io
import json
import sys

import pytest

from kubectl_runtime.manifests.documents import read_objects, read_text
from kubectl_runtime.manifests.scalars import ManifestError
from kubectl_runtime.resources import ConfigMap

TEXT = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a}\n"


def found(source, **options):
    return [(obj["metadata"]["name"], place) for obj, place in read_objects(source, **options)]


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "a.yaml"
    path.write_text(TEXT + "---\n" + TEXT.replace("a}", "b}"))
    return path


def test_a_path_and_its_text_are_the_file(file):
    there = [("a", f"{file}, document 1, line 1"), ("b", f"{file}, document 2, line 5")]
    assert found(file) == found(str(file)) == there


def test_a_text_that_names_no_file_is_the_manifest():
    assert found(TEXT) == [("a", "the YAML text, document 1, line 1")]


def test_a_text_is_never_too_long_or_too_odd_to_name_no_file():
    """A manifest on one line above all, as json.dumps makes it."""
    long = json.dumps({"kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"k": "v" * 5000}})
    assert found(long) == [("a", "the YAML text, document 1, line 1")]
    [(obj, _)] = read_objects('{"metadata": {"name": "a"}, "data": {"k": "\ud800"}}')
    assert obj["data"] == {"k": "\ufffd"}
    for odd in ("x" * 5000, "[" * 5000, "\ud800", "a\0b"):
        with pytest.raises(ManifestError):
            found(odd)


def test_an_empty_text_is_no_folder(file, monkeypatch):
    monkeypatch.chdir(file.parent)
    assert found("") == found(b"") == []


def test_bytes_are_a_text():
    assert found(TEXT.encode("utf-16")) == found(TEXT)
    assert found([TEXT.encode()]) == found(TEXT)


def test_a_dash_is_standard_input(monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(TEXT.encode())))
    assert found("-") == [("a", "standard input, document 1, line 1")]


def test_objects_lists_and_files_may_stand_in_one_list(file):
    items = {"kind": "List", "items": [{"metadata": {"name": "x"}}, {"metadata": {"name": "y"}}]}
    assert found([ConfigMap(name="c"), items, file, [{"metadata": {"name": "z"}}]]) == [
        ("c", "object 1"), ("x", "object 2, item 1"), ("y", "object 2, item 2"),
        ("a", f"{file}, document 1, line 1"), ("b", f"{file}, document 2, line 5"), ("z", "object 1")]


def test_a_document_and_what_it_holds_are_not_shown_by_their_repr():
    assert "hunter2" not in repr(read_text("kind: Secret\nstringData: {password: hunter2}\n"))


def test_one_object_needs_no_list():
    assert found(ConfigMap(name="c")) == [("c", "the object given")]
    assert found({"metadata": {"name": "d"}}) == [("d", "the object given")]


def test_folders_in_folders_if_asked_for(file):
    inner = file.parent / "inner"
    inner.mkdir()
    (inner / "c.yaml").write_text(TEXT.replace("a}", "c}"))
    assert len(found(file.parent)) == 2
    assert [name for name, _ in found(file.parent, recursive=True)] == ["a", "b", "c"]


@pytest.mark.parametrize(("source", "said"), [
    ("deploi/", "there is no file or folder 'deploi/'"),
    ("https://example.com/a.yaml", "there is no file or folder 'https://example.com/a.yaml'"),
    ([5], "object 1: int is not an object"),
    (None, "the object given: NoneType is not an object"),
])
def test_what_is_no_manifest_is_told(source, said):
    with pytest.raises(ManifestError, match=said):
        list(read_objects(source))
