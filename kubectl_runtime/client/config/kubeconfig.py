"""`Kubeconfig`: kubeconfig files, found, read and merged as kubectl does. No credential is used or tried here.

    $KUBECONFIG (a list of files) or ~/.kube/config  ->  typed documents  ->  one Kubeconfig, each section by name

The first file that defines a name wins, whole; so does the first `current-context` that is not empty. Missing files and
empty list entries are skipped. `null` lists are empty lists. A name may occur once in a list. Types are checked
everywhere (see kubeconfig_types), whether something is complete only when a context is chosen (see chosen_context).
Unlike kubectl, which reads the first document of a file, all of a file's documents are merged, as kube-rs does.
"""
from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, Self, TypeVar

import msgspec
from msgspec import field

from kubectl_runtime.client.config.kubeconfig_types import Cluster, Context, User, typed
from kubectl_runtime.client.config.secrets import frames_hidden, reading_problem, secret_file
from kubectl_runtime.core.base.errors import ConfigError
from kubectl_runtime.manifests.documents import decode_text, read_text
from kubectl_runtime.manifests.problems import ManifestError

Content = TypeVar("Content", Cluster, User, Context)


class UnreadableError(ConfigError):
    """The system does not let this process read a file that may be there."""


class Entry(msgspec.Struct, Generic[Content], frozen=True):
    """A cluster, user or context and where it stands: `place` is file and field, for messages; relative paths in it
    count from `folder`.
    """

    content: Content
    place: str
    folder: Path


class Kubeconfig(msgspec.Struct):
    """The merged content of some kubeconfigs. Its repr shows names only."""

    clusters: dict[str, Entry[Cluster]] = field(default_factory=dict)
    users: dict[str, Entry[User]] = field(default_factory=dict)
    contexts: dict[str, Entry[Context]] = field(default_factory=dict)
    current_context: str = ""
    files: list[str] = field(default_factory=list)

    def is_empty(self) -> bool:
        """Whether it configures nothing at all, as a file of only comments or nulls."""
        return not (self.clusters or self.users or self.contexts or self.current_context)

    @classmethod
    def read(cls, paths: Iterable[Path]) -> Self:
        """The content of those `paths` that exist. Raises ConfigError for a file that cannot be read or is not a
        kubeconfig."""
        merged = cls()
        for path in paths:
            content = _content(path)
            if content is not None:
                absolute = Path(os.path.abspath(path))  # not resolve(): paths count from where a symlink stands
                with frames_hidden():
                    merged._merge_text(content, str(absolute), absolute.parent)
        return merged

    @classmethod
    def from_text(cls, text: str | bytes, source: str = "the kubeconfig text") -> Self:
        """From YAML or JSON; relative paths in it count from the working directory. Raises ConfigError."""
        made = cls()
        with frames_hidden():
            made._merge_text(text, source, Path.cwd())
        return made

    @classmethod
    def from_dict(cls, content: Mapping[str, Any], source: str = "the kubeconfig mapping") -> Self:
        """From a mapping as a YAML reader gives it; as `from_text`."""
        made = cls(files=[source])
        with frames_hidden():
            made._merge(content, source, Path.cwd())
        return made

    def _merge_text(self, text: str | bytes, source: str, folder: Path) -> None:
        self.files.append(source)
        try:
            decoded = decode_text(text, strict=True) if isinstance(text, bytes) else text
            documents = read_text(decoded, source)
        except UnicodeError:
            raise ConfigError(f"the kubeconfig {source} is not text") from None
        except ManifestError as error:
            raise ConfigError(f"the kubeconfig {source} is not valid YAML{_line(error)}") from None
        for document in documents:
            place = source if len(documents) == 1 else f"{source}, document {document.number}"
            self._merge(document.value, place, folder)

    def _merge(self, value: object, source: str, folder: Path) -> None:
        if not isinstance(value, Mapping):
            raise ConfigError(f"the kubeconfig {source} is not a mapping")
        document = typed(value, source)
        _add(self.clusters, "clusters", source, folder,
             [(entry.name, entry.cluster) if entry else None for entry in document.clusters or ()], Cluster)
        _add(self.users, "users", source, folder,
             [(entry.name, entry.user) if entry else None for entry in document.users or ()], User)
        _add(self.contexts, "contexts", source, folder,
             [(entry.name, entry.context) if entry else None for entry in document.contexts or ()], Context)
        self.current_context = self.current_context or document.current_context or ""

    def __repr__(self) -> str:
        return f"<Kubeconfig {', '.join(self.files)} with the contexts {', '.join(self.contexts) or 'none'}>"


def candidates(environ: Mapping[str, str]) -> list[Path]:
    """The files that configure this process, in order of rank; they need not exist. None where there is no home.

    Raises ConfigError for a `~user` in `$KUBECONFIG` that does not exist.
    """
    listed = environ.get("KUBECONFIG", "")
    if listed.strip(os.pathsep + " "):
        return [expanded(entry) for entry in listed.split(os.pathsep) if entry.strip()]
    home = environ.get("HOME") or os.path.expanduser("~")
    return [Path(home, ".kube", "config")] if home != "~" else []  # "~": not even the user database knows a home


def listed_paths(source: object) -> list[str | os.PathLike[str]]:
    """One path or several, as a list. Raises ConfigError for anything else."""
    paths = [source] if isinstance(source, (str, os.PathLike)) else source
    if not isinstance(paths, Sequence) or not all(isinstance(path, (str, os.PathLike)) for path in paths):
        raise ConfigError("a kubeconfig is given as a path, a list of paths or a mapping, or its text as text=; "
                          f"not as a {type(source).__name__}")
    return list(paths)


def expanded(path: str | os.PathLike[str]) -> Path:
    """`path` with its `~`. Raises ConfigError for a home that nobody knows."""
    try:
        return Path(path).expanduser()
    except RuntimeError:
        raise ConfigError(f"the kubeconfig path {os.fspath(path)} begins with ~, but no home folder is known: "
                          "set HOME, or name the file in full") from None


def _content(path: Path) -> bytes | None:
    try:
        return secret_file(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise UnreadableError(f"cannot read the kubeconfig {path}: {error.strerror}") from None
    except ValueError as error:
        raise ConfigError(f"cannot read the kubeconfig {str(path)!r}: {reading_problem(error)}") from None


def _add(known: dict[str, Entry[Content]], section: str, source: str, folder: Path,
         entries: list[tuple[str | None, Content | None] | None], kind: type[Content]) -> None:
    own: set[str] = set()
    for index, entry in enumerate(entries):
        name, content = entry or (None, None)
        name = name or ""
        place = f"{source}: {section}[{index}]"
        if name in own:
            raise ConfigError(f"{place}: the name {name!r} occurs twice in {section}")
        own.add(name)
        known.setdefault(name, Entry(content or kind(), f"{place}.{section[:-1]}", folder))


def _line(error: ManifestError) -> str:
    """Line and column; never the error's own text, which quotes the file."""
    return f" (line {error.line}, column {error.column})" if error.column else f" (line {error.line})"
