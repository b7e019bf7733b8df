"""`Threads`: those of one life of a controller: the library's own, and those that pull trigger sources and streams."""
from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from kubectl_runtime.core.interpreter.contexts import Thread
from kubectl_runtime.runtime.queue.runs import Run
from kubectl_runtime.runtime.triggers.shared_watches import Share


class Threads:
    """The threads of a controller, all daemons. Safe to use from any thread."""

    def __init__(self, name: str, workers: Sequence[threading.Thread], runs: Callable[[], list[Run]],
                 failed: Callable[[str, BaseException], None], shares: Callable[[], Sequence[Share]]) -> None:
        """`name` of the controller; `workers` are its own that others made. `runs` are those in progress, in whatever
        thread. `failed(what, error)` hears of what ends a thread; the controller must not go on half alive. `shares` of
        watches, whose threads are its own once nobody else uses them."""
        self._name = name
        self._workers = workers
        self._runs = runs
        self._failed = failed
        self._shares = shares
        self._others: list[threading.Thread] = []
        self.sources: list[threading.Thread] = []
        """In which user code may block for ever."""

    @property
    def own(self) -> list[threading.Thread]:
        """Those that end soon once they are to; those that have ended and those that were not started included."""
        return [*self._others, *self._watching(lambda share: share.ends), *self._workers]

    def add(self, what: str, body: Callable[[], object], *, source: bool = False) -> threading.Thread:
        """One more, which is not started."""
        def run() -> None:
            try:
                body()
            except BaseException as error:  # noqa: BLE001 - whatever it is, somebody has to hear of it
                self._failed(what, error)

        thread = Thread(target=run, name=f"{self._name} {what}", daemon=True)
        (self.sources if source else self._others).append(thread)
        return thread

    def start(self) -> None:
        """Start all. Raises what Python does when there can be no more."""
        self.watch(self._shares())
        for thread in (*self._others, *self._workers, *self.sources):
            thread.start()

    def watch(self, shares: Sequence[Share]) -> None:
        """Have a thread for each of these watches, unless another user has started it."""
        for share in shares:
            share.start()

    def include(self, thread: threading.Thread) -> bool:
        """Whether `thread` is one of them, that of a watch with other users included, or in a run: with a pool of the
        user's, that is in a thread of theirs."""
        mine = (*self.own, *self.sources, *self._watching(lambda _: True))
        return thread in mine or any(run.thread_id == thread.ident for run in self._runs())

    def still_running(self) -> list[tuple[str, int]]:
        """Which of the library's own have not ended: the reconciler of a key, or a thread by its name, and the id."""
        keys = {run.thread_id: f"the reconciler of {run.request.ref}" for run in self._runs()}
        mine = [(f"thread {thread.name!r}", thread.ident) for thread in self.own
                if thread.ident is not None and thread.is_alive() and thread.ident not in keys]
        return [*((what, number) for number, what in keys.items()), *mine]

    def _watching(self, wanted: Callable[[Share], bool]) -> list[threading.Thread]:
        return [share.thread for share in self._shares() if share.thread is not None and wanted(share)]
