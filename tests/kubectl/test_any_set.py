"""Whatever a set holds, in whatever order: each object is applied or told of, and deleting it leaves nothing."""
from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from kubectl_runtime.kubectl.apply import apply_manifests, delete_manifests, diff_manifests
from kubectl_runtime.kubectl.report import ManifestReport, ManifestsFailed
from tests.kubectl.conftest import World
from tests.kubectl.test_apply_manifests import SHOP, WIDGET, Widget, config_map
from tests.thoroughness import examples

UNKNOWN = {"apiVersion": "example.org/v1", "kind": "Gizmo", "metadata": {"name": "unknown"}}
INVALID = {**config_map("invalid"), "data": {"no/key": "v"}}
POOL: list[dict[str, Any]] = [SHOP, WIDGET, Widget.crd(), config_map("a"), config_map("b"), UNKNOWN, INVALID]


def name(content: Any) -> str:
    found: str = content["metadata"]["name"]
    return found


def told(verb: Any, world: World, source: Any, **options: Any) -> ManifestReport:
    try:
        report: ManifestReport = verb(world.client, source, progress=False, **options)
    except ManifestsFailed as error:
        return error.report
    return report


@given(st.lists(st.sampled_from(POOL), unique_by=name).flatmap(st.permutations))
@settings(max_examples=examples(25), deadline=None)
def test_each_object_is_applied_or_told_of(source: list[dict[str, Any]]) -> None:
    names = [name(content) for content in source]
    cannot = {"unknown", "invalid"} | ({"w"} if not {"shop", "widgets.example.com"} <= set(names) else set())
    world = World()
    with world.client:
        expected = told(diff_manifests, world, source, field_manager="m")
        report = told(apply_manifests, world, source, field_manager="m")
        assert [outcome.ref.name for outcome in report] == names
        assert {outcome.ref.name for outcome in report.failed} == cannot & set(names)
        assert {outcome.action for outcome in report} <= {"created", "failed"}
        for before, after in zip(expected, report, strict=True):
            assert before.action == after.action or not before.checked
        again = told(apply_manifests, world, source, field_manager="m")
        assert {outcome.action for outcome in again} <= {"unchanged", "failed", "updated"}
        assert {outcome.ref.name for outcome in again if outcome.action == "updated"} <= {"shop"}
        told(delete_manifests, world, source)
        left = told(diff_manifests, world, source, field_manager="m")
        assert {outcome.action for outcome in left} <= {"created", "failed"}
