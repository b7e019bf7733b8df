"""`Simulation`: whole controllers in one thread, on simulated time, in an order that a seed decides.

    actors                   one `step` of an actor that has something to do, chosen by the seed
    each watch               reads a page or what has arrived, updates its store, triggers
    the dispatcher           hands due keys to workers
    each worker              begins a run / runs user code / ends the run and takes the next: three pieces, and other
                             actors between them
    each recorder            sends one request about an Event
    each controller's reads  read one object whose value has to be compared
    each server              does what its controllers have to do by the clock
    whatever a test adds     a function, called as often as the seed likes: the outside world that creates, breaks and
                             deletes

When nobody has anything to do, time moves to the next moment at which somebody has, 10 s at most. A run of the same
program with the same seed is the same run; so a test needs no real time, no threads and no luck, and a failure comes
back. As work takes no time here, what keeps itself busy (two controllers that take a field from each other) would never
let time move: it ends as an AssertionError that names the keys.

The clients have to be on `simulation.clock`, and to reach a server without threads or sockets:

    with Simulation(seed=1) as simulation:
        server = simulation.serve(controllers=["*"])
        client = simulation.client(server)

does so, and so does what a test mounts itself: `ApiServer.transport()`, or a script.

`SimulatedServers`: the embedded servers of a simulation, and clients of them without sockets and threads.

`SimulatedController`: a controller that a `Simulation` steps.
"""
from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar

from kubectl_runtime.core.base.clock import Clock, Duration, seconds
from kubectl_runtime.core.meta.gvk import ObjectRef
from kubectl_runtime.runtime.controller.assembly import Assembly
from kubectl_runtime.runtime.controller.controller import Controller
from kubectl_runtime.runtime.controller.plan import functions_of
from kubectl_runtime.runtime.events.recorder import Recorder
from kubectl_runtime.runtime.reconcile.reconciler import ErrorPolicy, ReconcileFunction, Reconciler
from kubectl_runtime.runtime.store.store import Store
from kubectl_runtime.runtime.triggers.shared_watches import Watch
from kubectl_runtime.testing.asking import Probe
from kubectl_runtime.testing.clock import EPOCH, SimClock, SimExecutor

if TYPE_CHECKING:
    from kubectl_runtime.apiserver.server import ApiServer
    from kubectl_runtime.client.api.client import Client

K = TypeVar("K")


class SimulatedController(Generic[K]):
    """A controller in a simulation: what `Running` is to threads. Its watches move only by `Simulation.step`."""

    def __init__(self, assembly: Assembly[K], executor: SimExecutor) -> None:
        self.assembly = assembly
        self.executor = executor
        self.bugs: list[BaseException] = []
        """Defects of the library that came up; `Simulation.step` raises the first."""
        self._recorder_closed = False

    @property
    def store(self) -> Store[K]:
        """The objects that the controller reconciles, as its watch knows them."""
        return self.assembly.store

    @property
    def is_ready(self) -> bool:
        """Whether all stores are complete and reconciling has begun."""
        return self.assembly.gate.is_open

    @property
    def running(self) -> list[ObjectRef]:
        """The objects that are being reconciled at this moment."""
        return [run.request.ref for run in self.assembly.runner.running()]

    @property
    def scheduled(self) -> int:
        """How many keys wait to be reconciled, now or later."""
        return self.assembly.runner.depth()

    def trigger(self, item: Any) -> None:
        """Reconcile an object or ObjectRef soon. Raises RequestError when it is of another kind."""
        self.assembly.trigger(item)

    def trigger_all(self) -> None:
        """Reconcile every stored object soon."""
        self.assembly.inbox.trigger_everything()

    def begin_stop(self, grace: Duration = 30) -> None:
        """Begin to stop, with `grace` seconds for runs in progress; step on to see it end."""
        self.assembly.shutdown.begin("stop() was called", seconds(grace))

    def close_recorder(self) -> None:
        """Close the recorder of events, when a stop was asked for and all runs have ended."""
        shutdown = self.assembly.shutdown
        if shutdown.give_up_at is None or self._recorder_closed or len(self.executor):
            return
        self._recorder_closed = True
        if self.assembly.flight is not None:
            self.assembly.flight.close(shutdown.draining.reason or "stopped", 0)
        self.assembly.recorder.close(max(0.0, shutdown.give_up_at - self.assembly.plan.clock.monotonic()))

    @property
    def has_ended(self) -> bool:
        """Whether nothing of it would run any more."""
        return not len(self.executor) and all(share.has_ended for share in self.assembly.shares)


