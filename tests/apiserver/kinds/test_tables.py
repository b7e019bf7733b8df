"""Columns and cells of tables, ages, and the JSONPath of printer columns."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubectl_runtime.apiserver.kinds.catalog import builtin_types
from kubectl_runtime.apiserver.kinds.columns import ready, restarts, status
from kubectl_runtime.apiserver.output.table import (
    JsonPathError,
    age,
    custom_columns,
    find,
    human_duration,
    table_cells,
)
from tests.apiserver.kinds.kindapi import Api, Maker

NOW = datetime(2024, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(("seconds", "text"), [
    (0, "0s"), (-1, "0s"), (-5, "<invalid>"), (119, "119s"), (120, "2m"), (303, "5m3s"), (10 * 60, "10m"),
    (179 * 60 + 59, "179m"), (3 * 3600, "3h"), (5 * 3600 + 180, "5h3m"), (8 * 3600 + 60, "8h"), (47 * 3600, "47h"),
    (52 * 3600, "2d4h"), (8 * 86400, "8d"), (700 * 86400, "700d"), (735 * 86400, "2y5d"), (3000 * 86400, "8y")])
def test_durations_are_abbreviated_as_kubectl_does(seconds: int, text: str) -> None:
    assert human_duration(seconds) == text


def test_ages_of_nothing_and_of_nonsense() -> None:
    assert age(None, NOW) == "<unknown>"
    assert age("soon", NOW) == "<invalid>"
    assert age("2023-12-31T23:59:00Z", NOW) == "60s"


@pytest.mark.parametrize("found", [found for found in builtin_types() if "list" in found.verbs],
                         ids=lambda found: f"{found.qualified}/{found.version}")
def test_every_kind_shows_an_object_that_has_nothing_but_a_name(found) -> None:  # type: ignore[no-untyped-def]
    obj = found.strategy.blank()
    obj.setdefault("metadata", {}).update(name="a", creationTimestamp="2023-12-31T23:00:00Z")
    cells = table_cells(found, {"kind": found.kind, "apiVersion": found.api_version, **obj}, NOW)
    assert "a" in cells


def test_the_clock_of_the_server_gives_the_age(api: Api, pod: Maker) -> None:
    made = api.made(pod())
    api.clock.advance(303)
    row = api.row(made)
    assert (row["Age"], row["Status"], row["Ready"], row["Node"]) == ("5m3s", "Pending", "0/1", "<none>")


def container(state: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"name": "m", "state": state, **more}


@pytest.mark.parametrize(("found", "text"), [
    ({"phase": "Running", "containerStatuses": [container({"running": {}}, ready=True)]}, "Running"),
    ({"phase": "Running", "containerStatuses": [container({"waiting": {"reason": "CrashLoopBackOff"}})]},
     "CrashLoopBackOff"),
    ({"phase": "Failed", "containerStatuses": [container({"terminated": {"exitCode": 3}})]}, "ExitCode:3"),
    ({"phase": "Failed", "containerStatuses": [container({"terminated": {"signal": 9}})]}, "Signal:9"),
    ({"phase": "Failed", "reason": "Evicted"}, "Evicted"),
    ({"phase": "Pending", "initContainerStatuses": [container({"running": {}})]}, "Init:0/1"),
    ({"phase": "Pending", "initContainerStatuses": [container({"terminated": {"exitCode": 1, "reason": "Error"}})]},
     "Init:Error"),
    ({"phase": "Succeeded", "containerStatuses": [container({"terminated": {"reason": "Completed"}})]}, "Completed"),
])
def test_the_status_of_a_pod_sums_up_its_containers(found: dict[str, Any], text: str) -> None:
    obj = {"metadata": {"name": "a"}, "spec": {"initContainers": [{"name": "m"}], "containers": [{"name": "m"}]},
           "status": found}
    assert status(obj, NOW) == text
    obj["metadata"]["deletionTimestamp"] = "2024-01-01T00:00:00Z"
    assert status(obj, NOW) == "Terminating"


def test_sidecars_count_and_restarts_name_the_last_one() -> None:
    ended = {"terminated": {"finishedAt": "2023-12-31T23:55:00Z"}}
    obj = {"metadata": {}, "spec": {"initContainers": [{"name": "side", "restartPolicy": "Always"}],
                                    "containers": [{"name": "m"}]},
           "status": {"initContainerStatuses": [{"name": "side", "ready": True, "state": {"running": {}}}],
                      "containerStatuses": [container({"running": {}}, ready=True, restartCount=2, lastState=ended)]}}
    assert ready(obj, NOW) == "2/2"
    assert restarts(obj, NOW) == "2 (5m ago)"


@pytest.mark.parametrize(("path", "expected"), [
    (".spec.x", [1]), ("{.spec.x}", [1]), (".spec['a.b']", [2]), (r".spec.a\.b", [2]), (".list[0].n", ["p"]),
    (".list[-1].n", ["q"]), (".list[*].n", ["p", "q"]), (".list[0:1].n", ["p"]), (".list[1:].n", ["q"]),
    ('.list[?(@.n=="q")].v', [20]), (".list[?(@.v>15)].n", ["q"]), (".list[?(@.w)].n", ["p"]), ("..n", ["p", "q"]),
    (".none.x", []), (".list[7]", []), ("$.spec.x", [1]), (".list.*.n", ["p", "q"]), (".list[0,1].v", [10, 20]),
    ("['spec']['x']", [1]),
])
def test_json_paths(path: str, expected: list[Any]) -> None:
    value = {"spec": {"x": 1, "a.b": 2}, "list": [{"n": "p", "v": 10, "w": 0}, {"n": "q", "v": 20}]}
    assert find(value, path) == expected


@pytest.mark.parametrize("path", [".a[", ".a[x]", ".a[?(@.b==oops)]", ".a[1:2:3:4]"])
def test_bad_json_paths_are_refused(path: str) -> None:
    with pytest.raises(JsonPathError):
        find({}, path)


@given(st.text(alphabet=".[]{}'\"?()@$*:,abx01=<>! \\", max_size=20))
def test_any_text_is_a_path_or_refused(path: str) -> None:
    with suppress(JsonPathError):
        find({"a": [{"b": 1}], "x": "y"}, path)


def test_a_value_of_the_wrong_type_is_no_cell_and_the_first_of_several_is_shown() -> None:
    columns = custom_columns([{"name": "N", "type": "integer", "jsonPath": ".spec.n"},
                              {"name": "S", "type": "string", "jsonPath": ".spec.list[*].a"},
                              {"name": "M", "type": "string", "jsonPath": ".spec.map"},
                              {"name": "D", "type": "date", "jsonPath": ".spec.since"}])
    obj = {"metadata": {"name": "a"}, "spec": {"n": "five", "list": [{"a": "x"}, {"a": "y"}], "map": {"k": 1},
                                               "since": "2023-12-31T23:59:00Z"}}
    assert [column.cell(obj, NOW) for column in columns] == ["a", None, "x", '{"k":1}', "60s"]
    assert [column.name for column in custom_columns([])] == ["Name", "Age"]
