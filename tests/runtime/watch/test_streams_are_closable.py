"""Every stream is a generator that can be closed, as `contextlib.closing` does."""
from __future__ import annotations

import gc
import weakref
from collections.abc import Generator
from contextlib import closing
from typing import Any

import pytest

from kubectl_runtime.client.api.api import Api
from kubectl_runtime.core.scope import StopToken
from kubectl_runtime.runtime.store.reflector import StoreWriter, reflector
from kubectl_runtime.runtime.triggers import predicates
from kubectl_runtime.runtime.triggers import streams as stages
from kubectl_runtime.runtime.watch.watcher import metadata_watcher, watch_object, watcher
from tests.runtime.scripted_cluster import Cluster, Parent


def streams(api: Api[Any], stop: StopToken) -> list[Generator[Any]]:
    """One of each kind."""
    writer = StoreWriter(Parent.api_resource, Parent.from_record)

    def events() -> Generator[Any]:
        return watcher(api, stop=stop)

    one = Api.namespaced(api.client, Parent, "default")
    return [events(), watcher(api, stop=stop, backoff=None), metadata_watcher(api, stop=stop),
            watch_object(one, "a", stop=stop), reflector(writer, events()), stages.applied_objects(events()),
            stages.touched_objects(events()), stages.modify(events(), lambda obj: None),
            stages.predicate_filter(events(), predicates.generation), stages.trigger_self(events(), Parent),
            stages.trigger_owners(events(), Parent), stages.trigger_others(events(), lambda obj: obj.ref)]


@pytest.mark.parametrize("number", range(12))
def test_a_stream_can_be_closed_before_and_after_its_first_item(number: int) -> None:
    for pull in (False, True):
        cluster, stop = Cluster(), StopToken()
        cluster.put(Parent, "a", owner="b")
        with closing(streams(cluster.api(Parent), stop)[number]) as stream:
            assert isinstance(stream, Generator)
            if pull:
                next(stream)
        assert next(stream, None) is None


@pytest.mark.parametrize("number", range(12))
def test_a_stream_that_its_loop_has_left_is_closed_at_once_and_not_by_a_later_collection(number: int) -> None:
    cluster, stop = Cluster(), StopToken()
    cluster.put(Parent, "a", owner="b")
    stream = streams(cluster.api(Parent), stop)[number]
    next(stream)
    left = weakref.ref(stream)
    gc.disable()
    try:
        del stream
        assert left() is None
    finally:
        gc.enable()
