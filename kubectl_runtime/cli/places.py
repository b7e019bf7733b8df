"""MODULE:NAME on a command line: something in somebody's module, which is imported to find it.

Modules are found as `python -m` finds them: in the current folder, then on Python's path. What goes wrong is a
CommandError that says what to do; an exception of the module's own code comes with its traceback, and without the
frames of those who called it.
"""
from __future__ import annotations

import argparse
import difflib
import importlib
import importlib.util
import io
import os
import sys
import traceback
from collections.abc import Callable, Iterable
from difflib import get_close_matches
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import kubectl_runtime
from kubectl_runtime.core.base.errors import RequestError
from kubectl_runtime.core.base.guard import printable
from kubectl_runtime.core.requests.request import checked_label, checked_subdomain

_OURS = str(Path(kubectl_runtime.__file__).parent) + os.sep
_MACHINERY = (_OURS, "<frozen ", "<string>", importlib.__file__.removesuffix("__init__.py"))
"""Frames of these files are not the user's: this package, Python's import, and methods that dataclasses generate."""


SEVERAL_LINES = "\n\t"
"""What a text that may have several lines keeps, as `printable` takes it."""


class CommandError(Exception):
    """What was asked for cannot be done; the text says why, to the person at the terminal."""

    status = 1
    """The exit status."""


class UsageError(CommandError):
    """The command line is wrong; the text says what to write instead. The exit status is 2, as for argparse."""

    status = 2


def shown(error: Exception) -> str:
    """The text of an error for a terminal, without what would move it. Only a CommandError may have several lines: some
    end with a traceback."""
    return printable(str(error), keep=SEVERAL_LINES if isinstance(error, CommandError) else "")


class Place(NamedTuple):
    """A module and a name in it, as MODULE:NAME says them."""

    module: str
    name: str

    def __str__(self) -> str:
        return f"{self.module}:{self.name}"


def place(text: str) -> Place:
    """A `Place`, as a type of argparse: a text of another form ends with the status of a wrong command line."""
    module, colon, name = text.partition(":")
    if module.endswith(".py") or os.sep in module:
        meant = module.removesuffix(".py").strip(os.sep).replace(os.sep, ".")
        raise argparse.ArgumentTypeError(f"{text!r} names a file; a module is named as `import` does: "
                                         f"{meant}:{name or 'NAME'}")
    if not all(part.isidentifier() for part in module.split(".")) or not name.isidentifier():
        more = "" if colon else ": what of the module is meant stands behind a colon"
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form MODULE:NAME, such as my_package.operator:main"
                                         f"{more}")
    return Place(module, name)


def checked_name(text: str) -> str:
    """The name of an object, as a type of argparse: what the API server takes for none ends with the status of a wrong
    command line."""
    return _checked(checked_subdomain, text)


def checked_namespace(text: str) -> str:
    """The name of a namespace, as `checked_name`."""
    return _checked(checked_label, text)


def _checked(check: Callable[[object, str], str], text: str) -> str:
    try:
        return check(text, "the name")
    except RequestError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def see_current_folder() -> None:
    """Let modules of the current folder be found. Needed by the console script only; `python -m` does it itself."""
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())


def imported(name: str) -> ModuleType:
    """The module of this name. Raises CommandError for whatever keeps it from being imported, UsageError when there is
    none."""
    see_current_folder()
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if f"{name}.".startswith(f"{missing}."):
            raise UsageError(f"there is no module {missing!r} in {os.getcwd()} or on Python's path: say it from the "
                             f"folder that holds it, or install it beside {sys.executable}") from None
        remedy = f"; what it needs has to be installed beside {sys.executable}" if missing else ""
        raise CommandError(f"{name} cannot be imported: {error}{remedy}\n{users_traceback(error)}") from error
    except (Exception, SystemExit) as error:  # whatever the module does when it is imported
        raise CommandError(f"{name} cannot be imported: {type(error).__name__}: {error}\n"
                           f"{users_traceback(error)}") from error
    _check_not_shadowed(name, module)
    return module


def hint(name: str, known: Iterable[str], what: str) -> str:
    """What to say of a name that is not there: the one that was probably meant, and all that there are."""
    names = sorted(known)
    near = get_close_matches(name, names, n=1)
    meant = f" (did you mean {near[0]}?)" if near else ""
    return f"{meant}; its {what}: {', '.join(names) or 'none'}"


def users_traceback(error: BaseException) -> str:
    """The traceback of `error`, without the frames by which this program came to the user's code, and without those of
    this package that the user's code went into."""
    shown = traceback.TracebackException.from_exception(error)
    seen: set[int] = set()
    parts: list[traceback.TracebackException | None] = [shown]
    while parts:
        part = parts.pop()
        if part is None or id(part) in seen:
            continue
        seen.add(id(part))
        part.stack = traceback.StackSummary.from_list(_users(part.stack))
        parts += [part.__cause__, part.__context__]
    return "".join(shown.format()).rstrip("\n")


def _users(frames: traceback.StackSummary) -> list[traceback.FrameSummary]:
    mine = [number for number, frame in enumerate(frames) if not frame.filename.startswith(_MACHINERY)]
    return frames[mine[0]:mine[-1] + 1] if mine else []


def _check_not_shadowed(name: str, module: ModuleType) -> None:
    """A file of the current folder that has the name of a module which Python had loaded before."""
    wanted = Path.cwd().joinpath(*name.split(".")).with_suffix(".py")
    found = getattr(module, "__file__", None)
    if wanted.is_file() and (found is None or not wanted.samefile(found)):
        raise CommandError(f"{name} is {found or 'a part of Python'}, which was imported before {wanted} could be: "
                           "give the file another name")


def print_utf8(text: str) -> None:
    """Print the text of a file as UTF-8, whatever the terminal's encoding is: it may be redirected into one."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8")
    print(text, end="")


def objects_in(file: Path) -> list[dict[str, Any]]:
    """The objects of a file of manifests, in its order. Raises CommandError."""
    from kubectl_runtime.manifests.documents import read_objects
    from kubectl_runtime.manifests.scalars import ManifestError

    try:
        return [found for found, _ in read_objects(file)]
    except (OSError, ManifestError) as error:
        raise CommandError(f"{file}: {error}") from None


def check_written(file: Path, written: list[dict[str, Any]], wanted: list[dict[str, Any]], source: str,
                  command: str) -> None:
    """Compare what a file holds with what `source` gives now. Raises CommandError where they differ, after the
    difference was printed, with the `command` that writes the file."""
    from kubectl_runtime.manifests.yaml_text import documents_to_yaml

    if written == wanted:
        return
    before, after = (documents_to_yaml(objects, width=120).splitlines() for objects in (written, wanted))
    difference = difflib.unified_diff(before, after, str(file), source, lineterm="")
    print(*(printable(line, keep="\t") for line in difference), sep="\n")
    raise CommandError(f"{file} differs from {source}; to update it: {command} > {file}")
