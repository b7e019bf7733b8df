"""Log lines that name their run, and log levels from an environment variable; all with the standard `logging`.

    from kubectl_runtime.observe import logs
    logs.setup()                       # lines to stderr, levels from KUBECTL_RUNTIME_LOG (default: info)
    logs.setup(json=True)              # one JSON object per line

    KUBECTL_RUNTIME_LOG=debug                              all log lines of the library
    KUBECTL_RUNTIME_LOG=info,controller.cmg=debug          also a line for each run of the controller cmg
    KUBECTL_RUNTIME_LOG=warn,runtime.watcher=info,app=off  any logger; omit `kubectl_runtime.` in names

A controller and its runs use the logger `kubectl_runtime.controller.NAME`; a module uses the logger of its name.

`RunFilter` adds the attributes below to each record that is made inside a run. `setup` adds a `RunFilter` to its
handler; add one to each handler of your own. Nothing is installed at import.

    controller, kind, namespace, object_name, reconcile_id, reason, ref
    trace_id, span_id                   of traced runs (see `Tracing`)

In a record, `name` is the logger's name, and `object_name` is the object's name. In JSON, `logger` is the logger's
name, and `name` is the object's name.
"""
from __future__ import annotations

import json
import logging
import os
import sys
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, TextIO

import msgspec

from kubectl_runtime.core.base.guard import guarded_logger, printable
from kubectl_runtime.core.meta.gvk import ObjectRef
from kubectl_runtime.core.scope import LoggedRun, current_scope

VARIABLE = "KUBECTL_RUNTIME_LOG"
ROOT = "kubectl_runtime"

_LEVELS = {"debug": logging.DEBUG, "trace": logging.DEBUG, "info": logging.INFO, "warn": logging.WARNING,
           "warning": logging.WARNING, "error": logging.ERROR, "critical": logging.CRITICAL,
           "off": logging.CRITICAL + 10}
_OWN_ROOMS = frozenset(("apiserver", "cli", "client", "controller", "core", "crd", "kubectl", "manager", "manifests",
                        "resources", "runtime", "schema", "testing", "webhooks"))
_STANDARD = frozenset((*vars(logging.makeLogRecord({})), "message", "asctime", "taskName", "ref"))

log = guarded_logger(__name__)


def run_fields(run: LoggedRun) -> dict[str, Any]:
    """The attributes of log records that belong to `run`, for `extra=`."""
    ref = run.ref
    return {"controller": run.controller, "kind": ref.kind, "namespace": ref.namespace, "object_name": ref.name,
            "reconcile_id": run.reconcile_id, "reason": str(run.reason), "ref": ref}


class RunFilter(logging.Filter):
    """Adds the run's attributes to records that are made inside a run. Passes every record."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Add the attributes of the current run, if any, to the record. Returns True."""
        scope = current_scope()
        if scope is None:
            return True
        run, trace = scope.logged, scope.trace
        if run is not None and not hasattr(record, "reconcile_id"):
            for name, value in run_fields(run).items():
                if not hasattr(record, name):
                    setattr(record, name, value)
        if trace is not None and not trace.over and not hasattr(record, "trace_id"):
            record.trace_id, record.span_id = trace.trace_id, trace.span_id
        return True


class TextFormatter(logging.Formatter):
    """`time LEVEL logger: message [ID Kind namespace/name]`. The brackets appear only inside a run. They leave out what
    the message already contains.

    Untrusted text cannot forge a line: control characters and line breaks are escaped as in Python's literals. The
    lines of a traceback are indented. If the template of a message has several lines, the further lines are indented,
    too.
    """

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(name)s: %(message)s")

    def format(self, record: logging.LogRecord) -> str:
        """The line, followed by the traceback and the stack if the record has them."""
        record.message = record.getMessage()
        record.asctime = self.formatTime(record, self.datefmt)
        text = self.formatMessage(record)
        # Prefer `exc_info`: other formatters leave unescaped, unindented text in `exc_text`.
        trace = self.formatException(record.exc_info) if record.exc_info else record.exc_text
        return "".join((text, *(_below(part) for part in (trace, record.stack_info) if part)))

    def formatMessage(self, record: logging.LogRecord) -> str:
        """The line, followed in brackets by the parts of the run that the message does not contain."""
        text = super().formatMessage(record)
        if record.args and isinstance(record.msg, str) and "\n" in record.msg:
            first, *rest = text.split("\n")
            text = "".join((printable(first), *map(_below, rest)))
        else:
            text = printable(text)
        return f"{text}{printable(self._run(record, text))}"

    def _run(self, record: logging.LogRecord, text: str) -> str:
        identity = getattr(record, "reconcile_id", None)
        if identity is None or identity in text:
            return ""
        ref = getattr(record, "ref", None)
        if isinstance(ref, ObjectRef) and printable(said(ref)) not in text:
            return f" [{identity} {said(ref)}]"
        return f" [{identity}]"


