"""Guarded calls of user code, whose exceptions are only logged; checks of arguments; readers of untrusted objects.

The library continues after any exception of user code, including SystemExit: a watch that ended because of one bad
object or one bad callback would look healthy although it is dead. Only a KeyboardInterrupt in the main thread is raised
to the caller. Making an exception's text runs user code too, so the library calls `described`, never `str`.

- `guarded` is for rare calls and logs each exception with its traceback.
- `Guard` is for frequent calls of one piece of code and avoids repeated log lines:

    a call                                        is logged as
    raises for the first time, or at a new place  error, with its traceback (for a KubeError only its text)
    raises there again                            error, in one line, at each doubling of the count and when `WITHIN`
                                                  seconds have passed since the last line about this place
    succeeds when the last failure is at least    info, with the number of failures; then the count starts again
    `WITHIN` seconds old
    succeeds earlier                              nothing: code that fails for one object only may work for the next

  A place is the class of the exception and the line that raised it.
- `guarded_logger` is a logger that never raises. Log handlers are user code: if one raises, it loses that line, and the
  error goes to stderr, as in `logging`. The error does not reach the caller, which may be a watch, or a call whose
  write was carried out.
- `Home.check` ends a forked child process if user code forked and then returned in the child.
- `check_api`, `check_callback` and others refuse arguments that would only fail later, in a thread, again and again.
- `mapping`, `part_of`, `condition_of` and others read an object's plain form without trust: a part that is absent, null
  or of another type counts as empty.
- `closing_source` closes the source of a stream's stage when that stage ends, in the iterating thread.
"""
from __future__ import annotations

import contextlib
import inspect
import logging
import os
import sys
import threading
import traceback
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from types import GeneratorType
from typing import Any, TypeAlias, TypeVar

from kubectl_runtime.core.base.errors import KubeError, RequestError, class_named
from kubectl_runtime.core.base.threads import SYSTEM_CLOCK, Clock, ForkSafeLock, renewed_in_children
from kubectl_runtime.core.base.wire import signature_of

Line: TypeAlias = Callable[[], None]
"""Writes one line of the log, in the thread that calls it."""


def printable(text: str, keep: str = "") -> str:
    """`text` with unsafe characters escaped as in a Python literal: control characters, line breaks of all kinds, and
    marks that change the direction of writing. A terminal or a line reader would interpret these characters. Characters
    in `keep` are not escaped."""
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() or letter in keep else
                   letter.encode("unicode_escape", "backslashreplace").decode("ascii") for letter in text)


class _Scribe(threading.local):
    write: Callable[[Line], None] | None = None


_scribe = _Scribe()


class ProcessEnded(BaseException):
    """Ends a simulated process, as a crash does. Only the simulation may catch this exception, so code that catches
    everything calls `pass_interrupt` first."""


class GuardedLogger(logging.LoggerAdapter[logging.Logger]):
    """Logs through the wrapped logger. Safe to use from any thread."""

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        """Log a message, if the level is enabled. If a handler raises, only this message is lost."""
        try:
            if not self.logger.isEnabledFor(level):
                return
            # The stack level is one higher, since this method is not the origin of the line.
            kwargs["stacklevel"] = kwargs.get("stacklevel", 1) + 1
            if _scribe.write is None:
                self.logger.log(level, msg, *args, **kwargs)
                return
            if kwargs.get("exc_info") is True:
                kwargs["exc_info"] = sys.exc_info()
            _scribe.write(partial(self.log, level, msg, *args, **kwargs))
        except BaseException as error:  # noqa: BLE001 - see the module docstring
            pass_interrupt(error)
            _tell_stderr(f"a log handler of {self.logger.name} raised", error)


class HousekeepingLogger(GuardedLogger):
    """Logs INFO as DEBUG, for the library's own background work. Safe to use from any thread."""

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        """Log a message, if its lowered level is enabled."""
        super().log(logging.DEBUG if level == logging.INFO else level, msg, *args,
                    **{**kwargs, "stacklevel": kwargs.get("stacklevel", 1) + 1})


