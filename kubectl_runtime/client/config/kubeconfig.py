"""`Kubeconfig`: finds, reads and merges kubeconfig files as kubectl does. This module uses no credentials.

    $KUBECONFIG (a list of files) or ~/.kube/config  ->  typed documents  ->  one Kubeconfig, each section by name

The first file that defines a name wins, and its entry is not merged with others; the first non-empty `current-context`
wins, too. Missing files and empty list entries are skipped. A `null` list is an empty list. A name may occur only once
in a list. All documents of a file are merged, as in kube-rs, while kubectl reads only the first document.

Types are checked strictly, including in entries that no context uses: text is not accepted as a boolean, number or
list, and vice versa. `null` counts as an absent value. Unknown fields are ignored; field names are case-sensitive.
Whether an entry lacks required fields is checked only when a context that uses the entry is chosen (see
chosen_context). Errors name file, field and expected type, never the value.
"""
from __future__ import annotations

import base64
import binascii
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Generic, Self, TypeVar

import msgspec
from msgspec import field

from kubectl_runtime.client.config.secrets import SecretMapping, frames_hidden, reading_problem, secret, secret_file
from kubectl_runtime.core.base.errors import ConfigError
from kubectl_runtime.core.base.wire import converted
from kubectl_runtime.manifests.documents import decode_text, read_text
from kubectl_runtime.manifests.scalars import ManifestError

_WRONG = r"Expected `(?P<expected>[^`]+)`, got `(?P<found>[^`]+)`(?: - at `(?P<path>[^`]+)`)?"
_WRONG_TIME = r"(?:RFC3339|timezone).* at `\$\.([^`]+)`"
_TIME = "a time with a zone, such as 2026-01-31T12:00:00Z"
_WORDS = {"str": "a text", "bool": "true or false", "array": "a list", "object": "a mapping", "int": "a number",
          "float": "a number", "null": "null", "datetime": _TIME}


class _Part(msgspec.Struct, frozen=True, rename="kebab"):
    def __repr__(self) -> str:
        return f"<{type(self).__name__} of a kubeconfig>"  # its fields hold tokens and keys


class Extension(_Part, frozen=True):
    """Named data that another program stores in a kubeconfig."""

    name: str | None = None
    extension: Any = None


class Cluster(_Part, frozen=True):
    """A cluster of a kubeconfig: the address of its server, and the trusted CAs."""

    server: str | None = None
    tls_server_name: str | None = None
    insecure_skip_tls_verify: bool | None = None
    certificate_authority: str | None = None
    certificate_authority_data: str | None = None
    proxy_url: str | None = None
    disable_compression: bool | None = None
    extensions: list[Extension | None] | None = None


class EnvironmentVariable(_Part, frozen=True):
    """An environment variable that an exec plugin gets in addition to this process's environment."""

    name: str | None = None
    value: str | None = None


class Exec(_Part, frozen=True, rename="camel"):
    """An exec plugin: the program that provides credentials, and how to call it."""

    command: str | None = None
    args: list[str | None] | None = None
    env: list[EnvironmentVariable | None] | None = None
    api_version: str | None = None
    install_hint: str | None = None
    provide_cluster_info: bool | None = None
    interactive_mode: str | None = None


class AuthProvider(_Part, frozen=True):
    """An auth provider (deprecated by Kubernetes) and its settings."""

    name: str | None = None
    config: dict[str, str | None] | None = None


class User(_Part, frozen=True):
    """A user of a kubeconfig: the credentials, and the user to impersonate."""

    client_certificate: str | None = None
    client_certificate_data: str | None = None
    client_key: str | None = None
    client_key_data: str | None = None
    token: str | None = None
    token_file: str | None = msgspec.field(name="tokenFile", default=None)
    as_: str | None = msgspec.field(name="as", default=None)
    as_uid: str | None = None
    as_groups: list[str | None] | None = None
    as_user_extra: dict[str, list[str | None] | None] | None = None
    username: str | None = None
    password: str | None = None
    auth_provider: AuthProvider | None = None
    exec_: Exec | None = msgspec.field(name="exec", default=None)
    extensions: list[Extension | None] | None = None


class Context(_Part, frozen=True):
    """A context of a kubeconfig: a cluster, a user and a namespace."""

    cluster: str | None = None
    user: str | None = None
    namespace: str | None = None
    extensions: list[Extension | None] | None = None


class NamedCluster(_Part, frozen=True):
    """An entry of the list `clusters`."""

    name: str | None = None
    cluster: Cluster | None = None


class NamedUser(_Part, frozen=True):
    """An entry of the list `users`."""

    name: str | None = None
    user: User | None = None


class NamedContext(_Part, frozen=True):
    """An entry of the list `contexts`."""

    name: str | None = None
    context: Context | None = None


class Preferences(_Part, frozen=True):
    """The preferences of a kubeconfig, which this library ignores."""

    colors: bool | None = None
    extensions: list[Extension | None] | None = None


class Document(_Part, frozen=True):
    """One document of a kubeconfig."""

    kind: str | None = None
    api_version: str | None = msgspec.field(name="apiVersion", default=None)
    preferences: Preferences | None = None
    clusters: list[NamedCluster | None] | None = None
    users: list[NamedUser | None] | None = None
    contexts: list[NamedContext | None] | None = None
    current_context: str | None = None
    extensions: list[Extension | None] | None = None


