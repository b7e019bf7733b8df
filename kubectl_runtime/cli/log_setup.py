"""How the commands that run an operator write logs: the library's lines, and those of the program, to standard error.

    text    time LEVEL logger: message        json    one object a line
    short   the same for eyes: a time of day, the library's loggers without its name, colours on a terminal; what
            controllers and the command say themselves, the manager does not say again

The level of `--log-level`, else of the environment, is that of the library and of the program's own package; everything
else is heard from INFO on, so that nobody has to read how urllib3 works. Warnings of Python are lines of the log, too.
"""
from __future__ import annotations

import argparse
import logging
import os
import sys
import warnings
from typing import TextIO

from kubectl_runtime.runtime import logs

_SAID_ALREADY = ",".join(f"runtime.{name}=warn" for name in (
    "observe.health_server", "manager.servers", "manager.manager_end", "manager.manager_running"))
_COLOURS = {logging.WARNING: "33", logging.ERROR: "31", logging.CRITICAL: "1;31", logging.DEBUG: "2"}


def level_option(text: str) -> str:
    """What `--log-level` says, unchanged, as a type of argparse: a text that cannot be read ends with the status of a
    wrong command line, and the list of levels."""
    _, wrong = logs.parse_levels(text)
    if wrong:
        raise argparse.ArgumentTypeError(f"{', '.join(map(repr, wrong))}: write a level (debug, info, warn, error or "
                                         "off), or LOGGER=LEVEL")
    return text


class ShortFormatter(logs.TextFormatter):
    """Formats log lines for people who develop: `17:04:59 WARNING controller.widget: message [ID Kind
    namespace/name]`."""

    def __init__(self, *, colours: bool) -> None:
        super().__init__()
        self.datefmt, self.default_msec_format = "%H:%M:%S", ""
        self._colours = colours

    def formatMessage(self, record: logging.LogRecord) -> str:
        name = record.name
        record.name = name.removeprefix(f"{logs.ROOT}.")
        try:
            text = super().formatMessage(record)
        finally:
            record.name = name  # other handlers see the same record
        colour = _COLOURS.get(record.levelno) if self._colours else None
        return f"\x1b[{colour}m{text}\x1b[0m" if colour else text


def _log_warning(message: Warning | str, category: type[Warning], filename: str, lineno: int,
                 file: TextIO | None = None, line: str | None = None) -> None:
    """What `warnings.warn` says, as a line of the log. Instead of `logging.captureWarnings`, whose text has two."""
    if file is not None:
        file.write(warnings.formatwarning(message, category, filename, lineno, line))
        return
    logging.getLogger("py.warnings").warning("%s:%d: %s: %s", filename, lineno, category.__name__, message)


def set_up_logs(form: str, levels: str | None, package: str, *, stream: TextIO | None = None) -> None:
    """Write logs to `stream` (standard error). `form`: text, json or short. `levels`: as `--log-level`, None for the
    environment's. `package`: the program's."""
    stream = sys.stderr if stream is None else stream
    wanted = levels if levels is not None else os.environ.get(logs.VARIABLE) or "info"
    handler = logs.setup(f"{_SAID_ALREADY},{wanted}" if form == "short" else wanted, json=form == "json",
                         stream=stream, environ={})
    if form == "short":
        handler.setFormatter(ShortFormatter(colours=stream.isatty() and "NO_COLOR" not in os.environ))
    warnings.showwarning = _log_warning
    level = logs.parse_levels(wanted)[0].get(logs.ROOT, logging.INFO)
    logging.getLogger().setLevel(max(level, logging.INFO))
    if logging.getLogger(package).level == logging.NOTSET:  # the directives may name it
        logging.getLogger(package).setLevel(level)
