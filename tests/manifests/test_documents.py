"""Texts are read document by document as kubectl reads them, and what cannot be read is told with its place."""

from __future__ import annotations

import subprocess
import sys
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubectl_runtime.core.base.errors import KubeError
from kubectl_runtime.manifests import yaml_text
from kubectl_runtime.manifests.documents import read_text
from kubectl_runtime.manifests.scalars import ManifestError


def values(text):
    return [document.value for document in read_text(text)]


def places(text):
    return [(document.number, document.line) for document in read_text(text)]


@pytest.mark.parametrize(("text", "found"), [
    ("", []),
    ("# nothing\n---\n\n--- # here\n~\n", []),
    ("a: 1\n--- # a comment\nb: 2\n---\n", [{"a": 1}, {"b": 2}]),
    ("a: 1\r\n---\r\nb: 2\r\n", [{"a": 1}, {"b": 2}]),
    ("a: 1\n...\n---\nb: 2\n", [{"a": 1}, {"b": 2}]),
    ("%YAML 1.1\n---\na: 1\n", [{"a": 1}]),
    ("a: |\n  --- x\n  y\n", [{"a": "--- x\ny\n"}]),
    ('{"a": 1}{"b": 2}\n\n {"c": 1e3, "d": 1.0, "e": 12345678901234567890}',
     [{"a": 1}, {"b": 2}, {"c": 1000, "d": 1, "e": 12345678901234567890.0}]),
    ('{"a": 1}\n---\n{"b": 2}\n---\nc: y\n', [{"a": 1}, {"b": 2}, {"c": True}]),
    ("{a: 1, b: =}\n---\n{c: 1}\n", [{"a": 1, "b": "="}, {"c": 1}]),
    (r'{"a": "\ud800x", "b": "\ud83d\ude00", "c": "\\ud800"}', [{"a": "\ufffdx", "b": "\U0001f600", "c": "\\ud800"}]),
    (b'{"a": "\xff"}', [{"a": "\ufffd"}]),
    (b"a: \xff\xfe", [{"a": "\ufffd\ufffd"}]),
    ("[1, 2]", [[1, 2]]),
    ("text", ["text"]),
])
def test_documents(text, found):
    assert values(text) == found


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
@pytest.mark.parametrize("text", ["k: ä\n---\nl: €\n", '{"k": "ä"}\n{"l": "€"}'])
def test_encodings_with_a_mark(encoding, text):
    assert values(text.encode(encoding)) == [{"k": "ä"}, {"l": "€"}]


def test_the_place_of_a_document_leaves_out_what_is_empty():
    assert places("---\n\n---\n# a comment\n\na: 1\n---\n---\nb: 2\n") == [(1, 6), (2, 9)]
    assert places('\n{"a": 1}\n{\n}{"b": 2}\n---\nc: 3') == [(1, 2), (2, 3), (3, 4), (4, 6)]
    assert read_text("a: 1", "x.yaml")[0].place == "x.yaml, document 1, line 1"


@pytest.mark.parametrize(("text", "says"), [
    ("a: 1\n---\n\nb: c: d\n", r"^x\.yaml, document 2, line 4: yaml: .*mapping values are not allowed"),
    ("a: 1\n---\nb: 1\nc: !!int x\n", r"^x\.yaml, document 2, line 4: yaml: cannot decode !!str `x` as a !!int$"),
    ("a: *nope", r"^x\.yaml, document 1, line 1: yaml: "),
    ("a: 1\n--- {b: 2}\n", r"^x\.yaml, line 2: a line that begins with --- separates documents"),
    ('{"a": 1}\n{"b": }\n', r"^x\.yaml, document 2, line 2: json: Expecting value$"),
    ('{"a": 1} x', r"^x\.yaml, document 2, line 1: what follows the JSON"),
    ('{\n"a": 1,\n"b": [}', r"^x\.yaml, document 1, line 3: json: Expecting value$"),
    ('{"a": NaN}{', r"^x\.yaml, document 1, line 1: json: NaN is not JSON"),
    ("a: 1\n...\nb: 2\n", r"^x\.yaml, document 1, line 3: yaml: did not find expected <document start>"),
    ("a: \x00", r"^x\.yaml, document 1, line 1: yaml: "),
    ("[" * 100_000, r"^x\.yaml, document 1, line 1: yaml: "),
    ('{"a":' * 100_000, r"^x\.yaml, document 1, line 1: json: "),
])
def test_what_cannot_be_read_is_told_with_source_document_and_line(text, says):
    with pytest.raises(ManifestError, match=says) as error:
        read_text(text, "x.yaml")
    assert isinstance(error.value, KubeError)
    assert error.value.source == "x.yaml"


@given(st.text() | st.binary())
def test_any_text_is_read_or_refused(text):
    with suppress(ManifestError):
        read_text(text)


DEEP = """
import sys
import yaml
if sys.argv[1] == "pure":
    yaml.__with_libyaml__ = False
from kubectl_runtime import Config
from kubectl_runtime.apiserver.server import ApiServer
from kubectl_runtime.client.config.kubeconfig import Kubeconfig
from kubectl_runtime.core.base.errors import ConfigError
from kubectl_runtime.manifests import yaml_text as composer
from kubectl_runtime.manifests.scalars import ManifestError
from kubectl_runtime.manifests.documents import read_objects
assert ("Scanner" in [kind.__name__ for kind in composer._Composer.__mro__]) == (sys.argv[1] == "pure")
levels = int(sys.argv[2])
texts = [start * levels for start in ("[", "{a: ", "- ", "? ", "[{a: ", "!!seq [")]
texts.append("".join(" " * level + "a:\\n" for level in range(1_500)))
texts.append("".join(f"&a{level} [" for level in range(levels)))
for text in texts:
    for read, refused in ((Kubeconfig.from_text, ConfigError), (lambda text: list(read_objects(text)), ManifestError)):
        try:
            read(text)
        except refused:
            pass
        else:
            raise AssertionError(text[:40])
with ApiServer() as server:
    import requests
    for text in texts:
        answer = requests.post(f"{server.url}/api/v1/namespaces/default/configmaps", data=text, timeout=30,
                               headers={"Content-Type": "application/yaml"})
        assert answer.status_code == 400, answer.text
print("all refused")
"""


@pytest.mark.parametrize(("parser", "levels"), [  # the parser in Python is slow, up to 1,500 levels the slower
    ("libyaml", 20_000), ("pure", 600), pytest.param("pure", 20_000, marks=pytest.mark.long)])
def test_yaml_of_any_depth_is_refused_and_ends_no_process(parser, levels):
    done = subprocess.run([sys.executable, "-c", DEEP, parser, str(levels)], capture_output=True, text=True,
                          timeout=120, check=False)
    assert (done.returncode, done.stdout) == (0, "all refused\n"), done.stderr


def test_yaml_as_deep_as_anybody_writes_is_read():
    depth = yaml_text.MOST_LEVELS // 4
    [value] = values("[" * depth + "1" + "]" * depth)
    for _ in range(depth):
        [value] = value
    assert value == 1
    text = "".join("  " * level + "a:\n" for level in range(depth)) + "  " * depth + "b"
    [value] = values(text)
    for _ in range(depth):
        value = value["a"]
    assert value == "b"