def typed(value: object, source: str) -> Document:
    """Decode and check `value`, the content of a document. Raises ConfigError, naming `source` and the field."""
    try:
        document = converted(value, Document)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{source}: {explained(error)}") from None
    except RecursionError:
        raise ConfigError(f"{source}: it is nested too deeply") from None
    if document.kind not in ("Config", "", None) or document.api_version not in ("v1", "", None):
        raise ConfigError(f"{source} is not a kubeconfig: it is of kind {document.kind!r} in {document.api_version!r}")
    for path, data in _encoded(document):
        decoded(data, f"{source}: {path}")
    for path, extensions in _extensions(document):
        names = [entry.name if entry is not None else None for entry in extensions or ()]
        if len(set(names)) < len(names):
            raise ConfigError(f"{source}: {path} has the same name twice")
    return document


def decoded(data: str | None, place: str) -> bytes | None:
    """Base64 text as Go decodes it: padded, line breaks ignored. None for absent or empty text. Raises ConfigError."""
    if not data:
        return None
    try:
        return base64.b64decode(data.replace("\n", "").replace("\r", ""), validate=True)
    except (binascii.Error, ValueError):
        raise ConfigError(f"{place} is not base64") from None


def explained(error: msgspec.ValidationError) -> str:
    """A msgspec error in plain words, with the types that the error names, but never with a value."""
    time = re.search(_WRONG_TIME, str(error))
    if time is not None:
        return f"{time[1]} is not {_TIME}"
    match = re.match(_WRONG, str(error))
    if match is None:
        return "a field has a wrong type"
    field = (match["path"] or "$").removeprefix("$").removeprefix(".")
    expected = next((word for word in match["expected"].split(" | ") if word != "null"), "null")
    where = f"{field} is" if field else "it is"
    return f"{where} {_WORDS.get(match['found'], match['found'])}, expected {_WORDS.get(expected, expected)}"


def _encoded(document: Document) -> Iterator[tuple[str, str | None]]:
    """Every base64 field, with its place."""
    for index, cluster in enumerate(document.clusters or ()):
        if cluster is not None and cluster.cluster is not None:
            yield (f"clusters[{index}].cluster.certificate-authority-data", cluster.cluster.certificate_authority_data)
    for index, user in enumerate(document.users or ()):
        if user is not None and user.user is not None:
            yield f"users[{index}].user.client-certificate-data", user.user.client_certificate_data
            yield f"users[{index}].user.client-key-data", user.user.client_key_data


def _extensions(document: Document) -> Iterator[tuple[str, list[Extension | None] | None]]:
    """Every list of extensions, with its place."""
    yield "extensions", document.extensions
    if document.preferences is not None:
        yield "preferences.extensions", document.preferences.extensions
    for index, cluster in enumerate(document.clusters or ()):
        if cluster is not None and cluster.cluster is not None:
            yield f"clusters[{index}].cluster.extensions", cluster.cluster.extensions
    for index, user in enumerate(document.users or ()):
        if user is not None and user.user is not None:
            yield f"users[{index}].user.extensions", user.user.extensions
    for index, context in enumerate(document.contexts or ()):
        if context is not None and context.context is not None:
            yield f"contexts[{index}].context.extensions", context.context.extensions


Content = TypeVar("Content", Cluster, User, Context)


class UnreadableError(ConfigError):
    """The operating system does not let this process read a file, although the file may exist."""


class Entry(msgspec.Struct, Generic[Content], frozen=True):
    """A cluster, user or context of a kubeconfig. `place` is the file and field, for messages; `folder` is the folder
    to which the paths in `content` are relative.
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
        """Whether this Kubeconfig configures nothing at all, like a file with only comments or nulls."""
        return not (self.clusters or self.users or self.contexts or self.current_context)

    @classmethod
    def read(cls, paths: Iterable[Path]) -> Self:
        """The merged content of the `paths` that exist. Raises ConfigError for a file that cannot be read or is not a
        kubeconfig."""
        merged = cls()
        for path in paths:
            content = _content(path)
            if content is not None:
                absolute = Path(os.path.abspath(path))  # not resolve(): paths are relative to the symlink's folder
                with frames_hidden():
                    merged._merge_text(content, str(absolute), absolute.parent)
        return merged

    @classmethod
    def from_text(cls, text: str | bytes, source: str = "the kubeconfig text") -> Self:
        """A Kubeconfig from YAML or JSON; relative paths in the text are relative to the working directory. Raises
        ConfigError."""
        made, text = cls(), secret(text)
        with frames_hidden():
            made._merge_text(text, source, Path.cwd())
        return made

    @classmethod
    def from_dict(cls, content: Mapping[str, Any], source: str = "the kubeconfig mapping") -> Self:
        """A Kubeconfig from a mapping, as a YAML parser returns it. Paths and errors as for `from_text`."""
        made, content = cls(files=[source]), SecretMapping(content)
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
    """The kubeconfig files of this process, in order of rank; the files need not exist. The list is empty without a
    home folder.

    Raises ConfigError for a `~user` in `$KUBECONFIG` that does not exist.
    """
    listed = environ.get("KUBECONFIG", "")
    if listed.strip(os.pathsep + " "):
        return [expanded(entry) for entry in listed.split(os.pathsep) if entry.strip()]
    home = environ.get("HOME") or os.path.expanduser("~")
    return [Path(home, ".kube", "config")] if home != "~" else []  # "~": the user database has no home either


def listed_paths(source: object) -> list[str | os.PathLike[str]]:
    """One path or several, as a list. Raises ConfigError for anything else."""
    paths = [source] if isinstance(source, (str, os.PathLike)) else source
    if not isinstance(paths, Sequence) or not all(isinstance(path, (str, os.PathLike)) for path in paths):
        raise ConfigError("the source of a kubeconfig must be a path, a list of paths or a mapping, not "
                          f"{type(source).__name__}; pass its text as text=")
    return list(paths)


def expanded(path: str | os.PathLike[str]) -> Path:
    """`path` with `~` expanded. Raises ConfigError if the home folder is unknown."""
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
