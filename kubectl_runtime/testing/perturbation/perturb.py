"""`perturb`: whether a controller brings about the same, whatever happens to it on the way.

    report = perturb(build, story)
    assert report.ok, str(report)

It plays the story in a simulation of one thread, undisturbed, and then once for each point at which something can go
wrong (`points`): its process ends between two of its writes, what it reads is old, changes pass it by. Each run has to
end in the same objects. The idea is that of Sieve (Sun et al., "Automatic Reliability Testing for Cluster Management
Controllers", OSDI 2022): a controller that brings the world from any state to the wanted one passes, and one that
remembers, counts, or does things in an order that only holds when nothing happens does not.
"""
from __future__ import annotations

import inspect
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

from kubectl_runtime.core.base.errors import RequestError
from kubectl_runtime.runtime.usercode import misfit, name_of
from kubectl_runtime.testing.muted import muted_logs
from kubectl_runtime.testing.perturbation.built import seeded
from kubectl_runtime.testing.perturbation.comparison import Mask, difference, first_diverging, random_places
from kubectl_runtime.testing.perturbation.console import Progress, terminal
from kubectl_runtime.testing.perturbation.points import ALL_FAULTS, Fault, Point, points_of
from kubectl_runtime.testing.perturbation.repeat import OPTIONS, command
from kubectl_runtime.testing.perturbation.world import (
    MORE,
    MOST_REQUESTS,
    Build,
    Ended,
    Story,
    World,
)

SHOWN = 20
"""Lines of a difference that a report shows."""


@dataclass(frozen=True)
class Divergence:
    """A run that did not end as the undisturbed one. `write`: the first that differs, in words; `difference`: in what
    the ends do, a line each; `command` repeats it."""

    point: Point
    write: str
    difference: tuple[str, ...]
    seed: int
    command: str
    error: BaseException | None = field(default=None, repr=False)
    """What the story raised, if that is what ended it."""

    @property
    def fault(self) -> Fault:
        """The kind of the disturbance."""
        return self.point.fault

    def __str__(self) -> str:
        more = len(self.difference) - SHOWN
        lines = [*self.difference[:SHOWN], *([f"and {more} more"] if more > 0 else [])]
        return "\n".join([f"{self.point}: does not end as undisturbed", *(f"    {line}" for line in lines),
                          f"  first diverging write: {self.write}", f"  again: {self.command}"])


@dataclass(frozen=True)
class Report:
    """What came out of `perturb`. `writes`: of the controllers in the undisturbed run; `runs`: with a disturbance. As
    text, a summary with a command for each run that diverged."""

    seed: int
    writes: int
    runs: int
    divergences: tuple[Divergence, ...]

    @property
    def ok(self) -> bool:
        """Whether every run ended as the undisturbed one."""
        return not self.divergences

    @property
    def first_divergence(self) -> Divergence | None:
        """The first run that did not end as the undisturbed one; None when all did."""
        return self.divergences[0] if self.divergences else None

    def __str__(self) -> str:
        if self.ok:
            return f"{self.runs} disturbed runs of {self.writes} writes end as the undisturbed one (seed {self.seed})"
        return "\n\n".join([f"{len(self.divergences)} of {self.runs} disturbed runs do not end as the undisturbed one "
                            f"(seed {self.seed})", *map(str, self.divergences)])


