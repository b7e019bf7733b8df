"""`PodMemory`: since when the parts of one Pod are as they are. Objects tell it in whole seconds only, if at all.

It is lost when the server starts anew or goes back to a state: what was waited for is then waited for again.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True)
class PodMemory:
    """What is remembered of one Pod."""

    states: dict[str, tuple[object, float]] = field(default_factory=dict)
    failed_pulls: dict[str, int] = field(default_factory=dict)
    said: set[str] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class PodTimers:
    """A Pod's memory at one moment (monotonic seconds). Implements `pod_machine.Timers`."""

    memory: PodMemory
    now: float

    def elapsed(self, name: str, state: object) -> float:
        before = self.memory.states.get(name)
        if before is None or before[0] != state:
            self.memory.states[name] = (state, self.now)
            return 0.0
        return self.now - before[1]

    def once(self, what: str) -> bool:
        new = what not in self.memory.said
        self.memory.said.add(what)
        return new

    def pulls(self, container: str) -> int:
        return self.memory.failed_pulls.get(container, 0)
