"""`Sources`: the Python files of a program, and which of them have changed since the last look.

    module found in the current folder    all below that folder
    module found elsewhere                its package, or the one file, if it is not an installed one
    module not found                      all below the current folder: it may come

What has a dot in front, environments and caches are left out. A look costs one `stat` a file.
"""
from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Iterator
from pathlib import Path

_LEFT_OUT = frozenset(("__pycache__", "node_modules", "site-packages", "dist-packages"))

Look = dict[str, tuple[int, int]]


class Sources:
    """For one thread."""

    def __init__(self, module: str) -> None:
        """`module` is not imported."""
        self.roots = roots_of(module)
        self._last = self._look()

    def changed(self) -> list[str]:
        """The files that came, went, or are others than at the last call, sorted."""
        now, before = self._look(), self._last
        self._last = now
        return sorted(name for name in now.keys() | before.keys() if now.get(name) != before.get(name))

    def _look(self) -> Look:
        found: Look = {}
        for root in self.roots:
            for name in files_below(root):
                try:
                    state = os.stat(name)
                except OSError:  # it went, or is a link to nothing
                    continue
                found[name] = (state.st_mtime_ns, state.st_size)
        return found


def roots_of(module: str) -> list[Path]:
    """Folders and files; see the module."""
    here = Path.cwd()
    top = module.partition(".")[0]
    try:
        spec = importlib.machinery.PathFinder.find_spec(top, [str(here), *sys.path])
    except (ImportError, ValueError):
        spec = None
    if spec is None:
        return [here]
    folders = [Path(folder).resolve() for folder in spec.submodule_search_locations or ()]
    found = folders or ([Path(spec.origin).resolve()] if spec.origin else [])
    if not found or any(path.is_relative_to(here.resolve()) for path in found):
        return [here]
    return [path for path in found if not _LEFT_OUT & set(path.parts)]


def files_below(root: Path) -> Iterator[str]:
    """The Python files below a folder, or the file."""
    if root.is_file():
        yield str(root)
        return
    for folder, folders, names in os.walk(root):
        if "pyvenv.cfg" in names and folder != str(root):  # an environment, whatever it is called
            folders.clear()
            continue
        folders[:] = [name for name in folders if not name.startswith(".") and name not in _LEFT_OUT]
        yield from (os.path.join(folder, name) for name in names if name.endswith(".py") and not name.startswith("."))
