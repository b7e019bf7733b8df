"""The Grafana dashboard: panels made from the metric families of `series`.

`PANELS` groups families into panels. A family that is in no panel gets its own panel at the end of its section, so that
a new metric appears without a change here.
"""
from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from itertools import count
from typing import Any, NamedTuple

from kubectl_runtime.runtime.observe import series as s
from kubectl_runtime.runtime.observe.families import Families, Family, Kind

_JOB, _CONTROLLER = 'job=~"$job"', 'controller=~"$controller"'
_SOURCE = {"type": "prometheus", "uid": "${datasource}"}


class Shown(NamedTuple):
    """One line of a panel (or one line per quantile): a family, aggregated by the labels `by`."""

    family: Family
    by: str = ""
    """Labels, separated by blanks; empty: all labels of the family except labels that the Prometheus server adds, such
    as `job`."""
    text: str = ""
    """The text after the labels in the legend."""
    how: str = "sum"
    """How series are aggregated: sum or max."""
    over: str = "rate"
    """What a counter's line shows: its `rate` or `increase`; empty: its value."""
    quantiles: tuple[float, ...] = (0.5, 0.99)
    where: str = ""
    """A PromQL condition that is appended to the line's expression."""
    share_of: Family | None = None
    """Show the line as a share of this family."""


class Panel(NamedTuple):
    """A graph: its title, its Grafana unit, and its lines."""

    title: str
    unit: str
    lines: Sequence[Shown]


PANELS: tuple[tuple[str, Families, tuple[Panel, ...]], ...] = (
    ("Reconciling", s.CONTROLLERS, (
        Panel("Reconciles by result", "ops", [Shown(s.RECONCILES)]),
        Panel("Failed share", "percentunit", [Shown(s.ERRORS, share_of=s.RECONCILES)]),
        Panel("Duration", "s", [Shown(s.TIME, quantiles=(0.5, 0.95, 0.99))]),
        Panel("Workers", "short", [Shown(s.ACTIVE, text="active"), Shown(s.CONCURRENCY, text="at most")]),
        Panel("Failures without a retry", "ops", [
            Shown(s.TERMINAL, text="terminal"), Shown(s.PANICS, text="panics"), Shown(s.TIMEOUTS, text="timeouts"),
            Shown(s.SKIPPED, text="skipped")]),
        Panel("Running controllers, leaders", "short", [Shown(s.UP), Shown(s.LEADING, "name instance")]))),
    ("Queue", s.CONTROLLERS, (
        Panel("Depth", "short", [Shown(s.DEPTH, "name")]),
        Panel("Requests", "ops", [Shown(s.ADDS, "name"), Shown(s.READ_CHANGES, text="changes of reads")]),
        Panel("Wait for a worker", "s", [Shown(s.WAITED, "name")]),
        Panel("Work", "s", [Shown(s.WORKED, "name")]),
        Panel("Runs in progress", "s", [Shown(s.LONGEST, "name", "longest", "max"),
                                        Shown(s.UNFINISHED, "name", "together")]),
        Panel("Retries, and their backoff", "short", [Shown(s.RETRIES, "name", "retries/s"),
                                                      Shown(s.DELAYS, text="backoff, s", quantiles=(0.95,))]),
        Panel("Shutdown", "short", [Shown(s.DROPPED, text="keys dropped", over=""),
                                    Shown(s.STUCK, text="runs stuck", over="")]))),
    ("Watches and stores", s.WATCHES, (
        Panel("State", "short", [Shown(s.STATE, where="== 1")]),
        Panel("Since the last frame", "s", [Shown(s.AGE, "watch instance", how="max")]),
        Panel("Failures", "short", [Shown(s.FAILURES, text="/s"), Shown(s.IN_A_ROW, text="in a row", how="max"),
                                    Shown(s.DELAY, text="backoff, s", how="max")]),
        Panel("Repeated lists", "short", [Shown(s.RELISTS, over="increase"),
                                          Shown(s.LIST_TIME, text="the last took, s", how="max")]),
        Panel("Events", "ops", [Shown(s.EVENTS)]),
        Panel("Objects and bytes in stores", "short", [Shown(s.OBJECTS, "watch instance"),
                                                       Shown(s.SIZE, "watch instance", "bytes")]))),
    ("Requests to the API server", s.CLIENTS, (
        Panel("Requests by answer", "reqps", [Shown(s.CLIENT_REQUESTS, "code method")]),
        Panel("Duration, p99", "s", [Shown(s.DURATION, "verb", quantiles=(0.99,))]),
        Panel("Retries", "reqps", [Shown(s.CLIENT_RETRIES, "code verb")]),
        Panel("Writes", "ops", [Shown(s.WRITES)]),
        Panel("Credentials", "ops", [Shown(s.CREDENTIALS, "host result")]))),
    ("Webhooks", s.WEBHOOKS, (
        Panel("Requests by answer", "ops", [Shown(s.WEBHOOK_REQUESTS)]),
        Panel("Duration", "s", [Shown(s.LATENCY)]),
        Panel("Requests in progress", "short", [Shown(s.IN_FLIGHT)]))),
)


