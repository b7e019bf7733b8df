"""Names and texts that the server takes, whatever they are made from."""
from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubectl_runtime.apiserver.names import dns_subdomain_errors, qualified_name_errors
from kubectl_runtime.runtime.events.ledger import MARK, cut, event_name, qualified_name, short

MOMENT = datetime(2026, 1, 1, 0, 0, 0, 123456, tzinfo=UTC)
TEXTS = st.text(max_size=400) | st.text("aB-_./é", max_size=400)


@given(TEXTS, st.integers(3, 1024))
def test_a_text_that_is_cut_fits_is_a_beginning_and_ends_with_the_mark(text: str, limit: int) -> None:
    found = cut(text, limit, MARK)
    assert len(found.encode()) <= limit
    whole = text.encode("utf-8", "replace").decode()
    assert found == whole or (found.endswith(MARK) and whole.startswith(found.removesuffix(MARK)))


@given(TEXTS)
def test_a_controller_s_name_is_qualified_or_nothing_of_it_can_be(text: str) -> None:
    name = qualified_name(text)
    assert (qualified_name_errors(name) == []) if name else not any(
        letter.isalnum() and letter.isascii() for letter in text.rpartition("/")[2])
    if not qualified_name_errors(text):
        assert name == text


@given(TEXTS, st.integers(0, 2**32 - 1))
def test_an_event_s_name_is_one(text: str, bits: int) -> None:
    assert dns_subdomain_errors(event_name(text, MOMENT, bits)) == []


def test_an_event_is_named_after_its_object_and_the_nanosecond() -> None:
    assert event_name("my-pod", MOMENT, 255) == f"my-pod.{1767225600123456000:x}000000ff"
    assert event_name("system:node", MOMENT, 0).startswith("system-node.")
    assert event_name("a" * 253, MOMENT, 0).startswith("a" * 228 + ".")


@pytest.mark.parametrize(("text", "name"), [
    ("my ctrl é", "my-ctrl"), ("Example.com/x", "example.com/x"), ("-a-", "a"), ("a/b/c", "a-b/c"), ("é", "")])
def test_names_nearest_to_a_text(text: str, name: str) -> None:
    assert qualified_name(text) == name


def test_a_short_text_has_something_in_it() -> None:
    assert (short("", "Unspecified"), short("a" * 129, "x")) == ("Unspecified", "a" * 128)
