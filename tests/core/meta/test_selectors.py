"""Label selectors mean here what they mean to the API server."""
from __future__ import annotations

import re
from types import MappingProxyType
from typing import Any, ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubectl_runtime.apiserver.errors import StatusError
from kubectl_runtime.apiserver.query import parse_labels, parse_terms
from kubectl_runtime.core.base.errors import RequestError
from kubectl_runtime.core.meta.metav1 import LabelSelector, LabelSelectorRequirement
from kubectl_runtime.core.meta.selectors import Requirement, Selector, field_selection, fields, label_selection
from kubectl_runtime.core.requests.params import ListParams, WatchParams
from kubectl_runtime.runtime.watch.config import WatcherConfig
from tests.thoroughness import examples

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


PIECES = st.one_of(
    st.sampled_from(["a", "in", "notin", "in ", " notin ", "b-1", "example.com/c", "Example.com/c", "a/b/c", "x.", "ä",
                     "-", "_", "9", "99999999999999999999", "a" * 63, "b" * 64]),
    st.sampled_from(["=", "==", "!=", "!", "<", ">", "(", ")", ",", " ", "\t", "\n", "(,", ",)", "()", " in (a", "\\"]))


@settings(max_examples=examples(3000))
@given(st.one_of(st.lists(PIECES, max_size=9).map("".join), st.lists(REQUIREMENTS, max_size=4).map(
    lambda requirements: ",".join(map(str, requirements)))), st.dictionaries(KEYS, VALUES))
def test_a_watch_takes_the_label_selectors_that_a_server_takes_and_no_other(text: str, labels: dict[str, str]) -> None:
    try:
        served = parse_labels(text)  # the embedded server's, which is compared with recordings of a real one
    except StatusError:
        with pytest.raises(RequestError, match=r"label selector"):
            WatcherConfig(label_selector=text)
    else:
        assert WatcherConfig(label_selector=text).label_text == (text or None)
        assert Selector.parse(text).matches(labels) == served.matches(labels)


@settings(max_examples=examples(3000))
@given(st.lists(st.sampled_from(["metadata.name", "spec.nodeName", "a", "ä", "=", "==", "!=", "!", ",", "\\", r"\,",
                                 r"\=", r"\\", "\n", "(", ""]), max_size=9).map("".join))
def test_a_watch_takes_the_field_selectors_that_a_server_takes_and_no_other(text: str) -> None:
    try:
        terms = parse_terms(text)
        refused = any(not key or re.search(r"[\s!\\]", key) for key, _, _ in terms)  # no kind has such a field
    except StatusError:
        refused = True
    if refused:
        with pytest.raises(RequestError, match="malformed field selector"):
            WatcherConfig(field_selector=text)
    else:
        assert WatcherConfig(field_selector=text).field_text == (text or None)


@pytest.mark.parametrize("make", [
    lambda: WatcherConfig(label_selector="a in b"), lambda: WatcherConfig(label_selector="n>x"),
    lambda: WatcherConfig(label_selector="\u00a0"),
    lambda: WatcherConfig(field_selector="metadata.name"), lambda: WatcherConfig(field_selector="a=b=c"),
    lambda: WatcherConfig(field_selector="metadata.name=a\\"), lambda: WatcherConfig(field_selector={"": "a"}),
    lambda: WatcherConfig(label_selector="(" * 100_000), lambda: WatcherConfig(label_selector="a=b," * 50_000)])
def test_a_watch_refuses_what_would_be_refused_again_and_again(make: Any) -> None:
    with pytest.raises(RequestError) as refused:
        make()
    assert len(str(refused.value)) < 500


def test_field_selectors() -> None:
    assert fields(name="a", namespace="b") == "metadata.name=a,metadata.namespace=b"
    assert fields({"spec.nodeName": "a=b,c"}) == r"spec.nodeName=a\=b\,c"


WEB = LabelSelector(match_labels={"app": "web"})


class V1LabelSelector:
    """As the official client's models are, without importing it."""

    openapi_types: ClassVar = {"match_labels": "dict(str, str)", "match_expressions": "list[V1Requirement]"}
    attribute_map: ClassVar = {"match_labels": "matchLabels", "match_expressions": "matchExpressions"}
    match_labels: ClassVar = {"app": "web"}
    match_expressions = None


