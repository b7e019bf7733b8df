"""`labels` and `annotations` of what was read: a map like any other, but for changes, which say what to do instead."""
from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from typing import Any

import pytest

from kubectl_runtime import Api, Client, Patch, WatcherConfig, watch_store
from kubectl_runtime.core.meta.metav1 import ReadOnlyMap
from kubectl_runtime.objects import PartialView
from kubectl_runtime.resources import ConfigMap
from kubectl_runtime.testing import ApiServer

CHANGES: dict[str, Callable[[Any], object]] = {
    "item": lambda labels: labels.__setitem__("app", "db"), "del": lambda labels: labels.__delitem__("app"),
    "update": lambda labels: labels.update(app="db"), "|=": lambda labels: labels.__ior__({"app": "db"}),
    "pop": lambda labels: labels.pop("app"), "setdefault": lambda labels: labels.setdefault("tier", "back"),
    "popitem": lambda labels: labels.popitem(), "clear": lambda labels: labels.clear()}


@pytest.fixture
def server() -> Any:
    with ApiServer() as found:
        yield found


@pytest.fixture
def client(server: ApiServer) -> Any:
    with server.client() as found:
        yield found


def test_it_is_a_map_like_any_other() -> None:
    view = ReadOnlyMap({"app": "web"})
    assert view == {"app": "web"} == view == ReadOnlyMap({"app": "web"}) != {"app": "db"}
    assert (view["app"], view.get("tier"), list(view), len(view), "app" in view) == ("web", None, ["app"], 1, True)
    assert (view | {"tier": "back"}, {"tier": "back"} | view) == ({"app": "web", "tier": "back"},) * 2
    assert ({"app": "db"} | view, view | {"app": "db"}) == ({"app": "web"}, {"app": "db"})
    assert repr(view) == "{'app': 'web'}"


@pytest.mark.parametrize("take", [dict, copy.copy, copy.deepcopy, lambda view: pickle.loads(pickle.dumps(view)),
                                  lambda view: view.copy(), lambda view: {**view}])
def test_a_copy_is_a_dict_of_ones_own(take: Callable[[Any], dict[str, str]]) -> None:
    content = {"app": "web"}
    taken = take(ReadOnlyMap(content))
    taken["app"] = "db"
    assert (type(taken), content) == (dict, {"app": "web"})


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_change_is_refused_and_says_what_to_do(change: Callable[[Any], object]) -> None:
    content = {"app": "web"}
    with pytest.raises(TypeError, match=r"change obj\.metadata\.labels .* or change a copy, such as dict\(obj\.labels"):
        change(ReadOnlyMap(content))
    assert content == {"app": "web"}


def test_labels_that_were_read_can_be_written_wherever_a_map_can(server: ApiServer, client: Client) -> None:
    maps = Api.namespaced(client, ConfigMap, "default")
    labels = maps.create(ConfigMap(name="a", labels={"app": "web"})).labels
    assert maps.create({"metadata": {"name": "b", "labels": labels}}).labels == labels
    assert maps.create(ConfigMap(name="c", labels=labels, data=labels)).data == {"app": "web"}
    assert maps.patch("a", Patch.merge({"data": labels})).data == {"app": "web"}
    assert maps.apply({"metadata": {"name": "d", "labels": labels}}, field_manager="me").labels == labels


class Held(PartialView, frozen=True):
    pass


def test_a_view_that_all_readers_share_shows_its_labels_and_annotations_so(client: Client) -> None:
    api = Api.namespaced(client, ConfigMap, "default")
    api.create(ConfigMap(name="a", annotations={"note": "x"}))
    with watch_store(api, WatcherConfig(fields=Held)) as held:
        held.wait_until_ready(10)
        found: Any = held.get("a", "default")
    for part in (found.labels, found.annotations):
        with pytest.raises(TypeError, match="are read-only here"):
            part["app"] = "web"