def _below(text: str) -> str:
    """The lines of `text` for the output below a log line, indented so that none looks like a log line."""
    return "".join(f"\n  {printable(line)}" for line in text.split("\n"))


class JsonFormatter(logging.Formatter):
    """One JSON object per line: time, level, logger, message, the run's fields, the record's `extra`, exception."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as one line of JSON."""
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line: dict[str, Any] = {
            "time": time.replace("+00:00", "Z"), "level": record.levelname.lower(), "logger": record.name,
            "message": record.getMessage()}
        for name, value in vars(record).items():
            if name not in _STANDARD and value is not None:
                line["name" if name == "object_name" else name] = value
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        if record.stack_info:
            line["stack"] = self.formatStack(record.stack_info)
        try:
            return msgspec.json.encode(line, enc_hook=str).decode()
        except UnicodeEncodeError:  # lone surrogates, as in file names that are not UTF-8
            return json.dumps(line, default=str)


def said(ref: ObjectRef) -> str:
    """The name of an object in log lines: `ConfigMap default/a`, `Namespace a`."""
    return f"{ref.kind} {ref.namespace}/{ref.name}" if ref.namespace else f"{ref.kind} {ref.name}"


def parse_levels(text: str) -> tuple[dict[str, int], list[str]]:
    """Parse directives in `env_logger` format. Returns the levels by logger name, and the unreadable directives.

    `info` sets the level of the whole library, `name=level` that of one logger and the loggers below it. `name` alone
    sets that logger to `debug`, but only if the name has a dot or is a part of this library, such as `client`: any
    other word may be a misspelt level.
    """
    levels: dict[str, int] = {}
    wrong: list[str] = []
    for directive in filter(None, (part.strip() for part in text.split(","))):
        name, equals, level = directive.partition("=")
        name, level = name.strip(), level.strip().lower()
        if not equals:
            if name.lower() in _LEVELS:
                name, level = "", name.lower()
            elif "." in name or name in _OWN_ROOMS or name == ROOT:
                level = "debug"
        if level in _LEVELS and (name or not equals) and not set(name) & {" ", "\t"}:
            levels[_logger_name(name)] = _LEVELS[level]
        else:
            wrong.append(directive)
    return levels, wrong


def apply_levels(text: str) -> None:
    """Set the levels that these directives name. A directive that cannot be read is ignored with a warning."""
    levels, wrong = parse_levels(text)
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)
    for directive in wrong:
        log.warning("log levels (%s): ignoring %r: write a level (%s), or LOGGER=LEVEL", VARIABLE, directive,
                    ", ".join(_LEVELS))


def setup(default: str = "info", *, json: bool = False, stream: TextIO | None = None,
          environ: Mapping[str, str] | None = None) -> logging.Handler:
    """Write the logs of the library and the program to `stream` (default: stderr), and set the levels. For programs,
    not libraries.

    The directives in `default` are applied first, then those in the variable KUBECTL_RUNTIME_LOG. Returns the handler
    that was added to the root logger. The root logger's level does not change. A second call replaces the handler.
    """
    handler = _Handler(stream if stream is not None else sys.stderr)
    handler.setFormatter(JsonFormatter() if json else TextFormatter())
    handler.addFilter(RunFilter())
    root = logging.getLogger()
    for old in [old for old in root.handlers if isinstance(old, _Handler)]:
        root.removeHandler(old)
    root.addHandler(handler)
    apply_levels(default)
    apply_levels((os.environ if environ is None else environ).get(VARIABLE, ""))
    return handler


class _Handler(logging.StreamHandler[TextIO]):
    """The handler that `setup` adds; its class lets a second call find it."""


def _logger_name(name: str) -> str:
    if not name:
        return ROOT
    return f"{ROOT}.{name}" if name.partition(".")[0] in _OWN_ROOMS else name
