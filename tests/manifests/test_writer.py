"""What is written reads back as it was, by Go's rules and by PyYAML's."""

from __future__ import annotations

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from kubectl_runtime.manifests.documents import read_text
from kubectl_runtime.manifests.yaml_text import decode_yaml, documents_to_yaml, to_yaml

TEXTS = st.text(st.characters(codec="utf-8"), max_size=20) | st.sampled_from(
    ["y", "=", "1e3", "0o17", "1:30", "2024-01-01", "on", "~", "<<", "",
     "---", "- a", "a: b", "a\n  b\n", " a\nb", "089"])
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-2**63, 2**63 - 1) | TEXTS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXTS, inner, max_size=4), max_leaves=12)


@given(VALUES)
@example({"y": "on", "=": "=", "k": "line\nline\n"})
@example({"k": "0o17", "l": "1_0", "m": "1e3", "n": "0x1F", "o": "N", "p": "1:30"})
def test_a_value_reads_back_as_it_was(value):
    text = to_yaml(value)
    assert decode_yaml(text) == value
    assert yaml.safe_load(text) == value


def test_texts_that_look_like_something_else_stand_in_quotes_and_lines_are_a_block():
    assert to_yaml({"b": "y", "a": "x\ny\n", "c": "plain"}) == 'a: |\n  x\n  y\nb: "y"\nc: plain\n'


def test_several_documents_in_the_order_of_their_keys():
    text = documents_to_yaml([{"b": 1, "a": 2}, {"c": 3}], sort_keys=False)
    assert text == "b: 1\na: 2\n---\nc: 3\n"
    assert [document.value for document in read_text(text)] == [{"b": 1, "a": 2}, {"c": 3}]


def test_nothing_is_written_as_a_reference():
    shared = {"a": 1}
    assert to_yaml([shared, shared]) == "- a: 1\n- a: 1\n"


def test_what_is_no_json_value_is_refused():
    with pytest.raises(yaml.YAMLError):
        to_yaml({"a": object()})