class SimulatedServers:
    """The servers and clients of a simulation. For the thread of the simulation."""

    def __init__(self, clock: Clock, seed: int) -> None:
        self._clock, self._seed = clock, seed
        self._servers: list[ApiServer] = []
        self._clients: list[Client] = []

    def serve(self, arguments: dict[str, Any]) -> ApiServer:
        """A new server on the simulation's clock, with its seed unless another is given."""
        from kubectl_runtime.apiserver.server import ApiServer  # a simulation can do without

        server = ApiServer(clock=self._clock, **{"seed": self._seed, **arguments})
        self._servers.append(server)
        return server

    def client(self, server: ApiServer, user: str | None, timeout: Duration) -> Client:
        """A client on the simulation's clock, which `close` closes."""
        import requests

        from kubectl_runtime.client.api.client import Client
        from kubectl_runtime.client.config.config import Config

        session = requests.Session()
        session.mount("http://", server.transport())
        config = Config(cluster_url="http://127.0.0.1", token=server.credentials(user).token or None, timeout=timeout)
        client = Client(config, session=session, clock=self._clock)
        self._clients.append(client)
        return client

    def close(self) -> None:
        """Close the clients."""
        while self._clients:
            self._clients.pop().close()

    def work(self, server: ApiServer) -> bool:
        """Do what is due; always True."""
        server.core.tick()
        return True

    def with_work(self) -> list[ApiServer]:
        """The servers whose controllers have something to do now."""
        now = self._clock.monotonic()
        return [server for server in self._servers if (due := server.core.next_wakeup()) is not None and due <= now]

    def times(self) -> list[float]:
        """When they have something to do, on the monotonic clock."""
        return [due for server in self._servers if (due := server.core.next_wakeup()) is not None]


T = TypeVar("T")

JUMP = 10.0
"""Seconds that time moves at most at once: watches that have nothing are then asked again, since a stall or a timeout
of a simulated connection happens on the clock without telling anybody."""

PATIENCE = 3
"""How often in a row everybody has to find nothing to do until time moves."""

RESTLESS, FOR_EACH_OBJECT = 100_000, 100
"""So many steps without a rest, and so many more for each object in the stores, are not work but a loop."""

SAMPLE = 1000
"""Steps that are looked at to tell whose loop it is."""


class NotDone(AssertionError):
    """Raised by `Simulation.run_until` when its time is up."""


