"""The entry API: get or insert, change, commit, against the embedded server."""
from __future__ import annotations

import pytest

from kubectl_runtime import Api, ApiError, RequestError
from kubectl_runtime.resources import ConfigMap
from kubectl_runtime.testing import ApiServer


@pytest.fixture(scope="module")
def server():
    with ApiServer() as running:
        yield running


@pytest.fixture
def api(server):
    server.restart(fresh=True)
    with server.client() as client:
        yield Api.namespaced(client, ConfigMap, "default")


def writes(server):
    return [request.method for request in server.requests.select(resource="configmaps") if request.method != "GET"]


def test_a_missing_object_is_created_once_and_then_replaced(server, api):
    begin = len(writes(server))
    entry = api.entry("settings")
    assert not entry.exists
    with pytest.raises(RequestError, match="use or_insert"):
        _ = entry.object
    entry.or_insert(lambda: ConfigMap(data={"a": "1"}))
    entry.object.data["b"] = "2"
    assert entry.is_dirty
    assert entry.commit().data == {"a": "1", "b": "2"}
    assert entry.exists
    assert not entry.is_dirty
    entry.object.data["b"] = "3"
    assert entry.commit(field_manager="me").data == {"a": "1", "b": "3"}
    assert writes(server)[begin:] == ["POST", "PUT"]


def test_an_object_that_is_there_is_not_made_and_unchanged_is_not_sent(server, api):
    api.create(ConfigMap(name="settings", data={"a": "1"}))
    begin = len(writes(server))
    entry = api.entry("settings").or_insert(lambda: pytest.fail("it is there"))
    entry.commit()
    assert writes(server)[begin:] == []


def test_a_dry_run_leaves_everything_to_be_committed(server, api):
    entry = api.entry("settings").or_insert(lambda: ConfigMap(data={"a": "1"}))
    assert entry.commit(dry_run=True).data == {"a": "1"}
    assert entry.is_dirty
    assert api.get_opt("settings") is None
    entry.commit()
    assert api.get("settings").data == {"a": "1"}


def test_somebody_who_was_faster_is_a_conflict(api):
    entry, other = api.entry("settings"), api.entry("settings")
    for each in (entry, other):
        each.or_insert(lambda: ConfigMap(data={"a": "1"}))
    entry.commit()
    with pytest.raises(ApiError) as caught:
        other.commit()
    assert caught.value.is_already_exists
    other = api.entry("settings")
    entry.object.data["a"] = "2"
    entry.commit()
    other.object.data["a"] = "3"
    with pytest.raises(ApiError) as caught:
        other.commit()
    assert caught.value.is_conflict


@pytest.mark.parametrize("change", [
    lambda obj: setattr(obj.metadata, "name", "other"),
    lambda obj: setattr(obj.metadata, "namespace", "elsewhere"),
    lambda obj: setattr(obj.metadata, "generate_name", "many-")])
def test_an_entry_keeps_its_name_and_namespace(server, api, change):
    begin = len(writes(server))
    entry = api.entry("settings").or_insert(lambda: ConfigMap(data={"a": "1"}))
    change(entry.object)
    with pytest.raises(RequestError):
        entry.commit()
    assert writes(server)[begin:] == []
