"""The text of `kubectl-runtime top`: lines made from a `DebugState`. Pure.

The lines describe the process, its manager and sharding; the watches, failing watches first; the API requests; and the
webhooks. Then each controller has a heading, counts, and a table of its objects in groups (loops, failing, running,
due, delayed, slowest, recent). For several processes there is one table of replicas.

In a window the groups share the available lines equally. Lines that a group does not need are given to groups that need
more. A group with hidden rows shows their number. Without a window (`--once`) long lines are wrapped. Names and texts
come from another process, so control characters are replaced.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from kubectl_runtime.runtime.observe.debug import ControllerState, DebugState, KeyRow, RunRow, WatchRow

WORDS = {"backing_off": "backing off", "held_back": "held back", "waits_for_change": "waits for a change",
         "requeue_after": "success", "terminal_error": "terminal error"}

FLEET = 124
"""The minimum width, in columns, at which all facts about a replica fit in one line."""

BOLD, SOFT, RED, GREEN, YELLOW, BLUE, MAGENTA, CYAN = "1", "2", "31", "32", "33", "34", "35", "36"
COLOURS = {"running": BLUE, "due": CYAN, "delayed": SOFT, "backing_off": YELLOW, "held_back": MAGENTA,
           "waits_for_change": RED, "failing": RED, "watching": GREEN, "listing": CYAN, "waiting": RED, "stopped": SOFT,
           "success": GREEN, "requeue_after": GREEN, "error": RED, "terminal_error": RED, "loop": YELLOW}


class Line(NamedTuple):
    """A row of a controller's table: the state of a key, the time of that state, the key's name, and details."""

    state: str
    time: str
    name: str
    more: str
    colour: str


@dataclass(slots=True)
class Group:
    """A group of rows with the name `what`. `total`: the number of rows that exist, including hidden rows."""

    lines: list[Line]
    what: str
    total: int = 0


class Screen:
    """Makes the lines for a terminal of this width. `colours`: whether the lines contain escape sequences for
    colours."""

    def __init__(self, width: int, *, colours: bool) -> None:
        self._width = max(40, width)
        self._colours = colours

    def lines(self, report: DebugState, height: int | None = None, rates: dict[str, float] | None = None) -> list[str]:
        """Return the lines of the screen, at most `height` if given. `rates`: the runs per second of controllers, by
        name, where known."""
        watches = self._watches(report.watches, report.watches_left_out, height)
        head = [*wrapped(title(report), self._width, self.paint, BOLD), *self._sharding(report), "", *watches,
                *self._traffic(report), ""]
        parts = [(self._head(one, (rates or {}).get(one.name)), groups_of(one)) for one in report.controllers]
        rows = None
        if height is not None:
            fixed = len(head) + sum(len(lines) + 1 for lines, _ in parts)
            rows = shares([len(group.lines) for _, groups in parts for group in groups], max(0, height - fixed))
        found, place = head, 0
        for lines, groups in parts:
            found += lines
            longest = max((len(line.name) for group in groups for line in group.lines), default=0)
            name = min(longest, max(20, min(48, (self._width - 36) // 2)))
            for group in groups:
                shown = len(group.lines) if rows is None else rows[place]
                found += self._table(group, shown, name, whole=height is None or group.what == "loops")
                place += 1
            found.append("")
        if report.controllers_left_out:
            found.append(f"and {report.controllers_left_out:,} controllers more")
        while found and not found[-1]:
            found.pop()
        return found if height is None else found[:height]

    def paint(self, colour: str, text: str) -> str:
        """`text`, cut to the width, coloured if colours are on."""
        text = cut(text, self._width)
        return f"\x1b[{colour}m{text}\x1b[0m" if self._colours and colour and text else text

    def _head(self, one: ControllerState, rate: float | None) -> list[str]:
        said = one.not_alive or one.not_ready
        runs = f"{one.runs:,} runs, {one.failed:,} failed" + (f", {rate:,.1f} a second" if rate else "")
        counts = one.counts
        numbers = (f"running {counts.running} of {one.concurrency}", f"due {counts.due:,}",
                   f"backing off {counts.backing_off:,}", f"held back {counts.held_back:,}",
                   f"delayed {counts.delayed:,}", f"failing {counts.failing:,}")
        lines = [*wrapped(f"{one.name}  {one.kind}  {runs}", self._width, self.paint, BOLD),
                 *wrapped("  " + "   ".join(numbers), self._width, self.paint, "", indent=4)]
        if said:
            state = "alive" if one.not_alive else "ready"
            lines += wrapped(f"  not {state}: {said}", self._width, self.paint, RED, indent=4)
        return lines

    def _traffic(self, report: DebugState) -> list[str]:
        found = []
        if (calls := report.calls) is not None:
            said = (f"API server: {calls.per_second:,.1f} requests a second", f"{time(calls.latency)} on average",
                    f"{time(calls.slowest)} at most", f"{calls.total:,} in all", f"{calls.throttled:,} of 429",
                    f"{calls.failed:,} of 5xx", f"{calls.unanswered:,} unanswered")
            found += wrapped("   ".join(said), self._width, self.paint,
                             RED if calls.throttled or calls.failed or calls.unanswered else "")
        for row in report.webhooks:
            asked = "never called" if row.ago is None else f"called {time(row.ago)} ago"
            text = (f"webhook {row.name}   {row.requests:,} requests   {row.failed:,} failed   "
                    f"{row.running:,} under way   {time(row.latency)} on average   {asked}")
            found += wrapped(text, self._width, self.paint, RED if row.failed else "")
        return found

    def _sharding(self, report: DebugState) -> list[str]:
        """Lines that name the holder of each shard, as far as the process knows."""
        sharding = None if report.manager is None else report.manager.sharding
        if sharding is None:
            return []
        lines = [f"{sharding.shards} shards of {sharding.name} by {sharding.by}:"]
        lines += [f"  {row.name}  {len(row.shards)} shards: {numbers(row.shards)}{'  (here)' if row.here else ''}"
                  for row in sharding.replicas]
        if sharding.free:
            lines.append(self.paint(YELLOW, f"  no replica holds {numbers(sharding.free)}"))
        return [line if line.startswith("\x1b") else cut(line, self._width) for line in lines]

    def fleet(self, reports: Sequence[tuple[str, DebugState | None, str]]) -> list[str]:
        """Return a table of processes. `reports`: each process's address, and its state or the reason why it does not
        answer."""
        facts = f"{'objects':>11} {'in stores':>10} {'memory':>10} {'runs':>11} {'failed':>9}  phase"
        narrow = self._width < FLEET  # the facts then stand below the name and the shards
        found = [self.paint(BOLD, line) for line in ((f"{'replica':<32} shards", facts) if narrow
                                                     else (f"{'replica':<32} {'shards':<24} {facts}",))]
        held: dict[int, list[str]] = {}
        total = 0
        names: set[str] = set()
        for address, report, trouble in reports:
            if report is None:
                found.append(self.paint(RED, f"{fit(address, 32)} {trouble}"))
                continue
            manager, sharding = report.manager, None if report.manager is None else report.manager.sharding
            me = next((row.name for row in sharding.replicas if row.here), address) if sharding else address
            shards = (manager.shards if manager is not None else None) or []
            for shard in shards:
                held.setdefault(shard, []).append(me)
            if sharding is not None:
                total, names = max(total, sharding.shards), names | {f"{sharding.name} by {sharding.by}"}
            facts = (f"{sum(row.objects for row in report.watches):>11,} "
                    f"{size(sum(row.bytes for row in report.watches)):>10} {size(report.memory):>10} "
                    f"{sum(one.runs for one in report.controllers):>11,} "
                    f"{sum(one.failed for one in report.controllers):>9,}  {manager.phase if manager else ''}")
            bad = any(one.not_ready or one.not_alive for one in report.controllers)
            shard_list = numbers(shards) or "none"
            colour = YELLOW if bad else ""
            if narrow:
                found += wrapped(f"{fit(me, 32)} {shard_list}", self._width, self.paint, colour, indent=33)
            found.append(self.paint(colour, facts if narrow else f"{fit(me, 32)} {fit(shard_list, 24)} {facts}"))
        twice = {shard: who for shard, who in held.items() if len(who) > 1}
        free = [shard for shard in range(total) if shard not in held]
        if names:
            found.append(self.paint(SOFT, f"{total} shards of {', '.join(sorted(names))}"))
        if free:
            found += wrapped(f"none of these holds {numbers(free)}", self._width, self.paint, YELLOW)
        found += [self.paint(RED, f"shard {shard} is held by {' and '.join(who)}") for shard, who in twice.items()]
        return found

    def _watches(self, watches: Sequence[WatchRow], left_out: int, height: int | None) -> list[str]:
        most = len(watches) if height is None else max(1, height // 4)
        shown = watches[:most]
        found: list[str] = []
        objects = max((len(f"{row.objects:,}") for row in shown), default=0)
        stored = max((len(size(row.bytes)) for row in shown), default=0)
        facts = len(f"  watching  {'':{objects}} objects {'':{stored}}  last event 12 min ago")
        wide = min(max((len(row.name) for row in shown), default=0), max(12, self._width - facts))
        for row in shown:
            heard = "no event yet" if row.last_event is None else f"last event {time(row.last_event)} ago"
            colour = COLOURS.get("waiting" if row.error else row.phase, "")
            name = fit(row.name, wide) if height is not None else f"{row.name:<{wide}}"
            text = f"{name}  {row.phase:<8}  {row.objects:>{objects},} objects {size(row.bytes):>{stored}}  {heard}"
            found += wrapped(text, self._width, self.paint, colour) if height is None else [self.paint(colour, text)]
            if row.error:
                found += wrapped(f"  {row.error}", self._width, self.paint, colour, indent=4)
        rest = len(watches) - len(shown) + left_out
        return [*found, *([f"and {rest:,} watches more"] if rest else [])]

    def _table(self, group: Group, shown: int, name: int, *, whole: bool) -> list[str]:
        rest = max(group.total, len(group.lines)) - shown
        if rest and shown and shown < len(group.lines):
            shown, rest = shown - 1, rest + 1
        found = []
        for line in group.lines[:shown]:
            text = f"  {line.state:<18} {line.time:>12}  {fit(line.name, name)}  "
            found += wrapped(text + line.more, self._width, self.paint, line.colour, indent=4) if whole else \
                [self.paint(line.colour, text + line.more)]
        if rest:
            found.append(self.paint(SOFT, f"  and {rest:,} more {group.what}".rstrip()))
        return found


def numbers(shards: Sequence[int]) -> str:
    """`0-3, 7`: shard numbers, with ranges joined."""
    found: list[list[int]] = []
    for shard in sorted(shards):
        if found and shard == found[-1][1] + 1:
            found[-1][1] = shard
        else:
            found.append([shard, shard])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in found)


def title(report: DebugState) -> str:
    """Return the heading of the process."""
    parts = [report.time.replace("T", " ").replace("Z", " UTC")]
    if (manager := report.manager) is not None:
        parts.append(f"manager {manager.phase}" + (f": {manager.reason}" if manager.reason else ""))
        if manager.lease:
            parts.append(f"{'leads by' if manager.leader else 'does not lead:'} {manager.lease}")
        if manager.shards is not None:
            parts.append(f"shards {numbers(manager.shards) or 'none'}")
    memory = [size(report.memory)] if report.memory else []
    return "  ".join([*parts, f"process {report.process}", *memory, f"up {time(report.uptime)}"])


def groups_of(one: ControllerState) -> list[Group]:
    """The groups of a controller's table."""
    counts = one.counts
    return [
        Group([Line("loop", f"{time(row.ago)} ago", row.name,
                    (f"differed: {', '.join(row.fields)}; " if row.fields else "") + row.what, YELLOW)
               for row in one.loops], "loops"),
        Group([_failing(row) for row in one.failing], "failing", counts.failing),
        Group([_key(row, f"for {time(row.age)}") for row in one.running], "running", counts.running),
        Group([_key(row, f"for {time(row.age)}") for row in one.due], "due", counts.due),
        Group([_key(row, until(row)) for row in one.delayed], "delayed", counts.delayed),
        Group([_slow(row) for row in one.slowest[:5]], "slow objects"),
        Group([Line("reads", "", row.name, ", ".join(row.reads), "") for row in one.reads], "that read something",
              one.readers),
        Group([_ended(row) for row in one.recent], "recent runs"),
    ]


