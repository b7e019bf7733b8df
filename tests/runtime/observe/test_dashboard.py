"""Each expression of the dashboard asks for series that a scrape has, with labels that they have."""
from __future__ import annotations

import json
import re
from typing import Any

import pytest

from kubectl_runtime.runtime.observe.families import Families
from kubectl_runtime.runtime.observe.metrics import FAMILIES, Metrics
from kubectl_runtime.runtime.observe.series import CONTROLLERS, WATCHES, WEBHOOKS
from tests.runtime.observe.scrapes import samples
from tests.runtime.observe.test_metrics import busy

BOARD: dict[str, Any] = json.loads(Metrics.dashboard())
TARGETS = [(panel["title"], target["expr"]) for panel in BOARD["panels"] for target in panel.get("targets", ())]
VARIABLES = [variable["definition"] for variable in BOARD["templating"]["list"] if variable["type"] == "query"]
OF_PROMETHEUS = {"job", "instance", "namespace", "pod"}
"""Labels that Prometheus adds to every series of a target."""

FUNCTIONS = {"sum", "max", "by", "rate", "increase", "histogram_quantile", "label_values"}
NAME = r"\b(?!job\b|le\b)[a-z][a-z0-9]*(?:_[a-z0-9]+)+\b"


def scraped() -> dict[str, set[str]]:
    """The labels of each series that exists in a scrape."""
    found: dict[str, set[str]] = {}
    for name, labels in samples(busy().text):
        found.setdefault(name, set()).update(label for label, _ in labels)
    return found


SCRAPED = scraped()


def metrics_of(expression: str) -> set[str]:
    return set(re.findall(NAME, expression)) - FUNCTIONS


def labels_of(expression: str) -> set[str]:
    grouped = [label for group in re.findall(r"\bby \(([^)]*)\)", expression) for label in re.split(r",\s*", group)]
    selectors = re.findall(r"\{([^}]*)\}", expression)
    matched = [label for selector in selectors for label in re.findall(r"(\w+)\s*[=!]", selector)]
    return {*grouped, *matched}


@pytest.mark.parametrize(("panel", "expression"), TARGETS)
def test_an_expression_of_the_dashboard_finds_its_series_and_labels_in_a_scrape(panel: str, expression: str) -> None:
    names = metrics_of(expression)
    assert names
    assert names <= set(SCRAPED), panel
    for name in names:
        assert labels_of(expression) - OF_PROMETHEUS <= SCRAPED[name], panel


@pytest.mark.parametrize("query", VARIABLES)
def test_a_variable_of_the_dashboard_finds_its_values(query: str) -> None:
    found = re.fullmatch(r"label_values\((\w+)(?:\{.*\})?, (\w+)\)", query)
    assert found
    assert found[2] in SCRAPED[found[1]] | OF_PROMETHEUS


@pytest.mark.parametrize("expression", [expression for _, expression in TARGETS])
def test_a_counter_is_never_shown_without_a_rate_except_for_shutdown(expression: str) -> None:
    for name in metrics_of(expression):
        if re.search(r"_(total|bucket|sum|count)$", name) and not re.search(r"dropped|stuck", name):
            assert re.search(rf"(rate|increase)\({name}\{{[^}}]*\}}\[\$__rate_interval\]\)", expression)


def test_the_dashboard_shows_every_family() -> None:
    shown = {re.sub("_bucket$", "", name) for _, expression in TARGETS for name in metrics_of(expression)}
    assert {family.name for family in FAMILIES} - shown == set()


def test_legends_name_labels_that_the_expression_keeps() -> None:
    for panel in BOARD["panels"]:
        for target in panel.get("targets", ()):
            assert set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])) <= labels_of(target["expr"])


def test_panels_have_numbers_of_their_own_and_do_not_overlap() -> None:
    panels = BOARD["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    places = [(x, y) for panel in panels for at in [panel["gridPos"]]
              for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])]
    assert len(set(places)) == len(places)


@pytest.mark.parametrize(("families", "declare", "expression"), [
    (WATCHES, "counter", 'sum by (watch) (rate(kubectl_runtime_new_total{job=~"$job"}[$__rate_interval]))'),
    (CONTROLLERS, "gauge", 'sum by (watch) (kubectl_runtime_new_total{job=~"$job"})'),
    (WEBHOOKS, "histogram", "histogram_quantile(0.5, sum by (le, watch) (rate("
                            'kubectl_runtime_new_total_bucket{job=~"$job"}[$__rate_interval])))')])
def test_a_new_family_is_shown_by_a_panel_of_its_own(families: Families, declare: str, expression: str) -> None:
    arguments: list[Any] = ["kubectl_runtime_new_total", "watch", "New things."]
    if declare == "histogram":
        arguments.insert(2, (1, 2))
    getattr(families, declare)(*arguments)
    try:
        panels = json.loads(Metrics.dashboard())["panels"]
    finally:
        families.pop()
    assert [panel["targets"][0]["expr"] for panel in panels if panel["title"] == "New things"] == [expression]
    assert len(panels) == len(BOARD["panels"]) + 1