def perturb(build: Build, story: Story, *, faults: Collection[Fault] = ALL_FAULTS, seed: int = 0,
            only: Point | str | None = None) -> Report:
    """Play `story` undisturbed, and once for each point of `faults`; what did not end as it should.

    `build(client)` makes all controllers, each time again, and returns `Controller(...).bind(reconciler)` or
    a Manager (whose election, shards, runnables and servers have no part in this). `story(client)` is the world outside
    that creates, changes and deletes: with the client that it is given, which the controllers answer to before each of
    its writes returns. Where it waits on that client's clock (`await_condition`), they go on. What it does before its
    first request prepares a world outside of the cluster. The server has the controllers of a cluster and the CRDs of
    the classes that are watched.

    Ends are compared without uids, versions and times, and without what two undisturbed runs draw differently at random
    (see `normal_form`); Events and Leases do not count. `seed` decides the order of everything; a report's point and
    seed repeat a run. `only`: that point alone, with the library's logs, which are muted otherwise; under pytest
    `--perturb-only` and `--perturb-seed` say so.

    Blocks, in this thread, and needs no real time: for a controller with 10 writes a few seconds. Raises what the
    story or `build` raises undisturbed, RequestError for arguments that make no sense, and ValueError for a story that
    does not end alike twice, or makes no controller write anything.
    """
    check(build, story, faults)
    options = OPTIONS.get()
    wanted = only if only is not None else options.only
    point = Point.parse(wanted) if isinstance(wanted, str) else wanted
    seed = options.seed if options.seed is not None else seed
    with muted_logs():
        plain, mask = undisturbed(build, story, seed)
    chosen = [point] if point is not None else [
        *points_of(faults, plain.writes, plain.story_writes, plain.pairs)]
    if point is not None:
        _check_there(point, plain)
        return _report(seed, plain, chosen, [_diverged(plain, mask, build, story, seed, point)])
    progress = Progress(chosen, terminal())
    found: list[Divergence | None] = []
    try:
        with muted_logs():
            for one in chosen:
                found.append(_diverged(plain, mask, build, story, seed, one))
                progress.ran(one, diverged=found[-1] is not None)
    finally:
        progress.end()
    return _report(seed, plain, chosen, found)


def check(build: Any, story: Any, faults: Collection[Any]) -> None:
    """Raise RequestError for what cannot be played."""
    for what, function in (("build", build), ("story", story)):
        if not callable(function):
            raise RequestError(f"{what} is a function (client), not {function!r}")
        if inspect.iscoroutinefunction(function):
            raise RequestError(f"{what}, {name_of(function)}, is async: write def, not async def")
        if (wrong := misfit(function, ("client",))) is not None:
            raise RequestError(f"{what}, {name_of(function)}, {wrong}")
    wrong_faults = [fault for fault in faults if not isinstance(fault, Fault)]
    if wrong_faults:
        raise RequestError(f"faults are {', '.join(fault.name for fault in Fault)}, not {wrong_faults[0]!r}")


def _check_there(point: Point, plain: Ended) -> None:
    """Raises ValueError for a point that the story does not come to."""
    of_story = point.fault is Fault.MISSED
    count = plain.story_writes if of_story else plain.writes
    who = "the story makes" if of_story else "the controllers make"
    if point.number > count or (point.way == "missed" and point.number not in plain.pairs):
        raise ValueError(f"there is no {point} in this story: undisturbed {who} {count} writes"
                         + (", and watches can only miss one that another follows at once, without a look in between"
                            if point.way == "missed" else ""))


def undisturbed(build: Build, story: Story, seed: int) -> tuple[Ended, Mask]:
    """How the story ends when nothing happens, and where it does so at random. Raises as `perturb`."""
    # Other random numbers the second time: what is drawn from them is where the two differ.
    runs = [_play(build, story, seed, None, MOST_REQUESTS, randoms=seed + number) for number in range(2)]
    for run in runs:
        if run.error is not None:
            raise run.error
        if run.trouble:
            raise ValueError(f"even undisturbed, {run.trouble}")
    if runs[0].writes == 0:
        raise ValueError("the controllers write nothing in this story, so there is nothing to disturb: does the story "
                         "create what they watch?")
    return runs[0], random_places(runs[0].outcome, runs[1].outcome)


def _play(build: Build, story: Story, seed: int, point: Point | None, limit: int, randoms: int | None = None) -> Ended:
    put_back = seeded(seed if randoms is None else randoms)
    try:
        return World(build, story, seed=seed, point=point, limit=limit).run()
    finally:
        put_back()


def _diverged(plain: Ended, mask: Mask, build: Build, story: Story, seed: int, point: Point) -> Divergence | None:
    run = _play(build, story, seed, point, max(MOST_REQUESTS // 10, plain.requests * MORE))
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
