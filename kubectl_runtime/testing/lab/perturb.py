"""`perturb`: checks that a controller reaches the same end state despite crashes, stale reads and missed changes.

    report = perturb(build, story)
    assert report.ok, str(report)

The story is a function that changes objects. `perturb` plays it in a single-threaded simulation, first undisturbed,
then once for each point at which something can go wrong: the process ends between two writes, reads stale objects, or
misses changes. Each run must end with the same objects. The idea comes from Sieve (Sun et al., "Automatic Reliability
Testing for Cluster Management Controllers", OSDI 2022). A level-triggered controller passes; a controller that relies
on its memory, on counting events, or on an undisturbed order does not.

A report names the command that repeats one disturbed run: pytest with `--perturb-only`, or `kubectl-runtime perturb`.
If no command line can name the functions, the report contains the call `perturb(..., only="POINT", seed=SEED)` instead.
"""
from __future__ import annotations

import inspect
import os
import shlex
import sys
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import kubectl_runtime
from kubectl_runtime.core.base.errors import RequestError
from kubectl_runtime.core.base.guard import misfit, name_of
from kubectl_runtime.core.base.threads import Thread
from kubectl_runtime.runtime.lifecycle.lifecycle import stack_of
from kubectl_runtime.testing.asking import muted_logs
from kubectl_runtime.testing.lab.comparison import Ignored, Mask, difference, first_diverging, random_places
from kubectl_runtime.testing.lab.world import (
    ALL_FAULTS,
    MORE,
    MOST_REQUESTS,
    Build,
    Ended,
    Fault,
    Point,
    Story,
    World,
    points_of,
    seeded,
)


@dataclass(frozen=True)
class Options:
    """The options from pytest. `only`: the only point to play; `seed`: the seed of that run. `root`: the directory to
    which test names are relative; None outside of pytest. `tell`: a function that writes to the terminal, past pytest's
    capture."""

    only: Point | None = None
    seed: int | None = None
    root: Path | None = None
    tell: Callable[[str], object] | None = None


OPTIONS: ContextVar[Options] = ContextVar("perturbation_options", default=Options())  # noqa: B039 - frozen
"""The options that the pytest plugin sets for `perturb`."""


def command(build: Callable[..., Any], story: Callable[..., Any], point: Point, seed: int) -> str:
    """Return the command that repeats one run, for pytest or for a shell."""
    test, root = os.environ.get("PYTEST_CURRENT_TEST", ""), OPTIONS.get().root
    if test and root is not None:
        file, _, name = test.rpartition(" ")[0].partition("::")
        node = f"{os.path.relpath(root / file)}::{name}"
        return f"pytest {shlex.quote(node)} --perturb-only {point} --perturb-seed {seed}"
    places = [_place_of(build), _place_of(story)]
    if None in places:
        return f'perturb(..., only="{point}", seed={seed})'
    found = [place for place in places if place is not None]
    roots = {str(root): None for root, _ in found if root is not None}
    prefix = f"PYTHONPATH={shlex.quote(os.pathsep.join(roots))} " if roots else ""
    return f"{prefix}kubectl-runtime perturb {found[0][1]} {found[1][1]} --only {point} --seed {seed}"


def _place_of(function: Any) -> tuple[Path | None, str] | None:
    """Return the function's MODULE:NAME, and the folder to add to PYTHONPATH if a new process would not find the module
    otherwise. Returns None if the function cannot be named in this form."""
    module, name = sys.modules.get(getattr(function, "__module__", "")), getattr(function, "__qualname__", "")
    if module is None or not name.isidentifier() or getattr(module, name, None) is not function:
        return None
    file = getattr(module, "__file__", None)
    spec = getattr(module, "__spec__", None)
    called = module.__name__
    if called == "__main__":
        called = spec.name if spec is not None else Path(file).stem if file else ""
    if not file or not called:
        return None
    parts = called.split(".")
    top = Path(file).resolve().parents[len(parts) - (0 if Path(file).stem == "__init__" else 1)]
    if not all(part.isidentifier() for part in parts):
        return None
    return None if top == Path.cwd() or top in _everybodys() else top, f"{called}:{name}"


