"""What is easily given in the place of something else is refused at once, in words that say what was meant."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kubectl_runtime import (
    Api,
    Client,
    Controller,
    Manager,
    RequestError,
    WatcherConfig,
    elect,
    ensure_queryable,
    watch_store,
    watcher,
)
from kubectl_runtime.api import fetch
from kubectl_runtime.resources import ConfigMap


@pytest.mark.parametrize(("call", "said"), [
    (lambda client: watch_store(ConfigMap), "watch_store takes an Api, such as .*, not ConfigMap"),
    (lambda client: watcher(ConfigMap), "watcher takes an Api, such as .*, not ConfigMap"),
    (Controller, "Controller takes an Api"),
    (lambda client: elect(client, "my-job"), "election must be a LeaderElection, such as .*, not 'my-job'"),
    (lambda client: ensure_queryable(client, ConfigMap, "list"), r"takes a list of verbs: \('list',\), not 'list'"),
    (lambda client: Manager(client).add(Controller(Api.all(client, ConfigMap))),
     r"with its reconciler: manager\.add\(controller, reconcile\)"),
    (lambda client: WatcherConfig(page_size="5"), "page_size must be a whole number of at least 1 or None, not '5'"),
    (lambda client: Api.namespaced(client, ConfigMap, "a").create(ConfigMap(name="x", namespace="b")),
     "the body is in namespace 'b', but the request is for namespace 'a'"),
    (lambda client: fetch(client, "ConfigMap/a"), "fetch takes an OwnerReference, or a mapping .* not str")])
def test_it_is_refused_before_anything_is_sent(kube_apiserver: Any, kube_client: Client,
                                               call: Callable[[Client], object], said: str) -> None:
    with pytest.raises(RequestError, match=said):
        call(kube_client)
    assert len(kube_apiserver.requests) == 0
