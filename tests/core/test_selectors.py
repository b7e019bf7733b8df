"""Label selectors mean here what they mean to the API server."""
from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubectl_runtime.core.errors import RequestError
from kubectl_runtime.core.metav1 import LabelSelector, LabelSelectorRequirement
from kubectl_runtime.core.selectors import Requirement, Selector, fields, selector_text

LABELS = {"app": "web", "tier": "front", "weight": "5", "example.com/owner": "me"}


@pytest.mark.parametrize(("text", "expected"), [
    ("", True), ("app=web", True), ("app==web", True), ("app = web", True), ("app=db", False), ("app=", False),
    ("app!=db", True), ("app!=web", False), ("missing!=x", True),
    ("app in (web,db)", True), ("app in ( web , db )", True), ("app in (db)", False), ("missing in (web)", False),
    ("app notin (db)", True), ("app notin (web)", False), ("missing notin (web)", True),
    ("app", True), ("missing", False), ("!missing", True), ("!app", False), ("! app", False),
    ("weight>4", True), ("weight>5", False), ("weight<6", True), ("app>1", False), ("missing<1", False),
    ("app=web,tier=front,!legacy", True), ("app=web,tier=back", False),
    ("example.com/owner=me, app in (web,db) ,weight", True),
])
def test_parsing_and_matching(text: str, expected: bool) -> None:
    selector = Selector.parse(text)
    assert selector.matches(LABELS) is expected
    assert Selector.parse(str(selector)) == selector


@pytest.mark.parametrize("text",
                         ["=web", "app=web db", "app in web", "app in (a b)", "a,,b", "app=web,", "-a", "a/b/c=d"])
def test_malformed_selectors_are_refused(text: str) -> None:
    with pytest.raises(RequestError, match="malformed label selector"):
        Selector.parse(text)


def test_an_object_without_labels() -> None:
    assert Selector.parse("!app").matches(None)
    assert not Selector.exists("app").matches(None)
    assert Selector().matches(None)


def test_building_and_combining() -> None:
    selector = Selector.labels({"app": "web"}) & Selector.not_in("tier", ["back"]) & Selector.absent("old")
    assert str(selector) == "app=web,tier notin (back),!old"
    assert selector
    assert not Selector()
    assert selector_text(selector) == selector_text(str(selector))
    assert selector_text(None) == ""
    with pytest.raises(RequestError, match="at least one value"):
        Selector.is_in("a", [])


def test_from_the_form_that_objects_carry() -> None:
    found = Selector.from_label_selector(LabelSelector(match_labels={"app": "web"}, match_expressions=[
        LabelSelectorRequirement(key="tier", operator="In", values=["front"]),
        LabelSelectorRequirement(key="old", operator="DoesNotExist"),
        LabelSelectorRequirement(key="weight", operator="Exists"),
        LabelSelectorRequirement(key="app", operator="NotIn", values=["db"])]))
    assert found == Selector.parse("app=web,tier in (front),!old,weight,app notin (db)")
    assert Selector.from_label_selector(None) == Selector()
    like = LabelSelectorRequirement(key="a", operator="Like")
    with pytest.raises(RequestError, match="unknown operator 'Like'"):
        Selector.from_label_selector(LabelSelector(match_expressions=[like]))


KEYS = st.sampled_from(["a", "b", "example.com/c"])
VALUES = st.sampled_from(["", "x", "y", "z.1"])
REQUIREMENTS = st.one_of(
    st.builds(lambda key, value: Requirement(key, "=", (value,)), KEYS, VALUES),
    st.builds(lambda key, value: Requirement(key, "!=", (value,)), KEYS, VALUES),
    st.builds(lambda key, values: Requirement(key, "in", tuple(values)), KEYS, st.lists(VALUES, min_size=1)),
    st.builds(lambda key, values: Requirement(key, "notin", tuple(values)), KEYS, st.lists(VALUES, min_size=1)),
    st.builds(lambda key: Requirement(key, "exists"), KEYS), st.builds(lambda key: Requirement(key, "!"), KEYS))


@given(st.lists(REQUIREMENTS, max_size=4), st.dictionaries(KEYS, VALUES))
def test_a_rendered_selector_means_the_same(requirements: list[Requirement], labels: dict[str, str]) -> None:
    selector = Selector(tuple(requirements))
    assert Selector.parse(str(selector)).matches(labels) == selector.matches(labels)


@given(REQUIREMENTS, st.dictionaries(KEYS, VALUES))
def test_opposites_exclude_each_other(requirement: Requirement, labels: dict[str, str]) -> None:
    opposite = {"=": "!=", "!=": "=", "in": "notin", "notin": "in", "exists": "!", "!": "exists"}[requirement.operator]
    assert Requirement(requirement.key, opposite, requirement.values).matches(labels) != requirement.matches(labels)


def test_field_selectors() -> None:
    assert fields(name="a", namespace="b") == "metadata.name=a,metadata.namespace=b"
    assert fields({"spec.nodeName": "a=b,c"}) == r"spec.nodeName=a\=b\,c"