def _everybodys() -> list[Path]:
    """The folders that every new interpreter imports from: installed packages and this package's folder."""
    installed = [Path(entry).resolve() for entry in sys.path if "site-packages" in entry or "dist-packages" in entry]
    return [*installed, Path(kubectl_runtime.__file__).resolve().parents[1]]


_ANEW = "\r\x1b[K"


class Progress:
    """Shows the progress of `perturb`. `tell` writes to the terminal; if it is None, nothing is written."""

    def __init__(self, points: Sequence[Point], tell: Callable[[str], object] | None) -> None:
        self._total = Counter(point.fault for point in points)
        self._done = Counter(dict.fromkeys(self._total, 0))
        self._found = 0
        self._tell = tell

    def ran(self, point: Point, *, diverged: bool) -> None:
        """Count a finished run. `diverged`: whether its end differs from the undisturbed run's."""
        self._done[point.fault] += 1
        self._found += diverged
        self._show()

    def end(self) -> None:
        """End the line on the terminal."""
        if self._tell is not None and self._total:
            self._tell("\n")

    def _show(self) -> None:
        if self._tell is not None:
            parts = [f"{fault} {self._done[fault]}/{total}" for fault, total in self._total.items()]
            found = f"; {self._found} do not end as undisturbed" if self._found else ""
            self._tell(f"{_ANEW}perturbing: {', '.join(parts)}{found}")


def terminal() -> Callable[[str], object] | None:
    """Return a function that writes to the terminal: the pytest plugin's function if it is set, otherwise a function
    that writes to standard error. Returns None if standard error is not a terminal."""
    if (tell := OPTIONS.get().tell) is not None:
        return tell
    stream = sys.stderr
    if stream is None or not stream.isatty():
        return None

    def write(text: str) -> None:
        stream.write(text)
        stream.flush()

    return write


SHOWN = 20
"""The maximum number of lines that a report prints of one difference."""


@dataclass(frozen=True)
class Divergence:
    """A run that ended differently from the undisturbed run. `write`: the first diverging write; `difference`: lines
    that describe the differences between the end states; `command`: the command that repeats the run."""

    point: Point
    write: str
    difference: tuple[str, ...]
    seed: int
    command: str
    error: BaseException | None = field(default=None, repr=False)
    """What the story raised, if that ended the run."""

    @property
    def fault(self) -> Fault:
        """The kind of disturbance."""
        return self.point.fault

    def __str__(self) -> str:
        more = len(self.difference) - SHOWN
        lines = [*self.difference[:SHOWN], *([f"and {more} more"] if more > 0 else [])]
        return "\n".join([f"{self.point}: does not end as undisturbed", *(f"    {line}" for line in lines),
                          f"  first diverging write: {self.write}", f"  again: {self.command}"])


@dataclass(frozen=True)
class Report:
    """The result of `perturb`. `writes`: the number of the controllers' writes in the undisturbed run; `runs`: the
    number of disturbed runs. `str(report)` is a summary with a command for each run that diverged."""

    seed: int
    writes: int
    runs: int
    divergences: tuple[Divergence, ...]

    @property
    def ok(self) -> bool:
        """Whether every run ended like the undisturbed run."""
        return not self.divergences

    @property
    def first_divergence(self) -> Divergence | None:
        """The first run that did not end like the undisturbed run, or None."""
        return self.divergences[0] if self.divergences else None

    def __str__(self) -> str:
        if self.ok:
            return f"{self.runs} disturbed runs of {self.writes} writes end as the undisturbed one (seed {self.seed})"
        return "\n\n".join([f"{len(self.divergences)} of {self.runs} disturbed runs do not end as the undisturbed one "
                            f"(seed {self.seed})", *map(str, self.divergences)])


