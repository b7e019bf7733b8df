"""The options of a controller: their names, types, defaults and checks.

Each option has one line in `StreamOptions` or `WatchOptions`, which declare the arguments that a caller may pass. Each
also has one field in `ControllerOptions`, with its default and its check; the parts of the controller read that field.
`Controller` and `for_stream` take the options as `**options`, and show them in their signatures. Optional callbacks and
times are set by methods instead, such as `on_result`.
"""
from __future__ import annotations

import inspect
import re
import warnings
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, Field, dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypedDict, TypeVar

import msgspec

from kubectl_runtime.client.api.client import OwnWrites
from kubectl_runtime.core.base.errors import RequestError
from kubectl_runtime.core.base.guard import check_callback, check_type
from kubectl_runtime.core.base.observer import Observer, together
from kubectl_runtime.core.base.threads import Duration, duration_of, seconds
from kubectl_runtime.core.codec.views import Modify
from kubectl_runtime.core.meta.gvk import ApiResource
from kubectl_runtime.runtime.queue.runs import DEFAULT_KEY_BACKOFF, RETRY_RATE, KeyBackoff, RetryRateLimit
from kubectl_runtime.runtime.store.indexes import IndexFunctions, check_indexes
from kubectl_runtime.runtime.triggers.predicates import Predicate
from kubectl_runtime.runtime.watch.backoff import WatchBackoff
from kubectl_runtime.runtime.watch.config import DEFAULT_CONFIG, WatcherConfig

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from kubectl_runtime.client.api.client import Client

K = TypeVar("K")
F = TypeVar("F", bound=Callable[..., Any])


class Debounce(msgspec.Struct, frozen=True):
    """Run an object once it has not changed for `quiet`, and at the latest `max_wait` after its first change.

    Durations are seconds or `timedelta`; `max_wait` defaults to ten times `quiet`. Raises RequestError when a duration
    is invalid or `max_wait` is shorter than `quiet`.

    >>> controller = Controller(Api.all(client, ConfigMap), debounce=Debounce(1, max_wait=5))
    """

    quiet: Duration
    max_wait: Duration | None = None

    def __post_init__(self) -> None:
        quiet = duration_of("debounce", self.quiet)
        if self.max_wait is not None and duration_of("max_wait", self.max_wait) < quiet:
            raise RequestError(f"debounce must be at most max_wait ({self.max_wait}), not {self.quiet}")

    @property
    def limit(self) -> float | None:
        """`max_wait` in seconds; None if not given."""
        return None if self.max_wait is None else seconds(self.max_wait)


AT_ONCE = Debounce(0)


class StreamOptions(TypedDict, Generic[K], total=False):
    """The options of both `Controller` and `Controller.for_stream`."""

    concurrency: int
    debounce: Duration | Debounce
    backoff: KeyBackoff
    name: str | None
    predicate: Predicate[K] | None
    observer: Observer | None
    executor: Executor | None
    retry_rate: float | None
    own_writes: OwnWrites | None
    ready: str | None


class WatchOptions(StreamOptions[K], Generic[K], total=False):
    """The options of `Controller`, which makes its own watch."""

    watch: WatcherConfig
    modify: Modify | None
    record: str | Path | None
    indexes: IndexFunctions[K] | None


def _by(check: Callable[[str, Any], Any]) -> dict[str, Any]:
    """Field metadata with the check: the field's value becomes `check(name, value)`, which may raise RequestError."""
    return {"check": check}


def _of_type(kind: type, example: str) -> Callable[[str, Any], Any]:
    def check(what: str, value: Any) -> Any:
        check_type(what, value, kind, example)
        return value
    return check


def _or_none(check: Callable[[str, Any], Any]) -> Callable[[str, Any], Any]:
    return lambda what, value: None if value is None else check(what, value)