class Simulation:
    """Runs whole controllers, and what a test adds, in one thread and in an order that its seed decides, on a clock
    that jumps to what comes next. For one thread."""

    def __init__(self, seed: int = 0, *, jump: Duration = JUMP, record: bool = True, start: datetime = EPOCH) -> None:
        """`jump`: how far time moves at most at once, in seconds. `record`: whether controllers that have a flight
        recorder write its file. `start`: the date on which time begins."""
        self.seed = seed
        self._jump = seconds(jump)
        self._record = record
        self.random = random.Random(seed)
        self.clock = SimClock(start=start, self_advancing=True)
        self._controllers: list[SimulatedController[Any]] = []
        self._resume: dict[Watch[Any], float] = {}
        self._recorders: list[Recorder] = []
        self._world: list[Callable[[], object]] = []
        self._servers = SimulatedServers(self.clock, seed)

    def serve(self, **arguments: Any) -> ApiServer:
        """A new embedded server on this clock, with this seed; `arguments` are those of `ApiServer`. It is not
        started: clients reach it by `client`."""
        return self._servers.serve(arguments)

    def client(self, server: ApiServer, user: str | None = None, *, timeout: Duration = 60) -> Client:
        """A client of it, without sockets and threads, as an administrator or as `user`; `close` closes it. Raises
        ValueError as `ApiServer.credentials`."""
        return self._servers.client(server, user, timeout)

    def close(self) -> None:
        """Close the clients that it made."""
        self._servers.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self, controller: Controller[K], reconciler: Reconciler[K] | ReconcileFunction[K], *,
              error_policy: ErrorPolicy[K] | None = None, context: Any = None) -> SimulatedController[K]:
        """Start a controller in this simulation; arguments as for `Controller.start`. What follows happens in `step`.
        Trigger sources that would need a thread are not pulled."""
        reconcile, policy = functions_of(reconciler, error_policy)
        executor = SimExecutor(self.random)
        bugs: list[BaseException] = []
        plan = replace(controller.plan(), clock=self.clock)
        if not self._record:
            plan = plan.without_record()
        assembly: Assembly[K] = Assembly(plan, reconcile, policy, context, executor=executor,
                                         on_bug=lambda _what, error: bugs.append(error), rng=self.random)
        simulated = SimulatedController(assembly, executor)
        simulated.bugs = bugs
        if assembly.flight is not None:
            assembly.flight.open()
        assembly.on_shares = lambda shares: self._resume.update({share.watch: 0.0 for share in shares})
        assembly.subscribe()
        self.add_recorder(assembly.recorder)
        self._controllers.append(simulated)
        self._resume.update(dict.fromkeys(assembly.watches.values(), 0.0))
        return simulated

    def kill(self) -> None:
        """Every controller is gone, as when its process is killed: nothing of it is stepped any more, and what it had
        begun stays as it is. What a test added goes on."""
        for controller in self._controllers:
            if controller.assembly.flight is not None:
                controller.assembly.flight.abandon()
        self._controllers, self._resume, self._recorders = [], {}, []

    def add(self, actor: Callable[[], object]) -> None:
        """Let `step` call `actor` now and then, as something that can always happen."""
        self._world.append(actor)

    def add_recorder(self, recorder: Recorder) -> None:
        """Have `step` send what a test's own `recorder` has to tell, on a client of this clock. `ctx.record` needs no
        such thing."""
        self._recorders.append(recorder)

    def step(self) -> bool:
        """One step of one actor; whether it did something.

        Raises what a test's actor or a defect of the library raises.
        """
        now = self.clock.monotonic()
        actors: list[Callable[[], object]] = [*self._world]
        for controller in self._controllers:
            for watch in controller.assembly.watches.values():
                self._resume.setdefault(watch, 0.0)  # runs begin watches, by what they read
            if controller.assembly.reads.due() == 0:
                actors.append(controller.assembly.reads.step)
            actors += [controller.executor.step] * min(3, len(controller.executor))
            actors.append(partial(self._dispatch, controller))
        actors += [partial(self._watch, watch)
                   for watch, resume in self._resume.items() if resume <= now and not watch.stopped]
        actors += [partial(self._tell, recorder) for recorder in self._recorders if recorder.due() == 0]
        actors += [partial(self._servers.work, server) for server in self._servers.with_work()]
        did = bool(self.random.choice(actors)()) if actors else False
        for controller in self._controllers:
            if controller.bugs:
                raise controller.bugs[0]
            controller.close_recorder()
            if controller.assembly.flight is not None:
                controller.assembly.flight.pump()
        return did

    def run(self, steps: int) -> None:
        """Make so many steps, at the present time."""
        for _ in range(steps):
            self.step()

    def settle(self, limit: Duration = 0) -> None:
        """Step, without the actors that a test added, until nothing is left to do within `limit` seconds of simulated
        time.

        Raises AssertionError, which names the seed and the keys, when this never comes to rest.
        """
        world, self._world = self._world, []
        try:
            end = self.clock.monotonic() + seconds(limit)
            while True:
                self._exhaust()
                now = self.clock.monotonic()
                if now >= end:
                    break
                self.clock.advance(min(self._next_time(), end) - now)
        finally:
            self._world = world

    def run_until(self, done: Callable[[], bool], limit: Duration = 3600) -> None:
        """Settle bit by bit until `done()`.

        Raises AssertionError, which names the seed, after `limit` simulated seconds, and as `settle`.
        """
        end = self.clock.monotonic() + seconds(limit)
        while True:
            self._exhaust(done)
            if done():
                return
            now = self.clock.monotonic()
            if now >= end:
                raise NotDone(f"not done within {seconds(limit):g} simulated seconds (seed {self.seed})")
            self.clock.advance(min(self._next_time(), end) - now)

    def eventually(self, ask: Callable[[], T], until: Callable[[T], object] | None = None,
                   timeout: Duration = 3600) -> T:
        """Call `ask` again and again while the simulation runs, and return its result as soon as `until` accepts it, as
        `kubectl_runtime.testing.eventually` does. `timeout` is in simulated seconds. Raises AssertionError, which says
        what was last seen, and the seed."""
        probe = Probe(ask, until)
        try:
            self.run_until(probe.asked, timeout)
        except NotDone as error:
            failure = probe.failure(str(error).removeprefix("not done "))
        else:
            return probe.value
        raise failure

    def _exhaust(self, done: Callable[[], bool] = lambda: False) -> None:
        """Step at the present time until everybody has had nothing to do several times over."""
        idle = worked = 0
        while not done():
            if self.step() or self._busy():
                idle, worked = 0, worked + 1
                if worked % RESTLESS == 0:
                    self._check_for_a_loop(worked)
                continue
            idle += 1
            if idle > PATIENCE * (2 * len(self._controllers) + len(self._resume) + len(self._world)):
                # The seed may have passed somebody over: ask everybody once more before time moves.
                now = self.clock.monotonic()
                late = [self._watch(watch) for watch, at in self._resume.items() if at <= now and not watch.stopped]
                late += [self._dispatch(controller) for controller in self._controllers]
                late += [controller.assembly.reads.step() for controller in self._controllers]
                late += [self._tell(recorder) for recorder in self._recorders]
                late += [self._servers.work(server) for server in self._servers.with_work()]
                if not any(late):
                    return

    def _check_for_a_loop(self, worked: int) -> None:
        stored = sum(len(watch.stored.records) for watch in self._resume)
        if worked <= RESTLESS + FOR_EACH_OBJECT * stored:
            return
        ran: Counter[str] = Counter()
        for _ in range(SAMPLE):
            self.step()
            ran.update(f"{controller.assembly.plan.name}: {ref}" for controller in self._controllers
                       for ref in controller.running)
        keys = ", ".join(key for key, _ in ran.most_common(3)) or "no key: a watch has something to read each time"
        raise AssertionError(f"the simulation does not come to rest: {worked} steps without a pause, at "
                             f"{self.clock.monotonic():g} s (seed {self.seed}). What runs leads to further runs; most "
                             f"busy: {keys}")

    def _busy(self) -> bool:
        return any(len(controller.executor) for controller in self._controllers)

    def _next_time(self) -> float:
        """When somebody has something to do again, but soon enough to see what a transport does on its own time."""
        now = self.clock.monotonic()
        times = [now + self._jump, *(at for watch, at in self._resume.items() if at > now and not watch.stopped)]
        times += [now + delay for recorder in self._recorders if (delay := recorder.due()) is not None]
        times += self._servers.times()
        for controller in self._controllers:
            if not controller.assembly.shutdown.draining.is_set():
                delays = (controller.assembly.runner.step(), controller.assembly.housekeeping(),
                          controller.assembly.reads.due())
                times += [now + delay for delay in delays if delay is not None]
        return min(times)

    def _dispatch(self, controller: SimulatedController[Any]) -> bool:
        before = len(controller.executor)
        controller.assembly.runner.step()
        return len(controller.executor) > before

    def _tell(self, recorder: Recorder) -> bool:
        if recorder.due() != 0:
            return False
        recorder.step()
        return True

    def _watch(self, watch: Watch[Any]) -> bool:
        wait = watch.step()
        self._resume[watch] = self.clock.monotonic() + (wait or 0.0)
        return wait == 0
