"""Kubeconfig files: find, read, merge, check, and select one context. No credentials are used or tried here.

    $KUBECONFIG (a list of files) or ~/.kube/config  ->  documents  ->  one merged mapping  ->  Selected

The first file that defines a name wins; so does the first `current-context` that is not empty. Missing files and empty
list entries are skipped. Relative paths count from the folder of the file that holds them. `null` lists are empty
lists. Errors name the file and the place, never its content.
"""
from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kubectl_runtime.core.base.errors import ConfigError
from kubectl_runtime.manifests.documents import decode_text, read_text
from kubectl_runtime.manifests.problems import ManifestError

_SECTIONS = {"clusters": "cluster", "users": "user", "contexts": "context"}
_PATHS = {"clusters": ("certificate-authority",), "users": ("client-certificate", "client-key", "tokenFile"),
          "contexts": ()}


@dataclass(frozen=True)
class Selected:
    """One context with its cluster and user, as mappings of the file; every path in them is absolute."""

    context: str
    cluster_name: str
    namespace: str
    cluster: Mapping[str, Any] = field(repr=False)
    user: Mapping[str, Any] = field(repr=False)
    files: tuple[str, ...] = ()

    @property
    def origin(self) -> str:
        """Where it comes from, for messages."""
        return f"context {self.context!r} of {', '.join(self.files)}"


@dataclass
class Merged:
    """The merged content of some kubeconfig files: each section by name."""

    clusters: dict[str, dict[str, Any]] = field(default_factory=dict)
    users: dict[str, dict[str, Any]] = field(default_factory=dict)
    contexts: dict[str, dict[str, Any]] = field(default_factory=dict)
    current_context: str = ""
    files: list[str] = field(default_factory=list)

    def is_empty(self) -> bool:
        """Whether it configures nothing at all, as a file of only comments or nulls."""
        return not (self.clusters or self.users or self.contexts or self.current_context)


def candidates(environ: Mapping[str, str]) -> list[Path]:
    """The files that configure this process, in order of rank; they need not exist."""
    listed = environ.get("KUBECONFIG", "")
    if listed.strip(os.pathsep + " "):
        return [Path(entry).expanduser() for entry in listed.split(os.pathsep) if entry.strip()]
    home = environ.get("HOME") or os.path.expanduser("~")
    return [Path(home, ".kube", "config")]


def merge(paths: Iterable[Path]) -> Merged:
    """The content of those `paths` that exist. Raises ConfigError for one that cannot be read or is no kubeconfig."""
    merged = Merged()
    for path in paths:
        absolute = Path(os.path.abspath(path))  # not resolve(): relative paths count from where a symlink stands
        if absolute.exists():
            merged.files.append(str(absolute))
            for document in _documents(absolute):
                _add(merged, document, absolute)
    return merged


def select(merged: Merged, context: str | None = None) -> Selected:
    """The named context, or the current one. Raises ConfigError when it or what it refers to is not there."""
    where = ", ".join(merged.files)
    known = ", ".join(sorted(merged.contexts)) or "none"
    name = context or merged.current_context
    if not name:
        raise ConfigError(f"{where}: no current-context is set: name one of the known contexts ({known}), "
                          "or run `kubectl config use-context`")
    if name not in merged.contexts:
        raise ConfigError(f"{where}: there is no context {name!r}; known contexts: {known}")
    found = merged.contexts[name]
    cluster_name, user_name = _text(found.get("cluster")), _text(found.get("user"))
    if cluster_name not in merged.clusters:
        raise ConfigError(f"{where}: context {name!r} refers to cluster {cluster_name!r}, which is not defined")
    if user_name and user_name not in merged.users:
        raise ConfigError(f"{where}: context {name!r} refers to user {user_name!r}, which is not defined")
    cluster = merged.clusters[cluster_name]
    if not _text(cluster.get("server")):
        raise ConfigError(f"{where}: cluster {cluster_name!r} has no server")
    return Selected(name, cluster_name, _text(found.get("namespace")) or "default", cluster,
                    merged.users[user_name] if user_name else {}, tuple(merged.files))


def _documents(path: Path) -> list[dict[str, Any]]:
    try:
        text = decode_text(path.read_bytes(), strict=True)
        documents = [document.value for document in read_text(text, str(path))]
    except OSError as error:
        raise ConfigError(f"cannot read the kubeconfig {path}: {error.strerror}") from None
    except UnicodeError:
        raise ConfigError(f"the kubeconfig {path} is not text") from None
    except ManifestError as error:
        raise ConfigError(f"the kubeconfig {path} is not valid YAML{_place(error)}") from None
    for document in documents:
        _check_document(document, path)
    return documents


def _place(error: ManifestError) -> str:
    """Line and column; never the error's own text, which quotes the file."""
    return f" (line {error.line}, column {error.column})" if error.column else f" (line {error.line})"


def _check_document(document: object, path: Path) -> None:
    if not isinstance(document, dict):
        raise ConfigError(f"the kubeconfig {path} is not a mapping")
    kind, version = document.get("kind"), document.get("apiVersion")
    if kind not in ("Config", None, "") or version not in ("v1", None, ""):
        raise ConfigError(f"{path} is not a kubeconfig: its kind is {kind!r} of {version!r}")
    for section, inner in _SECTIONS.items():
        entries = document.get(section) or []
        if not isinstance(entries, list):
            raise ConfigError(f"the kubeconfig {path}: {section} is not a list")
        for index, entry in enumerate(entries):
            content = entry.get(inner) if isinstance(entry, dict) else None
            if not isinstance(entry, dict) or not _text(entry.get("name")) or not isinstance(content or {}, dict):
                raise ConfigError(f"the kubeconfig {path}: {section}[{index}] needs a name and a mapping {inner}")


def _add(merged: Merged, document: dict[str, Any], path: Path) -> None:
    for section, inner in _SECTIONS.items():
        known: dict[str, dict[str, Any]] = getattr(merged, section)
        for entry in document.get(section) or []:
            content = {key: value for key, value in (entry.get(inner) or {}).items() if value is not None}
            known.setdefault(_text(entry["name"]), _absolute(content, _PATHS[section], path.parent))
    merged.current_context = merged.current_context or _text(document.get("current-context"))


def _absolute(content: dict[str, Any], keys: tuple[str, ...], folder: Path) -> dict[str, Any]:
    for key in keys:
        if content.get(key):
            content[key] = os.path.normpath(folder / str(content[key]))
    plugin = content.get("exec")
    command = plugin.get("command") if isinstance(plugin, dict) else None
    if isinstance(plugin, dict) and isinstance(command, str) and "/" in command.replace(os.sep, "/"):
        content["exec"] = {**plugin, "command": os.path.normpath(folder / command)}
    return content


def _text(value: object) -> str:
    return "" if value is None else str(value)