@contextlib.contextmanager
def written_by(write: Callable[[Line], None] | None) -> Iterator[None]:
    """In this block, pass this thread's log lines to `write` instead of the log's handlers, which may block. If `write`
    is None, the handlers receive the lines as usual."""
    before, _scribe.write = _scribe.write, write
    try:
        yield
    finally:
        _scribe.write = before


def guarded_logger(name: str) -> GuardedLogger:
    """The logger called `name`. It never raises: if a handler raises, only the message that it handles is lost."""
    return GuardedLogger(logging.getLogger(name))


def pass_interrupt(error: BaseException) -> None:
    """Raise `error` if it is a KeyboardInterrupt in the main thread, or the end of a simulated process. Code that
    catches everything calls this first."""
    if isinstance(error, ProcessEnded):
        raise error
    if isinstance(error, KeyboardInterrupt) and threading.current_thread() is threading.main_thread():
        raise error


def _tell_stderr(what: str, error: BaseException) -> None:
    if not logging.raiseExceptions or sys.stderr is None:
        return
    with contextlib.suppress(Exception):  # stderr may be closed, broken or replaced; there is no other place to report
        sys.stderr.write(f"--- {what} ---\n{''.join(traceback.format_exception(error))}")


T = TypeVar("T")

Given: TypeAlias = str | Callable[..., str]
"""The subject of a call: text such as `Apply of pod a`, or a function that makes the text from the arguments."""

WITHIN = 60.0
"""Seconds; see the table in the module docstring."""

MOST_PLACES = 20
"""The maximum number of places that are counted separately; all further places are counted together."""

Place: TypeAlias = tuple[str, str, int]

ELSEWHERE: Place = ("", "", 0)

log = guarded_logger(__name__)


class Guard:
    """Calls one piece of user code. Safe to use from any thread; no lock is held while that code or a handler runs."""

    __slots__ = ("_clock", "_last", "_lock", "_logger", "_places", "_since", "count", "name")

    def __init__(self, name: str, logger: GuardedLogger = log, clock: Clock = SYSTEM_CLOCK) -> None:
        """`name` is the code's name in log lines, ending with a comma if the sentence of the log line needs one."""
        self.name = name
        self._logger = logger
        self._clock = clock
        self._lock = ForkSafeLock()
        self._places: dict[Place, tuple[int, float]] = {}
        """Place -> how often the place raised, and when it was last logged."""
        self.count = 0
        """Failures since the last success; while it is 0, `succeeded` does nothing and need not be called."""
        self._since = self._last = 0.0

    def call(self, default: T, given: Given, function: Callable[..., T], *args: Any) -> T:
        """Call `function(*args)`; return its result, or `default` if it raises. `given`, or the text that
        `given(*args)` returns, describes the call in the log; empty for no description."""
        try:
            result = function(*args)
        except BaseException as error:  # noqa: BLE001 - the caller must go on after any exception
            self.failed(error, given, *args)
            return default
        if self.count:
            self.succeeded()
        return result

    def failed(self, error: BaseException, given: Given = "", *args: Any) -> None:
        """Log that the code raised `error`. For callers that do not use `call`. Raises what `pass_interrupt` raises."""
        pass_interrupt(error)
        now = self._clock.monotonic()
        place = _place(error)
        with self._lock:
            if not self.count:
                self._since = now
            self.count, self._last = self.count + 1, now
            if place not in self._places and len(self._places) >= MOST_PLACES:
                place = ELSEWHERE
            count, told = self._places.get(place, (0, now))
            count += 1
            tell = count & (count - 1) == 0 or now - told >= WITHIN
            self._places[place] = count, now if tell else told
            since = self._since
        if not tell:
            return
        what = self.name if not given else f"{self.name.rstrip(',')}, given {self._text(given, args)},"
        if count == 1 and isinstance(error, KubeError):
            self._logger.error("%s raised %s: %s", what, type(error).__name__, self._text(str, (error,)))
        elif count == 1:
            self._logger.error("%s raised %s", what, type(error).__name__, exc_info=error)
        else:
            self._logger.error("%s raised %s again: %d failures like it in %.0f s", what, type(error).__name__, count,
                               now - since)

    def succeeded(self) -> None:
        """Record that the code succeeded. For callers that do not use `call`."""
        if not self.count:
            return
        now = self._clock.monotonic()
        with self._lock:
            if not self.count or now - self._last < WITHIN:
                return
            count, self.count = self.count, 0
            lasted = self._last - self._since
            self._places.clear()
        self._logger.info("%s works again after %d failure%s in %.0f s", self.name, count, "" if count == 1 else "s",
                          lasted)

    def _text(self, given: Given, args: tuple[Any, ...]) -> str:
        """A text for the log; an object's `__str__` is user code as well and may raise."""
        if isinstance(given, str):
            return given
        try:
            return given(*args)
        except BaseException as error:  # noqa: BLE001 - as in `call`
            pass_interrupt(error)
            return f"something that cannot be shown ({type(error).__name__})"