def _workers(what: str, value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise RequestError(f"{what} must be a whole number of at least 1, not {value}")
    return value


def _debounce(_what: str, value: Any) -> Debounce:
    return value if isinstance(value, Debounce) else Debounce(value)


def _modify(what: str, value: Any) -> Any:
    check_callback(what, value, "obj")
    return value


def _rate(_what: str, value: Any) -> float:
    RetryRateLimit(value)  # raises for a number that is out of range
    return float(value)


def _file(what: str, value: Any) -> Path:
    if not isinstance(value, str | Path) or not str(value).strip() or Path(value).is_dir():
        raise RequestError(f"{what} must be the path of a file, such as Path('flight.jsonl'), not {value!r}")
    return Path(value)


_CONDITION_TYPE = re.compile(r"(?=.{1,316}\Z)([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?"
                             r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")
"""Kubernetes' rule for condition types."""


def _condition_type(what: str, value: Any) -> str:
    if not isinstance(value, str) or not _CONDITION_TYPE.fullmatch(value):
        raise RequestError(f"{what} must be the type of a condition, such as 'Ready', not {value!r}")
    return value


@dataclass(frozen=True, kw_only=True)
class ControllerOptions:
    """The options of one controller, checked and complete. Times are seconds."""

    watch: WatcherConfig = field(
        default=DEFAULT_CONFIG, metadata=_by(_of_type(WatcherConfig, 'WatcherConfig(label_selector="app=web")')))
    concurrency: int = field(default=10, metadata=_by(_workers))
    debounce: Debounce = field(default=AT_ONCE, metadata=_by(_debounce))
    backoff: KeyBackoff = field(
        default=DEFAULT_KEY_BACKOFF, metadata=_by(_of_type(KeyBackoff, "KeyBackoff(maximum=60)")))
    name: str = field(metadata=_by(_of_type(str, "'web'")))
    predicate: Predicate[Any] | None = field(default=None, metadata=_by(
        _or_none(_of_type(Predicate, "predicates.generation or predicates.when(function)"))))
    modify: Modify | None = field(default=None, metadata=_by(_or_none(_modify)))
    observer: Observer = field(metadata=_by(lambda _what, value: together(value)))
    executor: Executor | None = field(default=None, metadata=_by(lambda _what, value: value))  # checked at the start
    retry_rate: float | None = field(default=RETRY_RATE, metadata=_by(_or_none(_rate)))
    own_writes: OwnWrites = field(metadata=_by(lambda _what, value: OwnWrites.checked(value)))
    record: Path | None = field(default=None, metadata=_by(_or_none(_file)))
    ready: str | None = field(default=None, metadata=_by(_or_none(_condition_type)))
    indexes: IndexFunctions[Any] | None = field(default=None, metadata=_by(check_indexes))

    def __post_init__(self) -> None:
        for option in fields(self):
            value = option.metadata["check"](option.name, getattr(self, option.name))
            object.__setattr__(self, option.name, value)

    @classmethod
    def of(cls, given: Mapping[str, Any], client: Client, resource: ApiResource) -> ControllerOptions:
        """Complete the `given` options: a missing name comes from `resource`, other values from the client or the
        defaults. Raises like `Controller`."""
        values = dict(given)
        for name, default in (("name", resource.kind.lower()),
                              ("observer", client.observer),
                              ("own_writes", client.own_writes)):
            if values.get(name) in (None, ""):
                values[name] = default
        return cls(**values)


def takes_options(kinds: Any) -> Callable[[F], F]:
    """Check the names of the options that a method takes as `**options`, and show them in its signature.

    `kinds` is the TypedDict of the options. Any other name raises TypeError, except the names in `RENAMED`.
    """
    options: dict[str, Field[Any]] = {option.name: option for option in fields(ControllerOptions)
                                      if option.name in kinds.__annotations__}

    def decorate(method: F) -> F:
        signature: Any = inspect.signature(method)
        shown = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY,
                                   default=None if option.default is MISSING else option.default,
                                   annotation=getattr(kinds.__annotations__[name], "__forward_arg__", option.type))
                 for name, option in options.items()]
        plain = [one for one in signature.parameters.values() if one.kind is not inspect.Parameter.VAR_KEYWORD]
        changed: Any = method
        changed.__signature__ = signature.replace(parameters=[*plain, *shown])
        return method
    return decorate


RENAMED = {
    "watch_backoff": "watch=WatcherConfig(backoff=...)",
    "max_wait": "debounce=Debounce(seconds, max_wait=...)",
    "resync": "the method .resync(seconds)",
    "run_timeout": "the method .run_timeout(seconds)",
    "sync_timeout": "the method .sync_timeout(seconds)",
    "on_gone": "the method .on_gone(function)",
}
"""Options of version 0.2, and their replacements. The old options work until 0.4."""


def current_options(given: Mapping[str, Any], kinds: Any, who: str,
                    renamed: Iterable[str] = RENAMED) -> tuple[dict[str, Any], dict[str, Any]]:
    """Returns the options passed to `who` in their current form, and the values of options that are now methods.

    Warns about the `renamed` options, at the line of the caller's caller. Raises TypeError for names that are not in
    `kinds`, and RequestError for an invalid value.
    """
    options, old = dict(given), {name: given[name] for name in renamed if name in given}
    for name in old:
        del options[name]
        warnings.warn(f"{who}({name}=) is deprecated and will be removed in 0.4: use {RENAMED[name]}",
                      DeprecationWarning, stacklevel=3)
    if unknown := [name for name in options if name not in kinds.__annotations__]:
        raise TypeError(f"{who}() got an unexpected keyword argument {unknown[0]!r}; it takes "
                        f"{', '.join(kinds.__annotations__)}")
    if (rule := old.pop("watch_backoff", None)) is not None:
        check_type("watch_backoff", rule, WatchBackoff, "WatchBackoff(maximum=10)")
        watch = options.get("watch", DEFAULT_CONFIG)
        check_type("watch", watch, WatcherConfig, "WatcherConfig(label_selector=\"app=web\")")
        options["watch"] = replace(watch, backoff=rule)
    if (longest := old.pop("max_wait", None)) is not None:
        quiet = options.get("debounce", 0)
        options["debounce"] = Debounce(quiet.quiet if isinstance(quiet, Debounce) else quiet, longest)
    return options, {name: value for name, value in old.items() if value is not None}
