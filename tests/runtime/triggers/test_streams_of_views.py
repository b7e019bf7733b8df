"""What plain streams can do with views of declared fields, and what they refuse."""
from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from kubectl_runtime import Api, Client, Config, RequestError, WatcherConfig, predicates, reflector, watch_store
from kubectl_runtime.core.objects.partial import FieldsForm
from kubectl_runtime.objects import PartialView
from kubectl_runtime.resources import ConfigMap
from kubectl_runtime.runtime.triggers.streams import modify, touched_objects
from kubectl_runtime.runtime.triggers.triggers import described_event
from kubectl_runtime.watch import Apply, Delete, InitApply, predicate_filter, store


class View(PartialView, frozen=True):
    data: dict[str, str] | None = None


def view(version: str, namespace: str = "ns", **metadata: Any) -> View:
    raw = json.dumps({"metadata": {"name": "a", "namespace": namespace, "uid": f"u-{namespace}",
                                   "resourceVersion": version, **metadata}}).encode()
    found: View = FieldsForm(ConfigMap.api_resource, View).decode_object(raw).view
    return found


def test_a_predicate_filters_events_and_objects() -> None:
    first, same, other = view("1", labels={"x": "y"}), view("2", labels={"x": "y"}), view("3")
    elsewhere = view("4", "else", labels={"x": "y"})
    events = [InitApply(first), Apply(same), Apply(other), Apply(elsewhere), Delete(other)]
    assert list(predicate_filter(events, predicates.labels)) == [events[0], *events[2:]]
    objects = list(touched_objects(events))[:4]
    assert list(predicate_filter(objects, predicates.labels)) == [first, other, elsewhere]


@pytest.mark.parametrize("stage", [lambda events: reflector(store(ConfigMap)[1], events),
                                   lambda events: modify(events, lambda obj: None)], ids=["reflector", "modify"])
def test_views_are_neither_stored_nor_modified_by_stages(stage: Callable[[Iterable[Any]], Iterable[Any]]) -> None:
    with pytest.raises(RequestError, match=r"<View ns/a> is a read-only view, .* stores views"):
        list(stage([Apply(view("1"))]))


@pytest.mark.parametrize("with_fields", [True, False])
def test_a_watch_of_views_takes_no_modify(with_fields: bool) -> None:
    with Client(Config(cluster_url="http://127.0.0.1:1")) as client:
        maps = Api.all(client, ConfigMap)
        api, config = (maps.with_fields(View), WatcherConfig()) if with_fields else (maps, WatcherConfig(fields=View))
        watched: Any = api
        with pytest.raises(RequestError, match=r"modify=.* views, which are read-only: let the view View declare"):
            watch_store(watched, config, modify=lambda obj: None)


def test_the_log_can_name_them() -> None:
    assert described_event(Apply(view("1"))) == "Apply of <View ns/a>"