def perturb(build: Build, story: Story, *, faults: Collection[Fault] = ALL_FAULTS, seed: int = 0,
            only: Point | str | None = None, ignore: Sequence[str | Sequence[str]] = ()) -> Report:
    """Play `story` undisturbed and then once for each point of `faults`; return a report of the runs that end
    differently.

    `build(client)` makes all controllers, and is called again after each restart. It returns
    `Controller(...).bind(reconciler)` or a Manager (whose election, shards, runnables and servers are ignored).
    `story(client)` plays the user and everything else outside of the controllers: it creates, changes and deletes
    objects. The controllers react to each write of the story before the write returns, and they run while the story
    waits on the client's clock (`await_condition`). Before its first request the story can prepare what the controllers
    use outside of the cluster. The simulated server runs Kubernetes's own controllers and serves the CRDs of the
    watched classes.

    The comparison of the end states leaves out uids, versions and times, and values that differ at random between two
    undisturbed runs. It also leaves out all Events and Leases, and whatever depends on the number of earlier rollouts,
    such as a Deployment's revision, its ReplicaSets without replicas, and the IPs of Pods (see the module
    `comparison`). `seed` decides the order of all simulated events; a report's point and seed repeat a run. `only`:
    play only this point, and write the library's logs, which are muted otherwise; under pytest use `--perturb-only` and
    `--perturb-seed`. `ignore`: fields that are not compared in any object, such as `"status.checkedAt"`; if a key
    contains a dot, write `("metadata", "annotations", "example.com/at")`.

    Time is simulated. Code that sleeps in real time blocks the whole simulation; after 10 s its stack is printed on
    standard error.

    The call blocks, because everything runs in this thread. A controller with 10 writes takes a few seconds. Raises
    what the story or `build` raises in the undisturbed run, and RequestError for invalid arguments. Raises ValueError
    if two undisturbed runs end differently, or if the controllers write nothing.
    """
    check(build, story, faults)
    ignored = paths_of(ignore)
    options = OPTIONS.get()
    wanted = only if only is not None else options.only
    point = Point.parse(wanted) if isinstance(wanted, str) else wanted
    seed = options.seed if options.seed is not None else seed
    with muted_logs(), naming_what_blocks():
        plain, mask = undisturbed(build, story, seed, ignored)
    chosen = [point] if point is not None else [*points_of(faults, plain.writes, plain.story_writes, plain.pairs)]
    if point is not None:
        _check_there(point, plain)
        return _report(seed, plain, chosen, [_diverged(plain, mask, build, story, seed, point, ignored)])
    progress = Progress(chosen, terminal())
    found: list[Divergence | None] = []
    try:
        with muted_logs(), naming_what_blocks():
            for one in chosen:
                found.append(_diverged(plain, mask, build, story, seed, one, ignored))
                progress.ran(one, diverged=found[-1] is not None)
    finally:
        progress.end()
    return _report(seed, plain, chosen, found)


def check(build: Any, story: Any, faults: Collection[Any]) -> None:
    """Raise RequestError if `perturb` cannot use these arguments."""
    for what, function in (("build", build), ("story", story)):
        if not callable(function):
            raise RequestError(f"{what} must be a function that takes a client, not {function!r}")
        if inspect.iscoroutinefunction(function):
            raise RequestError(f"{what}, {name_of(function)}, is async: write def, not async def")
        if (wrong := misfit(function, ("client",))) is not None:
            raise RequestError(f"{what}, {name_of(function)}, {wrong}")
    wrong_faults = [fault for fault in faults if not isinstance(fault, Fault)]
    if wrong_faults:
        raise RequestError(f"faults must be among {', '.join(fault.name for fault in Fault)}, not {wrong_faults[0]!r}")


