"""Runs vectors against embedded servers, several at a time."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from kubectl_runtime.testing import ApiServer
from tests.tools.recorder.replay import Vector, check
from tests.tools.recorder.wire import Server

TOKENS = 'admin-token,admin,1,"system:masters"\nalice-token,alice,2,"devs"\n'
MANAGER_CONTROLLERS = ("garbage-collector", "namespace", "deployment", "replicaset", "serviceaccount",
                       "root-ca-certificate-publisher", "statefulset", "daemonset", "job", "cronjob", "node-lifecycle",
                       "persistentvolumeclaim-protection", "persistentvolume-protection", "persistentvolume-binder",
                       "disruption", "resourcequota", "endpoint", "endpointslice")
AT_A_TIME = 8  # most of a vector's time is waiting: for a watch to be quiet, for a timeout


class GoldenServers:
    """Servers as the recordings were made: with users and rights, with the controllers of a manager, and with a feature
    gate."""

    def __init__(self, folder: Path) -> None:
        tokens = folder / "tokens.csv"
        tokens.write_text(TOKENS, encoding="utf-8")
        self._plain = ApiServer(tokens=tokens, authorization_mode="RBAC", controllers=(), compaction_interval=4,
                                warn_unobeyed=False)
        self._managed = ApiServer(tokens=tokens, authorization_mode="RBAC", controllers=MANAGER_CONTROLLERS,
                                  warn_unobeyed=False)
        self._sharded = ApiServer(tokens=tokens, authorization_mode="RBAC", controllers=(), warn_unobeyed=False,
                                  feature_gates={"ShardedListAndWatch": True})
        self._pool = ThreadPoolExecutor(AT_A_TIME, thread_name_prefix="golden")
        self._results: dict[str, Future[list[str]]] = {}

    def __enter__(self) -> GoldenServers:
        self._plain.start()
        self._managed.start()
        self._sharded.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._pool.shutdown(cancel_futures=True)
        self._plain.stop()
        self._managed.stop()
        self._sharded.stop()

    def server(self, vector: Vector) -> Server:
        """The server that has what a vector needs."""
        needs = vector.get("needs", ())
        gated = self._sharded if "sharding" in needs else self._plain
        server = self._managed if "controller-manager" in needs else gated
        return Server(server.url, "admin-token", "alice-token")

    def submit(self, label: str, vector: Vector) -> None:
        """Run a vector in the background."""
        ident = f"golden{len(self._results):03}"  # always the same, since a Service's address depends on its namespace
        self._results[label] = self._pool.submit(check, vector, self.server(vector), ident)

    def differences(self, label: str) -> list[str]:
        """What was different; waits for it."""
        return self._results[label].result(timeout=100)
