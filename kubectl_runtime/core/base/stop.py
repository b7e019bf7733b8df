"""`StopToken`: lets one thread stop others at once.

    state    set(reason)                          wait(timeout)
    running  -> stopped; callbacks run, once      blocks until stopped or the timeout
    stopped  nothing                              returns True at once

Callbacks are for code that cannot check the token: a thread blocked in a socket read is woken by a callback that shuts
the socket down. They run in the thread that calls `set`, outside the lock, in the order of their registration, and must
be short. Their exceptions are logged. Only a KeyboardInterrupt in the main thread, which is not the callback's own, is
raised again after all callbacks were called.
"""
from __future__ import annotations

import threading
from collections.abc import Callable, Iterable

from kubectl_runtime.core.base.clock import SYSTEM_CLOCK, Clock
from kubectl_runtime.core.base.guard import guarded_logger
from kubectl_runtime.core.base.interpreter import renewed_in_children

log = guarded_logger(__name__)


class StopToken:
    """A signal that something must end: it is set once, and all threads that wait on it or check it notice.

    Safe to use from any thread; `set` takes a lock, so signal handlers must not call it. `wait` blocks until it is set,
    or for the given seconds at most.

    >>> stop = StopToken()
    >>> stop.wait(0)
    False
    >>> stop.set("we are done")
    >>> stop.is_set(), stop.reason
    (True, 'we are done')
    """

    def __init__(self, *, clock: Clock = SYSTEM_CLOCK) -> None:
        """A token that is not set."""
        self._clock = clock
        self._lock = threading.RLock()
        self._condition = threading.Condition(self._lock)
        self._stopped = False
        self._reason = ""
        self._callbacks: dict[object, Callable[[], None]] = {}
        renewed_in_children(self)

    def renew(self) -> None:
        """Free the lock, whichever thread holds it. Only for the child of a fork."""
        self._lock = threading.RLock()
        self._condition = threading.Condition(self._lock)

    @property
    def reason(self) -> str:
        """Why the token was set, for log lines; empty before."""
        return self._reason

    def is_set(self) -> bool:
        """Whether the token is set. Takes no lock."""
        return self._stopped

    def set(self, reason: str = "") -> None:
        """Set the token, with a `reason` for logs. Only the first call counts. Does not block, except for the
        callbacks' own time.

        Raises nothing except a KeyboardInterrupt that arrives in the main thread during the call.
        """
        with self._condition:
            if self._stopped:
                return
            self._reason = reason
            self._stopped = True
            callbacks = list(self._callbacks.values())
            self._callbacks.clear()
            self._condition.notify_all()
        _call(callbacks)

    def wait(self, timeout: float | None = None) -> bool:
        """Block until the token is set or `timeout` seconds have passed on the token's clock; returns whether it is
        set.
        """
        deadline = None if timeout is None else self._clock.monotonic() + timeout
        with self._condition:
            while not self._stopped:
                left = None if deadline is None else deadline - self._clock.monotonic()
                if left is not None and left <= 0:
                    break
                self._clock.wait(self._condition, left)
            return self._stopped

    def on_set(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` when the token is set (at once, if it is); returns a function that removes it."""
        key = object()
        with self._lock:  # the condition's lock, taken directly: each call over the network comes here twice
            stopped = self._stopped
            if not stopped:
                self._callbacks[key] = callback
        if stopped:
            _call([callback])

        def forget() -> None:
            with self._lock:
                self._callbacks.pop(key, None)

        return forget

    def __repr__(self) -> str:
        return f"<StopToken {'set: ' + self._reason if self._stopped else 'not set'}>"


def _call(callbacks: Iterable[Callable[[], None]]) -> None:
    interrupt = None
    for callback in callbacks:
        try:
            callback()
        except BaseException as error:
            if isinstance(error, KeyboardInterrupt) and threading.current_thread() is threading.main_thread():
                interrupt = error
            else:
                log.exception("a stop callback failed")
    if interrupt is not None:
        raise interrupt


class FirstOf(StopToken):
    """Set as soon as one of several tokens is set. It costs nothing until a thread waits or registers a callback."""

    def __init__(self, *tokens: StopToken, clock: Clock | None = None) -> None:
        """`clock`: for waits with a timeout; by default the clock of the first token."""
        # The base class's __init__ is not called: one of these is made for each call in a run, and needs no lock.
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
        """Raise TypeError: only the combined tokens can be set."""
        raise TypeError(f"one of several tokens is set by its owner, not here ({reason})")

    def wait(self, timeout: float | None = None) -> bool:
        """Block until one of the tokens is set, or `timeout` seconds have passed; returns whether one is set."""
        woken = StopToken(clock=self._clock)
        forget = self.on_set(woken.set)
        try:
            woken.wait(timeout)
            return self.is_set()  # a token may set itself when it is checked
        finally:
            forget()

    def renew(self) -> None:
        """Do nothing: there is no lock."""

    def on_set(self, callback: Callable[[], None]) -> Callable[[], None]:
        """Call `callback` when one of the tokens is set (at once, if one is); returns a function that removes it. It
        may be called once for each token that is set."""
        each = [token.on_set(callback) for token in self._tokens]

        def forget() -> None:
            for take_back in each:
                take_back()

        return forget

    def __repr__(self) -> str:
        return f"<FirstOf {', '.join(map(repr, self._tokens))}>"