def dashboard() -> str:
    """The dashboard as JSON, with every metric family."""
    panels: list[dict[str, Any]] = []
    numbers, top = count(1), 0
    for title, shown in _sections():
        panels.append({"id": next(numbers), "type": "row", "title": title, "collapsed": False,
                       "gridPos": {"x": 0, "y": top, "w": 24, "h": 1}, "panels": []})
        for place, panel in enumerate(shown):
            at = {"x": place % 3 * 8, "y": top + 1 + place // 3 * 8, "w": 8, "h": 8}
            panels.append(_panel(panel, next(numbers), at))
        top += 1 + (len(shown) + 2) // 3 * 8
    return json.dumps({
        "title": "kubectl_runtime controllers", "uid": "kubectl-runtime", "tags": ["kubernetes", "controller"],
        "schemaVersion": 39, "editable": True, "refresh": "30s", "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": [
            {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus"},
            _variable("job", "Job", f"label_values({s.RECONCILES.name}, job)"),
            _variable("controller", "Controller", f"label_values({s.RECONCILES.name}{{{_JOB}}}, controller)")]},
        "panels": panels}, indent=1) + "\n"


def _sections() -> Iterator[tuple[str, list[Panel]]]:
    placed = {line.family for _, _, panels in PANELS for panel in panels for line in panel.lines}
    last = {id(families): title for title, families, _ in PANELS}
    for title, families, panels in PANELS:
        more = [Panel(family.help.rstrip("."), "short", [Shown(family)]) for family in families
                if family not in placed and last[id(families)] == title]
        yield title, [*panels, *more]


def _panel(panel: Panel, number: int, at: dict[str, int]) -> dict[str, Any]:
    lines = [line for shown in panel.lines for line in _lines(shown)]
    return {"id": number, "type": "timeseries", "title": panel.title, "datasource": _SOURCE, "gridPos": at,
            "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0}, "overrides": []},
            "options": {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi"}},
            "targets": [{"refId": chr(ord("A") + place), "datasource": _SOURCE, "expr": expression,
                         "legendFormat": legend} for place, (expression, legend) in enumerate(lines)]}


def _lines(shown: Shown) -> Iterator[tuple[str, str]]:
    """The expressions of a line, with their legends."""
    by = shown.by.split() or list(shown.family.labels)
    legend = " ".join([*(f"{{{{{label}}}}}" for label in by), *filter(None, [shown.text])])
    if shown.family.kind is not Kind.HISTOGRAM:
        expression = _summed(shown, shown.family, by)
        if shown.share_of is not None:
            expression += f" / {_summed(shown, shown.share_of, by)}"
        yield expression, legend
        return
    buckets = _summed(shown, shown.family, ["le", *by], "_bucket")
    for quantile in shown.quantiles:
        yield f"histogram_quantile({quantile}, {buckets})", f"{legend} p{quantile * 100:.0f}"


def _summed(shown: Shown, family: Family, by: list[str], suffix: str = "") -> str:
    labels = [_JOB, _CONTROLLER] if "controller" in family.labels else [_JOB]
    series = f"{family.name}{suffix}{{{','.join(labels)}}}"
    if family.kind is not Kind.GAUGE and shown.over:
        series = f"{shown.over}({series}[$__rate_interval])"
    return f"{shown.how} by ({', '.join(by)}) ({series}{' ' * bool(shown.where)}{shown.where})"


def _variable(name: str, label: str, query: str) -> dict[str, Any]:
    return {"name": name, "label": label, "type": "query", "datasource": _SOURCE, "definition": query,
            "query": {"query": query, "refId": name}, "refresh": 2, "includeAll": True, "multi": True, "allValue": ".*",
            "current": {"text": ["All"], "value": ["$__all"]}}