def _check_there(point: Point, plain: Ended) -> None:
    """Raise ValueError for a point that the story does not reach."""
    of_story = point.fault is Fault.MISSED
    count = plain.story_writes if of_story else plain.writes
    who = "the story makes" if of_story else "the controllers make"
    if point.number > count or (point.way == "missed" and point.number not in plain.pairs):
        raise ValueError(f"there is no {point} in this story: in the undisturbed run {who} {count} writes"
                         + (", and watches can miss a write only if another write follows it without a read in between"
                            if point.way == "missed" else ""))


def paths_of(ignore: Sequence[str | Sequence[str]]) -> Ignored:
    """Split ignored fields into their keys. Raises RequestError for invalid fields."""
    if isinstance(ignore, str) or not isinstance(ignore, Sequence):
        raise RequestError(f"ignore= takes a list of fields: ignore=[{ignore!r}]")
    found = tuple(tuple(path.split(".")) if isinstance(path, str) else tuple(path) for path in ignore)
    for path in found:
        if not path or not all(isinstance(key, str) and key for key in path):
            raise RequestError(f"ignore= takes fields such as 'status.checkedAt', not {path!r}")
    return found


BLOCKED = 10.0
"""Seconds of real time without progress after which the stack of the blocking code is printed."""


@contextmanager
def naming_what_blocks(seconds: float = BLOCKED) -> Iterator[None]:
    """If this thread makes no progress for `seconds` inside the block, print its stack once on standard error, since a
    simulation must not wait in real time."""
    ended, thread = threading.Event(), threading.get_ident()

    def look() -> None:
        last: object = None
        while not ended.wait(seconds):
            frame = sys._current_frames().get(thread)
            place = None if frame is None else (id(frame), frame.f_lasti)
            del frame
            if place == last and sys.stderr is not None:
                print(f"nothing has moved for {seconds:g} s of real time: time in a simulation passes by the client's "
                      f"clock and Action.requeue alone, and this waits for the real one:\n{stack_of(thread)}",
                      file=sys.stderr, flush=True)
                return
            last = place

    watcher = Thread(target=look, name="what blocks a simulation", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()


def undisturbed(build: Build, story: Story, seed: int, ignored: Ignored = ()) -> tuple[Ended, Mask]:
    """Return the undisturbed run, and the fields that differ at random. Raises like `perturb`."""
    # The second run draws other random numbers, so the end states differ only in values that are random.
    runs = [_play(build, story, seed, None, MOST_REQUESTS, ignored, randoms=seed + number) for number in range(2)]
    for run in runs:
        if run.error is not None:
            raise run.error
        if run.trouble:
            raise ValueError(f"even undisturbed, {run.trouble}")
    if runs[0].writes == 0:
        raise ValueError("the controllers write nothing in this story, so there is nothing to disturb: does the story "
                         "create objects that they watch?")
    return runs[0], random_places(runs[0].outcome, runs[1].outcome)


def _play(build: Build, story: Story, seed: int, point: Point | None, limit: int, ignored: Ignored = (),
          randoms: int | None = None) -> Ended:
    put_back = seeded(seed if randoms is None else randoms)
    try:
        return World(build, story, seed=seed, point=point, limit=limit, ignored=ignored).run()
    finally:
        put_back()


def _diverged(plain: Ended, mask: Mask, build: Build, story: Story, seed: int, point: Point,
              ignored: Ignored = ()) -> Divergence | None:
    run = _play(build, story, seed, point, max(MOST_REQUESTS // 10, plain.requests * MORE), ignored)
    if not run.applies:
        return None
    found = difference(plain.outcome, run.outcome, mask)
    lines = [*([run.trouble] if run.trouble else []), *(line for lines in found.values() for line in lines)]
    if not lines:
        return None
    write = first_diverging(plain.outcome, run.outcome, set(found), mask)
    return Divergence(point, write, tuple(lines), seed, command(build, story, point, seed), run.error)


def _report(seed: int, plain: Ended, points: Sequence[Point], found: Sequence[Divergence | None]) -> Report:
    return Report(seed, plain.writes, len(points), tuple(one for one in found if one is not None))
