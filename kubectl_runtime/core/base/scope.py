"""Which stop tokens the calls of a thread obey, beyond those that they are given: what a controller says for its runs.

    reads, streams, waits    end when `stop` is set
    writes                   end when `cut` is set, which comes later: whether one that was interrupted has happened,
                             nobody could know

A scope belongs to the thread (or other context) that entered it, and to copies of that context until it is left.
Threads that a run starts do not inherit it, except where Python hands the context on (see `contexts`).
"""
from __future__ import annotations

from collections.abc import Callable

import msgspec

from kubectl_runtime.core.base.clock import Clock
from kubectl_runtime.core.base.stop import StopToken
from kubectl_runtime.core.interpreter.contexts import RunVariable


class CallScope(msgspec.Struct, frozen=True):
    """The stop tokens that end the calls of one thread, such as those of a run. Immutable; may be entered by any number
    of threads."""

    stop: StopToken
    cut: StopToken


_scope: RunVariable[CallScope] = RunVariable("kubectl_runtime_call_scope")

enter_scope, leave_scope = _scope.set, _scope.reset
"""`enter_scope(scope)`: from now on this thread's calls obey `scope`. `leave_scope` ends that; it takes what
`enter_scope` returned."""


def call_scope() -> CallScope | None:
    """What this thread's calls obey; None outside of runs."""
    return _scope.get()


def with_scope(stop: StopToken, clock: Clock) -> StopToken:
    """`stop`; within a run, what is set as soon as it or the run's end is."""
    scope = call_scope()
    return stop if scope is None else FirstOf(stop, scope.stop, clock=clock)


class FirstOf(StopToken):
    """Set as soon as one of several tokens is. Costs nothing until somebody waits or asks to be called."""

    def __init__(self, *tokens: StopToken, clock: Clock | None = None) -> None:
        """`clock`: for waits with a timeout; by default that of the first token."""
        # Not the base class's way: it has no state of its own, so no lock; one is made for each call within a run.
        self._clock = clock or tokens[0]._clock
        self._tokens = tokens

    @property
    def reason(self) -> str:
        """Why the first of the tokens was set; empty before."""
        return next((token.reason for token in self._tokens if token.is_set()), "")

    def is_set(self) -> bool:
        """Whether one of the tokens is set. Takes no lock."""
        return any(token.is_set() for token in self._tokens)

    def set(self, reason: str = "") -> None:
        """Raise TypeError: only the tokens that it is made of can be set."""
        raise TypeError(f"one of several tokens is set by its owner, not here ({reason})")

    def wait(self, timeout: float | None = None) -> bool:
        """Block until one of the tokens is set, or `timeout` seconds have passed; whether one is set."""
        woken = StopToken(clock=self._clock)
        forget = self.on_set(woken.set)
        try:
            woken.wait(timeout)
            return self.is_set()  # a token may set itself when it is looked at
        finally:
            forget()

    def renew(self) -> None:
        """Do nothing: it has no lock."""

    def on_set(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` when one of the tokens is set (now, if one is); returns a function that takes it back.
        It may be called once for each token that is set."""
        each = [token.on_set(callback) for token in self._tokens]

        def forget() -> None:
            for take_back in each:
                take_back()

        return forget

    def __repr__(self) -> str:
        return f"<FirstOf {', '.join(map(repr, self._tokens))}>"