def _place(error: BaseException) -> Place:
    trace = error.__traceback__
    if trace is None:
        return type(error).__qualname__, "", 0
    while trace.tb_next is not None:
        trace = trace.tb_next
    return type(error).__qualname__, trace.tb_frame.f_code.co_filename, trace.tb_lineno


MOST_TEXT = 2000
"""The maximum length of an exception's text. Some texts quote whole documents, and the library stores one text for each
failing key."""

Where: TypeAlias = str | Callable[..., str]
"""Describes the code and the object that it handles: text, or a function that makes the text from the call's
arguments."""


def guarded(default: T, where: Where, function: Callable[..., T], *args: Any) -> T:
    """Call `function(*args)` and return its result; if it raises, log the exception and return `default`. `where`, or
    the text that `where(*args)` returns, describes the call in the log."""
    try:
        return function(*args)
    except BaseException as error:  # noqa: BLE001 - see the module docstring
        _report(error, where, args)
        return default


def described(error: BaseException) -> str:
    """Type and text of an exception: `ValueError: no such thing`. Reading the text may fail. A long text is cut."""
    name = type(error).__name__
    try:
        text = str(error)
    except BaseException as second:  # noqa: BLE001 - see the module docstring
        pass_interrupt(second)
        text = "<its text cannot be shown>"
    if len(text) > MOST_TEXT:
        text = f"{text[:MOST_TEXT]}... ({len(text):,} characters)"
    return f"{name}: {text}" if text else name


def as_exception(error: BaseException) -> Exception:
    """`error` itself, or a RuntimeError in place of a BaseException such as SystemExit, which user code (a client's
    layers, credentials and adapters) may raise. Raises what `pass_interrupt` raises."""
    pass_interrupt(error)
    if isinstance(error, Exception):
        return error
    failure = RuntimeError(f"the program's own code raised {described(error)}")
    failure.__cause__ = error
    return failure


def name_of(function: Any) -> str:
    """The name of a user's function in a log line."""
    name = getattr(function, "__qualname__", None) or type(function).__qualname__
    return f"{getattr(function, '__module__', None) or type(function).__module__}.{name}"


def is_async(function: Any) -> bool:
    """Whether a call returns a coroutine or an async generator. `function` may be a function, a method, a `partial`, or
    an object with `__call__`."""
    return any(inspect.iscoroutinefunction(one) or inspect.isasyncgenfunction(one) for one in _called(function))


def is_generator(function: Any) -> bool:
    """Whether a call only creates a generator and runs none of the function's code. `function` is as for `is_async`."""
    return any(inspect.isgeneratorfunction(one) for one in _called(function))


def _called(function: Any) -> tuple[Any, ...]:
    return (function, type(function).__call__) if callable(function) else ()


def not_awaitable(value: T, function: Any, *, may_yield: bool = False) -> T:
    """Return `value`, the result of a user's function. Raises TypeError for an awaitable, and for a generator unless
    `may_yield`: in a boolean context both would count as true. The result is checked because the signature of a lambda
    or a decorated function does not say what it returns."""
    kind = type(value)
    if kind is GeneratorType and not may_yield:
        raise TypeError(f"{name_of(function)} returned a generator, and nothing in it has run: return the value")
    if not hasattr(kind, "__await__"):
        return value
    if inspect.iscoroutine(value):
        value.close()
    raise TypeError(f"{name_of(function)} returned a {type(value).__name__}, and nothing awaits it: write a plain "
                    "function")


