"""`ApiServer`: an embedded Kubernetes API server for tests and demos.

    with ApiServer() as server:
        server.load("manifests.yaml")
        client = server.client()

It serves HTTP on loopback from `start` (or ``with``) to `stop`. The data live as long as the object: `restart` keeps them
unless asked otherwise, and `snapshot`/`restore` go back to a state.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from kubectl_runtime.core.clock import SYSTEM_CLOCK, Clock
from kubectl_runtime.testing.apiserver.controllers.catalog import build_controllers
from kubectl_runtime.testing.apiserver.core import DEFAULT_COMPACTION, Access, ApiCore
from kubectl_runtime.testing.apiserver.wire import HttpRequest, HttpResponse
from kubectl_runtime.testing.http.hooks import Hooks
from kubectl_runtime.testing.http.listener import Listener
from kubectl_runtime.testing.kubeconfig import kubeconfig
from kubectl_runtime.testing.loading import Manifests, load_objects

if TYPE_CHECKING:
    from kubectl_runtime.client import Client
    from kubectl_runtime.testing.transport import ApiTransport

DEFAULT_CONTROLLERS = ("garbage-collector", "namespace")


class Recorder:
    """The requests that reached the server, in order; bounded."""

    LIMIT = 100_000

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests: list[HttpRequest] = []

    def add(self, request: HttpRequest) -> None:
        """Note a request; the oldest tenth goes when there are too many."""
        with self._lock:
            if len(self._requests) >= self.LIMIT:
                del self._requests[:self.LIMIT // 10]
            self._requests.append(request)

    def all(self) -> list[HttpRequest]:
        """A copy of what was noted."""
        with self._lock:
            return list(self._requests)

    def clear(self) -> None:
        """Forget all."""
        with self._lock:
            self._requests.clear()


class ApiServer:
    """See the module. Safe to use from any thread; `start`, `stop` and `restart` by one at a time."""

    def __init__(self, *, port: int = 0, host: str = "127.0.0.1", clock: Clock = SYSTEM_CLOCK,
                 controllers: Iterable[str] = DEFAULT_CONTROLLERS, compaction_interval: float = DEFAULT_COMPACTION,
                 access: Access | None = None, hooks: Hooks | None = None, seed: int | None = None, record: bool = True) -> None:
        """Nothing is started or bound yet.

        `port` 0 takes a free one, which restarts keep. `controllers` are names of `controllers.catalog`; the default are
        those without which deletions do not end. `compaction_interval` is in seconds on the clock; history reaches back
        between one and two of it. `access` decides who may do what, None lets everybody do everything. `hooks` disturb the
        network. `seed` makes uids and generated names reproducible. `record` keeps requests for `requests`.
        """
        self._host, self._port, self._clock, self._hooks = host, port, clock, hooks
        self._new_core: Callable[[], ApiCore] = lambda: ApiCore(
            clock, compaction_interval=compaction_interval, controllers=build_controllers(controllers), access=access, seed=seed)
        self.core = self._new_core()
        self._recorder = Recorder() if record else None
        self._listener: Listener | None = None
        self._housekeeper: Housekeeper | None = None

    # --- life -----------------------------------------------------------------------------------------------------------

    def start(self) -> Self:
        """Bind and serve; raises OSError if the port is taken."""
        if self._listener is not None:
            raise RuntimeError("the API server is already running")
        listener = Listener(self.handle, clock=self._clock, host=self._host, port=self._port, hooks=self._hooks)
        self._port = listener.port
        self._housekeeper = Housekeeper(self.core, self._clock, f"apiserver-{listener.port}-housekeeper")
        self._listener = listener
        listener.start()
        return self

    def stop(self) -> None:
        """End all connections and threads; blocks until they are gone. Does nothing if it is not running."""
        listener, self._listener = self._listener, None
        if listener is None:
            return
        housekeeper, self._housekeeper = self._housekeeper, None
        stuck = listener.stop()
        if housekeeper is not None:
            housekeeper.stop()
        if stuck:
            raise RuntimeError(f"threads of the API server did not end: {', '.join(stuck)}")

    def restart(self, *, fresh: bool = False) -> None:
        """Stop and start on the same port, with the same data or, if `fresh`, as a new cluster (new uids, low versions)."""
        self.stop()
        if fresh:
            self.core = self._new_core()
        self.start()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *exc: object) -> None:
        self.stop()

    # --- how to reach it --------------------------------------------------------------------------------------------------

    @property
    def url(self) -> str:
        """``http://127.0.0.1:PORT``; raises RuntimeError before the first start."""
        if not self._port:
            raise RuntimeError("the API server has no address before it is started: use it as a context manager")
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"http://{host}:{self._port}"

    def client(self) -> Client:
        """A client of this library for it."""
        from kubectl_runtime import Client, Config

        return Client(Config(cluster_url=self.url))

    def write_kubeconfig(self, path: str | Path) -> Path:
        """Write a kubeconfig that kubectl and every client library can use; returns the path."""
        target = Path(path)
        target.write_text(kubeconfig(self.url), encoding="utf-8")
        return target

    def transport(self) -> ApiTransport:
        """A `requests` adapter over the same data without sockets and threads, for simulation."""
        from kubectl_runtime.testing.transport import ApiTransport

        return ApiTransport(self)

    # --- data -------------------------------------------------------------------------------------------------------------

    def load(self, manifests: Manifests) -> int:
        """Create or replace objects from YAML text, a path to a file or folder, or dicts; returns how many.

        Raises ValueError that names the object which the server refused.
        """
        return load_objects(self.core, manifests)

    def snapshot(self) -> Any:
        """The present state, for `restore`; cheap, objects are shared."""
        return self.core.dump()

    def restore(self, state: Any, *, rewind: bool = False) -> None:
        """Go back to a snapshot: watches end, resourceVersions from before have expired.

        The resourceVersion goes on, as after a careful restore of etcd; with `rewind` it goes back too, as after a careless one.
        """
        self.core.restore(state, rewind=rewind)

    @property
    def requests(self) -> list[HttpRequest]:
        """The requests so far, in order of their arrival, without those of controllers."""
        return self._recorder.all() if self._recorder else []

    def forget_requests(self) -> None:
        """Begin a new recording."""
        if self._recorder:
            self._recorder.clear()

    def drop_connections(self) -> None:
        """Break all connections, as a network does."""
        if self._listener is not None:
            self._listener.drop_connections()

    def handle(self, request: HttpRequest) -> HttpResponse:
        """Answer a request without HTTP."""
        if self._recorder is not None:
            self._recorder.add(request)
        return self.core.handle(request)


class Housekeeper:
    """The thread that ticks the core: compaction and controllers, when they are due."""

    def __init__(self, core: ApiCore, clock: Clock, name: str) -> None:
        self._core, self._clock = core, clock
        self._condition = threading.Condition()
        self._stopping = False
        core.on_due(self._wake)
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _wake(self) -> None:
        with self._condition:
            self._condition.notify_all()

    def stop(self) -> None:
        """End and join the thread."""
        with self._condition:
            self._stopping = True
            self._condition.notify_all()
        self._thread.join()

    def _run(self) -> None:
        while True:
            with self._condition:
                while not self._stopping and (left := self._left()) is not None and left > 0:
                    self._clock.wait(self._condition, left)
                while not self._stopping and self._left() is None:
                    self._clock.wait(self._condition, None)
                if self._stopping:
                    return
            self._core.tick()

    def _left(self) -> float | None:
        """Seconds until the core has work; None: until something is written."""
        due = self._core.next_wakeup()
        return None if due is None else due - self._clock.monotonic()
