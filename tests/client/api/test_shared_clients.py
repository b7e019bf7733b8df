"""One client and many threads: nothing is lost, doubled or mixed up, and connections are as many as threads call."""
from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kubectl_runtime import Api, Client, Config, RequestError
from kubectl_runtime.certificates.authority import Authority
from kubectl_runtime.certificates.bundles import server_context
from kubectl_runtime.resources import ConfigMap
from tests.client.wire_server import Peer, WireServer, config_map, status

THREADS, CALLS = 8, 40


def together(work: Callable[[int], None], threads: int = THREADS) -> None:
    """`work(number)` in so many threads, which begin at once; raises what the first of them raised."""
    begin, failures = threading.Barrier(threads), list[BaseException]()

    def run(number: int) -> None:
        try:
            begin.wait(10)
            work(number)
        except BaseException as error:
            failures.append(error)

    running = [threading.Thread(target=run, args=(number,)) for number in range(threads)]
    for thread in running:
        thread.start()
    for thread in running:
        thread.join(60)
    if failures:
        raise failures[0]


def echo(peer: Peer) -> None:
    """Answers with the object that was asked for, or that was sent."""
    while (request := peer.receive()) is not None:
        name = json.loads(request.body)["metadata"]["name"] if request.body else request.target.rpartition("/")[2]
        peer.answer(200, config_map(name))


@pytest.mark.parametrize("tls", [False, True], ids=["http", "https"])
def test_eight_threads_lose_nothing_and_open_no_more_connections_than_threads(tls: bool) -> None:
    authority = Authority() if tls else None
    context = None if authority is None else server_context(authority.server(("127.0.0.1",)), authority.pem)
    config: dict[str, Any] = {} if authority is None else {"ca_data": authority.pem}
    answered: Counter[str] = Counter()
    with WireServer(echo, tls=context) as server, server.client(**config) as client:
        api = Api.namespaced(client, ConfigMap, "default")

        def work(number: int) -> None:
            for call in range(CALLS):
                name = f"{number}-{call}"
                found = api.create(ConfigMap(name=name)) if call % 2 else api.get(name)
                assert found.name == name, "somebody else's answer"
                answered[found.name] += 1

        together(work)
        assert len({request.connection for request in server.requests}) <= THREADS
        assert len(server.requests) == THREADS * CALLS, "nothing was sent twice"
    assert answered == {f"{number}-{call}": 1 for number in range(THREADS) for call in range(CALLS)}


def test_a_token_that_expires_under_many_threads_is_renewed_once_for_all(tmp_path: Path) -> None:
    runs = tmp_path / "runs"
    plugin = tmp_path / "plugin"
    plugin.write_text(f"""#!/bin/sh
echo run >> {runs}
echo '{{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential",
  "status": {{"token": "'$(wc -l < {runs} | tr -d ' ')'"}}}}'
""")
    plugin.chmod(0o755)
    valid = "1"

    def serve(peer: Peer) -> None:
        while (request := peer.receive()) is not None:
            if request.header("Authorization") == f"Bearer {valid}":
                peer.answer(200, config_map())
            else:
                peer.answer(401, status(401, "Unauthorized"))

    with WireServer(serve) as server:
        config = Config.from_kubeconfig({
            "current-context": "c", "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
            "clusters": [{"name": "k", "cluster": {"server": server.url}}],
            "users": [{"name": "u", "user": {"exec": {"apiVersion": "client.authentication.k8s.io/v1",
                                                      "interactiveMode": "Never", "command": str(plugin)}}}]})
        with Client(config) as client:
            api = Api.namespaced(client, ConfigMap, "default")
            api.get("a")
            valid = "2"
            together(lambda _: [api.get("a") for _ in range(5)] and None)
    assert runs.read_text().split() == ["run", "run"]
    assert Counter(request.header("Authorization") for request in server.requests)["Bearer 2"] == THREADS * 5


@pytest.mark.parametrize("workers", [0, -10, True, "10", 2.5])
def test_a_number_of_workers_that_is_none_is_refused(workers: Any) -> None:
    with pytest.raises(RequestError, match="workers must be a whole number of at least 1"):
        Client(Config(cluster_url="http://127.0.0.1:1"), workers=workers)