class Home:
    """The process in which some work began; a forked child must not continue the work. For library code that calls user
    code."""

    def __init__(self) -> None:
        self._left = False
        renewed_in_children(self)

    def renew(self) -> None:
        """Record that this is a forked child process. Called only in the child."""
        self._left = True

    def check(self, what: Any, error: BaseException | None = None) -> None:
        """End this process if it is a forked child; do nothing in the parent. Call this after the user code `what` (a
        function, or its name) has returned or has raised `error`: the work that follows belongs to the parent. The exit
        status is as if `error`, if any, had ended a Python program."""
        if not self._left:
            return
        status = 0 if error is None else 1
        with contextlib.suppress(BaseException):  # streams may be closed, and `__str__` of an exception may raise
            if isinstance(error, SystemExit):
                status = 0 if error.code is None else error.code if isinstance(error.code, int) else 1
                if status == 1 and error.code != 1:
                    sys.stderr.write(f"{error.code}\n")
            elif error is not None:
                traceback.print_exception(error)
            else:
                name = what if isinstance(what, str) else name_of(what)
                sys.stderr.write(f"{name} forked, and returned in the child process too: the child ends here, because "
                                 "the work that would follow belongs to its parent\n")
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(status & 0xff)


def misfit(function: Any, arguments: tuple[str, ...], *, may_yield: bool = False) -> str | None:
    """Why a user's function cannot be called with these arguments; None when it can, or when its signature is unknown
    (some built-in functions). `may_yield` allows generators, because the caller iterates over the result."""
    if is_async(function):
        return "is async, and nothing awaits it: it is called in a thread; write a plain function"
    if not may_yield and is_generator(function):
        return "is a generator, and nothing in it would run: remove its yield"
    try:
        signature = signature_of(function)
    except (TypeError, ValueError):
        return None
    try:
        signature.bind(*arguments)
    except TypeError as error:
        given = f"{len(arguments)} arguments, {' and '.join(arguments)}" if arguments else "no arguments"
        return f"cannot be called with {given}: {error}"
    return None


def _report(error: BaseException, where: Where, args: tuple[Any, ...]) -> None:
    pass_interrupt(error)
    # An object's `__str__` is user code as well.
    text = where if isinstance(where, str) else guarded("user code", "a description", where, *args)
    log.error("%s raised %s", text, type(error).__name__, exc_info=error)


def check_api(api: Any, taker: str, *, has: str = "resource") -> None:
    """Raise RequestError for values that are likely to be passed by mistake instead of an Api: a kind, or the client.
    Any object with the attribute `has` counts as an Api."""
    if isinstance(api, type) or not hasattr(api, has):
        given = api.__name__ if isinstance(api, type) else repr(api)
        raise RequestError(f"{taker} takes an Api, such as Api.all(client, Kind) or "
                           f"Api.namespaced(client, Kind, namespace), not {given}")


def check_client(client: Any, taker: str) -> None:
    """Raise RequestError for values that are likely to be passed by mistake instead of a Client: None, the class, a
    Config."""
    if isinstance(client, type) or not hasattr(client, "clock"):
        raise RequestError(f"{taker} takes a Client, such as Client.try_default(), not {class_named(client)}")


def check_callback(what: str, callback: Any, *arguments: str, may_yield: bool = False) -> None:
    """Raise RequestError for anything that cannot be called with these arguments, is async, or is a generator unless
    `may_yield`."""
    if not callable(callback):
        raise RequestError(f"{what} must be a function ({', '.join(arguments)}), not {callback!r}")
    if (wrong := misfit(callback, arguments, may_yield=may_yield)) is not None:
        raise RequestError(f"{what}, {name_of(callback)}, {wrong}")


