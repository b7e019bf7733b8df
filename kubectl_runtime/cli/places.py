"""MODULE:NAME on a command line: imports the user's module and finds a name in it.

Modules are found as `python -m` finds them: in the current folder, then on Python's path. A failure raises CommandError
with a remedy. If the module's own code raises, the error contains the traceback from the module's first frame on.
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
"""Files whose frames are left out of tracebacks: this package, Python's import, and methods that dataclasses
generate."""


SEVERAL_LINES = "\n\t"
"""The control characters that `printable` keeps in a text of several lines."""


class CommandError(Exception):
    """A command cannot be carried out; the text tells the user why."""

    status = 1
    """The exit status of the command."""


class UsageError(CommandError):
    """A wrong command line; the text says what to write instead. The exit status is 2, as for argparse."""

    status = 2


def shown(error: Exception) -> str:
    """The error's text without control characters, for a terminal. Only a CommandError may have several lines, since
    some CommandErrors end with a traceback."""
    return printable(str(error), keep=SEVERAL_LINES if isinstance(error, CommandError) else "")


class Place(NamedTuple):
    """A module and a name in it, parsed from MODULE:NAME."""

    module: str
    name: str

    def __str__(self) -> str:
        return f"{self.module}:{self.name}"


def place(text: str) -> Place:
    """Parse MODULE:NAME into a `Place`, as an argparse type. Raises ArgumentTypeError for a text of another form."""
    module, colon, name = text.partition(":")
    if module.endswith(".py") or os.sep in module:
        meant = module.removesuffix(".py").strip(os.sep).replace(os.sep, ".")
        raise argparse.ArgumentTypeError(f"{text!r} names a file; name the module as `import` does: "
                                         f"{meant}:{name or 'NAME'}")
    if not all(part.isidentifier() for part in module.split(".")) or not name.isidentifier():
        more = "" if colon else ": write a colon and the name in the module after it"
        raise argparse.ArgumentTypeError(f"{text!r} is not of the form MODULE:NAME, such as my_package.operator:main"
                                         f"{more}")
    return Place(module, name)


def checked_name(text: str) -> str:
    """Check an object's name by the API server's rules, as an argparse type."""
    return _checked(checked_subdomain, text)


def checked_namespace(text: str) -> str:
    """Check a namespace's name, like `checked_name`."""
    return _checked(checked_label, text)


def _checked(check: Callable[[object, str], str], text: str) -> str:
    try:
        return check(text, "the name")
    except RequestError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def see_current_folder() -> None:
    """Make modules of the current folder importable, as `python -m` does. Only the console script needs this call."""
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())


def imported(name: str) -> ModuleType:
    """Import the module of this name. Raises CommandError if that fails, UsageError if there is no such module."""
    see_current_folder()
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        missing = error.name or ""
        if f"{name}.".startswith(f"{missing}."):
            raise UsageError(f"there is no module {missing!r} in {os.getcwd()} or on Python's path: run the command in "
                             f"the folder that holds it, or install it beside {sys.executable}") from None
        remedy = f"; what it needs has to be installed beside {sys.executable}" if missing else ""
        raise CommandError(f"{name} cannot be imported: {error}{remedy}\n{users_traceback(error)}") from error
    except (Exception, SystemExit) as error:  # the module's code may raise anything
        raise CommandError(f"{name} cannot be imported: {type(error).__name__}: {error}\n"
                           f"{users_traceback(error)}") from error
    _check_not_shadowed(name, module)
    return module


def hint(name: str, known: Iterable[str], what: str) -> str:
    """Suggest the name that was probably meant, and list all names that exist."""
    names = sorted(known)
    near = get_close_matches(name, names, n=1)
    meant = f" (did you mean {near[0]}?)" if near else ""
    return f"{meant}; its {what}: {', '.join(names) or 'none'}"


def users_traceback(error: BaseException) -> str:
    """The traceback of `error` from the first to the last frame of the user's code. The frames before and after these,
    which belong to this library and to Python's import, are left out."""
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
    """Raise CommandError for a file of the current folder with the name of a Python module that is already loaded."""
    wanted = Path.cwd().joinpath(*name.split(".")).with_suffix(".py")
    found = getattr(module, "__file__", None)
    if wanted.is_file() and (found is None or not wanted.samefile(found)):
        raise CommandError(f"{name} is {found or 'a part of Python'}, which was imported before {wanted} could be: "
                           f"give {wanted.name} another name")


def print_utf8(text: str) -> None:
    """Print `text` as UTF-8, whatever the terminal's encoding is, since the output may be redirected into a file."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(encoding="utf-8")
    print(text, end="")


def objects_in(file: Path) -> list[dict[str, Any]]:
    """Return the objects of a manifest file, in file order. Raises CommandError."""
    from kubectl_runtime.manifests.documents import read_objects
    from kubectl_runtime.manifests.scalars import ManifestError

    try:
        return [found for found, _ in read_objects(file)]
    except (OSError, ManifestError) as error:
        raise CommandError(f"{file}: {error}") from None


def check_written(file: Path, written: list[dict[str, Any]], wanted: list[dict[str, Any]], source: str,
                  command: str) -> None:
    """Compare the objects `written` in a file with the `wanted` objects, which `source` produces now. If they differ,
    print the difference and raise CommandError, which names the `command` that updates the file."""
    from kubectl_runtime.manifests.yaml_text import documents_to_yaml

    if written == wanted:
        return
    before, after = (documents_to_yaml(objects, width=120).splitlines() for objects in (written, wanted))
    difference = difflib.unified_diff(before, after, str(file), source, lineterm="")
    print(*(printable(line, keep="\t") for line in difference), sep="\n")
    raise CommandError(f"{file} differs from {source}; to update it: {command} > {file}")