def shares(wanted: Sequence[int], available: int) -> list[int]:
    """Divide the `available` lines equally among the groups; no group gets more lines than it needs."""
    got = [0] * len(wanted)
    while available > 0 and (open_ := [place for place, most in enumerate(wanted) if got[place] < most]):
        each = max(1, available // len(open_))
        for place in open_[:available]:
            more = min(each, wanted[place] - got[place])
            got[place] += more
            available -= more
    return got


def _key(row: KeyRow, when: str) -> Line:
    attempt = f", attempt {row.attempt}" if row.attempt > 1 else ""
    return Line(WORDS.get(row.state, row.state), when, row.name, f"{row.reason}{attempt}{_and(row.error)}",
                COLOURS.get(row.state, ""))


def _failing(row: KeyRow) -> Line:
    times = f"{row.failures:,} times in {time(row.failing_for)}" if row.failures > 1 else "once"
    good = "" if row.succeeded is None else f", last success {time(row.succeeded)} ago"
    run = f", run {row.failed_run}" if row.failed_run else ""
    error = f"{row.error}, " if row.error else ""  # the error comes first, since the end of the line may be cut
    return Line(WORDS.get(row.state, row.state), until(row), row.name, f"{error}failed {times}{good}{run}",
                COLOURS.get(row.state, RED))


def _ended(row: RunRow) -> Line:
    return Line(WORDS.get(row.result, row.result), f"{time(row.ago)} ago", row.name,
                f"took {time(row.took)}{_and(row.error)}", COLOURS.get(row.result, SOFT))


def _slow(row: RunRow) -> Line:
    return Line("slowest", f"took {time(row.took)}", row.name, f"{time(row.ago)} ago{_and(row.error)}",
                RED if row.error else "")


def _and(error: str) -> str:
    return f": {error}" if error else ""


def until(row: KeyRow) -> str:
    """The time of a key's next run."""
    if row.due_in is None:
        return ""
    return f"in {time(row.due_in)}" if row.due_in > 0 else f"{time(-row.due_in)} ago"


def time(seconds: float) -> str:
    """`12 ms`, `3.4 s`, `5 min`, `2 h`, `3 d`."""
    for below, unit, text in ((1, 0.001, "ms"), (120, 1, "s"), (7200, 60, "min"), (172800, 3600, "h")):
        if seconds < below:
            return f"{seconds / unit:.1f} {text}" if text == "s" and seconds < 10 else f"{seconds / unit:.0f} {text}"
    return f"{seconds / 86400:.0f} d"


def size(count: float) -> str:
    """`0 B`, `4.1 KiB`, `12 MiB`."""
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.1f} {unit}" if unit != "B" and count < 10 else f"{count:.0f} {unit}"
        count /= 1024
    return f"{count:.1f} GiB"


def fit(text: str, width: int) -> str:
    """`text` cut or padded to exactly `width` columns."""
    return f"{cut(text, width):<{width}}"


def cut(text: str, width: int) -> str:
    """`text` cut to at most `width` columns, without control characters."""
    text = "".join(letter if letter.isprintable() else "·" for letter in text[:width + 1])
    return text if len(text) <= width else f"{text[:width - 1]}…"


def wrapped(text: str, width: int, paint: Callable[[str, str], str], colour: str, *, indent: int = 2) -> list[str]:
    """`text` broken at spaces, where possible, into lines of at most `width` columns."""
    found: list[str] = []
    left = text
    while len(left) > width:
        at = left.rfind(" ", width // 2, width + 1)
        at = width if at <= 0 else at
        found.append(paint(colour, left[:at].rstrip()))
        left = " " * indent + left[at:].lstrip()
    return [*found, paint(colour, left)]


def joined(lines: Iterable[str]) -> str:
    """The lines as one text, for a file or a pipe."""
    return "".join(f"{line}\n" for line in lines)