@pytest.mark.parametrize("given", [
    "app=web", Selector.labels(app="web"), {"app": "web"}, MappingProxyType({"app": "web"}), WEB,
    {"matchLabels": {"app": "web"}}, {"matchLabels": {"app": "web"}, "matchExpressions": None}, V1LabelSelector(),
    {"matchExpressions": [{"key": "app", "operator": "In", "values": ["web"]}]},
])
def test_every_form_of_a_label_selector_says_the_same_in_every_place(given: Any) -> None:
    for params in (ListParams(label_selector=given), WatchParams(label_selector=given)):
        assert dict(params.query())["labelSelector"] in ("app=web", "app in (web)")
        assert hash(params) == hash(type(params)(label_selector=given))
    assert WatcherConfig(label_selector=given).label_text in ("app=web", "app in (web)")
    assert Selector.of(given).matches({"app": "web", "more": "x"})
    assert not Selector.of(given).matches({"app": "db"})


@pytest.mark.parametrize("nothing", [None, "", {}, Selector(), LabelSelector(), {"matchLabels": {}}])
def test_a_selector_that_demands_nothing_is_not_sent(nothing: Any) -> None:
    assert dict(ListParams(label_selector=nothing).query()) == {}
    assert WatcherConfig(label_selector=nothing).label_text is None
    assert Selector.of(nothing).matches(None)


@pytest.mark.parametrize("wrong", [
    7, True, b"app=web", ["app=web"], object(), Selector, LabelSelector, V1LabelSelector,
    {"app": True}, {"app": None}, {"app": "a,b"}, {"app,b": "a"}, {7: "a"}, {"app": "web\n"},
    {"matchLabels": {"app": 1}}, {"matchLabels": {"app": "web"}, "matchExpresions": []},
    {"matchExpressions": [{"key": "a", "operator": "Like"}]},
])
def test_what_is_no_label_selector_is_refused_before_anything_is_sent(wrong: Any) -> None:
    for place in (lambda: ListParams(label_selector=wrong), lambda: WatchParams(label_selector=wrong),
                  lambda: WatcherConfig(label_selector=wrong), lambda: Selector.of(wrong)):
        with pytest.raises(RequestError):
            place()


def test_a_selector_keeps_what_it_was_given_when_the_mapping_changes_later() -> None:
    labels = {"app": "web"}
    params = ListParams(label_selector=labels)
    labels["app"] = "db"
    assert dict(params.query()) == {"labelSelector": "app=web"}
    assert label_selection(None) is None


def test_text_is_the_servers_to_judge() -> None:
    assert dict(ListParams(label_selector="not a selector").query()) == {"labelSelector": "not a selector"}


def test_field_selectors_are_text_or_mappings_in_every_place() -> None:
    for selection in ("metadata.name=a", {"metadata.name": "a"}):
        assert dict(ListParams(field_selector=selection).query()) == {"fieldSelector": "metadata.name=a"}
        assert WatcherConfig(field_selector=selection).field_text == "metadata.name=a"
    assert dict(ListParams(field_selector={}).query()) == {}
    assert field_selection(None) is None
    for wrong in (7, ["metadata.name=a"], b"a=b", {"metadata.name": 7}, {7: "a"}, Selector.labels(app="web")):
        with pytest.raises(RequestError):
            ListParams(field_selector=wrong)  # type: ignore[arg-type]
        with pytest.raises(RequestError):
            WatcherConfig(field_selector=wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize(("key", "operator", "values"), [
    ("app", "like", ("a",)), ("a b", "=", ("x",)), ("", "exists", ()), ("app", "in", ("a", "b)")), ("app", "=", (7,)),
])
def test_a_requirement_that_would_say_something_else_when_rendered_is_refused(
    key: str, operator: str, values: tuple[Any, ...]
) -> None:
    with pytest.raises(RequestError):
        Requirement(key, operator, values)


@pytest.mark.parametrize(("make", "said"), [
    (lambda: Selector.labels(app="a b"), "label 'app': 'a b' is not a value of a label: a value is letters and digits"),
    (lambda: Selector.exists("a,b"), "'a,b' is not a key of a label: a key is letters and digits, with -, _ and ."),
    (lambda: Selector.labels(app="a" * 64), "a value is letters and digits, with -, _ and . inside, 63 at most"),
    (lambda: Selector.exists("a" * 64), "is not a key of a label: a key is letters and digits, with -, _ and . inside"),
    (lambda: Selector.exists("a" * 254 + "/b"), "is not a key of a label")])
def test_what_no_label_can_have_is_refused_with_what_it_can(make: Any, said: str) -> None:
    with pytest.raises(RequestError, match=re.escape(said)):
        make()


@pytest.mark.parametrize("make", [Selector.is_in, Selector.not_in])
def test_a_text_is_not_taken_for_a_list_of_values(make) -> None:
    with pytest.raises(RequestError, match="needs a list of at least one value, not 'web'"):
        make("app", "web")
