from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubectl_runtime.core.base.errors import RequestError
from kubectl_runtime.core.objects.ownership import LONGEST, child_name
from kubectl_runtime.resources import ConfigMap

NAMES = st.from_regex(re.compile(r"[a-z0-9]([-a-z0-9]{0,251}[a-z0-9])?"), fullmatch=True)
SUFFIXES = st.from_regex(re.compile(r"[a-z0-9]([-a-z0-9]{0,80}[a-z0-9])?"), fullmatch=True)
LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")


def named(name: str) -> ConfigMap:
    return ConfigMap(name=name)


def test_a_short_name_is_owner_and_suffix():
    assert child_name(named("db"), "credentials") == "db-credentials"
    assert len(child_name(named("x" * 60), "ab")) == LONGEST


def test_a_long_name_is_cut_and_ends_in_a_hash_that_never_changes():
    assert child_name(named("x" * 61), "ab") == "x" * 54 + "-bcf90d83"
    assert re.fullmatch("a{53}-[0-9a-f]{8}", child_name(named("a" * 53 + ".b" + "c" * 20), "d"))


def test_a_limit_cuts_the_name_of_a_kind_with_shorter_names():
    assert child_name(named("x" * 40), "nightly", limit=52) == "x" * 40 + "-nightly"
    assert child_name(named("x" * 60), "nightly", limit=52) == "x" * 43 + "-4ce4c877"
    assert len(child_name(named("x" * 250), "ab", limit=253)) == 253


@pytest.mark.parametrize("limit", [0, 15, 254, True, None, "52"])
def test_a_limit_that_leaves_no_room_or_is_no_number_is_refused(limit):
    with pytest.raises(RequestError, match="from 16 to 253"):
        child_name(named("a"), "b", limit=limit)


@given(NAMES, SUFFIXES)
def test_every_name_is_a_label_and_the_same_each_time(owner, suffix):
    name = child_name(named(owner), suffix)
    assert len(name) <= LONGEST
    assert LABEL.fullmatch(name)
    assert child_name(named(owner), suffix) == name


@given(NAMES, st.lists(SUFFIXES, min_size=2, max_size=5, unique=True))
def test_the_children_of_one_owner_have_different_names(owner, suffixes):
    assert len({child_name(named(owner), suffix) for suffix in suffixes}) == len(suffixes)


def test_an_owner_without_a_name_and_an_empty_suffix_are_refused():
    with pytest.raises(RequestError, match="no name yet"):
        child_name(ConfigMap(generate_name="a-"), "b")
    with pytest.raises(RequestError, match="suffix"):
        child_name(named("a"), "")
