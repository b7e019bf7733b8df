"""`eventually`: calls a function until its result is accepted; after the timeout it reports the last result.

    eventually(lambda: api.get("web"), lambda pod: pod.status.phase == "Running")
    eventually(lambda: api.get_opt("web") is None, timeout=30)

A result that `until` accepts is returned; after any other result the function is called again. The function is also
called again after an AssertionError, a KubeError, and the errors of reading an incomplete object (AttributeError,
LookupError, TypeError). Any other exception, including RequestError, is raised at once, because a retry would not help.
For objects that can be watched, `await_condition` makes fewer requests.

`muted_logs` silences the library's loggers where a test causes failures on purpose. `duration`, `service_address` and
`feature_gates` parse the values of options that several commands have.
"""
from __future__ import annotations

import argparse
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, Generic, TypeVar

import msgspec

from kubectl_runtime.core.base.errors import KubeError, RequestError
from kubectl_runtime.core.base.threads import SYSTEM_CLOCK, Clock, Duration, seconds
from kubectl_runtime.core.meta.metav1 import GoDuration
from kubectl_runtime.core.objects.resource import Resource

T = TypeVar("T")

NOT_YET = (AssertionError, KubeError, AttributeError, LookupError, TypeError)
_NOTHING = object()
MOST = 4000
"""The maximum number of characters of the last result in an error message."""
EVERY = 0.05
"""Seconds between two calls. Twenty calls a second are no load for a server."""


def eventually(ask: Callable[[], T], until: Callable[[T], object] | None = None, timeout: Duration = 10, *,
               every: Duration = EVERY, clock: Clock = SYSTEM_CLOCK) -> T:
    """Return the result of `ask` as soon as `until` accepts it; without `until`, as soon as it is true.

    Blocks for at most `timeout` seconds on `clock`. Calls `ask` at least twice, in this thread, at intervals of `every`
    seconds. Raises AssertionError with the last result, or with the last exception as its `__cause__`. The module's
    docstring names the exceptions of `ask` and `until` that are raised at once. If `clock` is a simulated clock that
    does not advance by itself, another thread must move it. In a simulation of controllers use `Simulation.eventually`,
    which lets the controllers run.
    """
    probe = Probe(ask, until)
    for given in (timeout, every):
        if not isinstance(given, int | float | timedelta) or isinstance(given, bool) or not seconds(given) > 0:
            raise ValueError(f"timeout={timeout!r} and every={every!r} must be seconds or a timedelta, above "
                             "0")
    span, pause = seconds(timeout), seconds(every)
    condition = threading.Condition()  # never notified; `clock.wait` needs a condition
    end = clock.monotonic() + span
    while True:
        late = clock.monotonic() >= end
        if probe.asked():
            return probe.value
        if late:
            raise probe.failure(f"within {span:g} s")
        with condition:
            clock.wait(condition, min(pause, max(0.0, end - clock.monotonic())) or pause)


class Probe(Generic[T]):
    """Calls a function repeatedly and stores the last result."""

    def __init__(self, ask: Callable[[], T], until: Callable[[T], object] | None) -> None:
        for function in (ask, *([] if until is None else [until])):
            if not callable(function):
                raise TypeError(f"{function!r} is not a function that can be called repeatedly: write lambda: …")
        self._ask, self._until = ask, until
        self._times = 0
        self._seen: Any = _NOTHING
        self._error: BaseException | None = None

    @property
    def value(self) -> T:
        """The last result."""
        found: T = self._seen
        return found

    def asked(self) -> bool:
        """Call `ask`; return whether its result is accepted."""
        self._times += 1
        try:
            self._seen = found = self._ask()
            self._error = None
            return bool(found if self._until is None else self._until(found))
        except RequestError:
            raise
        except NOT_YET as error:
            self._error = error
            return False

    def failure(self, when: str) -> AssertionError:
        """Make the AssertionError that reports the last result."""
        wanted = "did not become true" if self._until is None else f"was not accepted by {_name(self._until)}"
        told = f"{_name(self._ask)} {wanted} {when} (called {self._times} times); last seen: "
        told += "nothing" if self._seen is _NOTHING else shown(self._seen)
        if self._error is not None:
            told += f"\nthe last time it raised {type(self._error).__name__}: {self._error}"
        failure = AssertionError(told)
        failure.__cause__ = self._error
        return failure


def shown(value: Any) -> str:
    """A value as text: an object's content without managedFields; a Secret without its data."""
    if isinstance(value, list | tuple) and any(isinstance(each, Resource) for each in value):
        text = "[" + ",\n".join(map(shown, value)) + "]"
    elif isinstance(value, Resource) and value.api_resource.kind != "Secret":
        content = value.to_dict()
        content.get("metadata", {}).pop("managedFields", None)
        text = msgspec.json.format(msgspec.json.encode(content), indent=1).decode()
    else:
        try:
            text = repr(value)
        except Exception as error:  # noqa: BLE001 - a test's own object must not hide why the test failed
            text = f"<{type(value).__name__}, whose repr raised {type(error).__name__}>"
    return text if len(text) <= MOST else f"{text[:MOST]}… ({len(text)} characters)"


def _name(function: Callable[..., Any]) -> str:
    """The function's name and position in the source. The position identifies lambdas, which have no name."""
    code = getattr(function, "__code__", None)
    name = getattr(function, "__qualname__", None) or type(function).__name__
    where = f" ({code.co_filename.rpartition('/')[2]}:{code.co_firstlineno})" if code is not None else ""
    return f"{name.rpartition('<locals>.')[2]}{where}"


@contextmanager
def muted_logs() -> Iterator[None]:
    """Mute all loggers of the library inside the block, except loggers whose own level was set."""
    logger = logging.getLogger("kubectl_runtime")
    level = logger.level
    logger.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        logger.setLevel(level)


def duration(text: str) -> float:
    """Parse a Go duration (`15s`, `5m0s`, `0`) into seconds. Raises ArgumentTypeError for any other text and for
    negative durations."""
    try:
        found = GoDuration.parse(text).seconds
    except RequestError:
        found = -1.0
    if found < 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a duration such as 15s or 1m30s")
    return found


def service_address(text: str) -> tuple[str, str]:
    """Parse `NAMESPACE/NAME=https://HOST:PORT`, a Service and its address. Raises ArgumentTypeError for any other
    text."""
    name, equals, address = text.partition("=")
    if not equals or name.count("/") != 1 or not address.startswith("https://"):
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form NAMESPACE/NAME=https://HOST:PORT")
    return name, address


def feature_gates(text: str) -> dict[str, bool]:
    """Parse `NAME=true,OTHER=false`. Raises ArgumentTypeError for anything else."""
    found: dict[str, bool] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, equals, value = part.partition("=")
        if not name or not equals or value.lower() not in ("true", "false"):
            raise argparse.ArgumentTypeError(f"{part!r} is not of the form NAME=true or NAME=false")
        found[name.strip()] = value.lower() == "true"
    return found