def check_type(what: str, value: Any, kind: type, example: str) -> None:
    """Raise RequestError, with an example of a correct value, for a value that is not of this type."""
    if not isinstance(value, kind):
        raise RequestError(f"{what} must be a {kind.__name__}, such as {example}, not {value!r}")


def mapping(value: Any) -> Mapping[str, Any]:
    """`value` if it is a map, otherwise an empty map."""
    return value if isinstance(value, Mapping) else {}


def part_of(obj: Any, key: str) -> Mapping[str, Any]:
    """The map under a top-level key of an object; empty if `obj` is None. Raises DecodeError."""
    return {} if obj is None else mapping(obj.get(key))


def condition_of(obj: Any, kind: str) -> Mapping[str, Any]:
    """The entry of this type in the object's `status.conditions`; empty when there is none. Raises DecodeError."""
    return next((entry for entry in items_of(part_of(obj, "status"), "conditions") if entry.get("type") == kind), {})


def generation_of(obj: Any, entry: Mapping[str, Any]) -> int | None:
    """The generation that a condition describes, by kubectl's rule: the condition's observedGeneration, or if it is
    not set, the observedGeneration of the object's status; None if neither is set. Raises DecodeError."""
    for part in (entry, part_of(obj, "status")):
        observed = part.get("observedGeneration")
        if isinstance(observed, int) and not isinstance(observed, bool):
            return observed
    return None


def is_current(obj: Any, entry: Mapping[str, Any]) -> bool:
    """Whether a condition describes the object's current spec, judged by `generation_of`; True if that generation is
    unknown. Raises DecodeError."""
    observed = generation_of(obj, entry)
    return observed is None or observed >= (obj.generation or 0)


def holds(obj: Any, kind: str, status: str = "True") -> bool:
    """Whether the object's condition of this type has this status and describes the current spec. Raises
    DecodeError."""
    entry = condition_of(obj, kind)
    return entry.get("status") == status and is_current(obj, entry)


def number_of(part: Mapping[str, Any], key: str, otherwise: int = 0) -> int:
    """The whole number under a key; `otherwise` when there is none."""
    value = part.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) else otherwise


def items_of(part: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    """The list of maps under a key, with an empty map in place of each entry that is not a map."""
    value = part.get(key)
    return [mapping(entry) for entry in value] if isinstance(value, list) else []


class Trouble:
    """The last failure of a stream, as text; empty while all is well. Written by the iterating thread."""

    def __init__(self) -> None:
        self.text = ""


class TellingStream(Generator[T]):
    """A generator with a property `trouble`: the failure that stops the generator's progress. Any thread may read it.

    The stages of the stream write a `Trouble` and hold no reference to this object. Such a reference would form a
    cycle, and after a `break` in the loop over the stream its connection would stay open until the garbage collector
    runs.
    """

    def __init__(self, stream: Generator[T], trouble: Trouble) -> None:
        self._stream = stream
        self._trouble = trouble

    @property
    def trouble(self) -> str:
        """The last failure, as text; empty while all is well."""
        return self._trouble.text

    def __next__(self) -> T:
        return next(self._stream)

    def send(self, value: None) -> T:
        return self._stream.send(value)

    def throw(self, *error: Any) -> T:
        return self._stream.throw(*error)

    def close(self) -> None:
        """Close the generator. Only the iterating thread may call this."""
        self._stream.close()


@contextmanager
def closing_source(source: Iterable[Any]) -> Iterator[None]:
    """Close `source` at the end of the block if it can be closed (generators can, lists cannot)."""
    try:
        yield
    finally:
        close = getattr(source, "close", None)
        if close is not None:
            close()


def failed_attribute(obj: Any, name: str) -> None:
    """For a `__getattr__`: raise the error of a property (or another descriptor of the class) called `name`.

    Python also calls `__getattr__` after an AttributeError in a property, and drops that error. The property is read
    again here, so that its error is raised.
    """
    for cls in type(obj).__mro__:
        if name in cls.__dict__:
            if hasattr(found := cls.__dict__[name], "__get__"):
                found.__get__(obj, type(obj))
            return
