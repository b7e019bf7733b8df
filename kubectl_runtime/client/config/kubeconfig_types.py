"""The types of a kubeconfig (`v1 Config`), as kubectl has them, and the strict reading of one document.

A value of another type than kubectl's is an error wherever it stands, also in an entry that nobody uses: a text is no
boolean, number or list, and none of these is a text. `null` is an absent value. Unknown fields are ignored; names count
with their case. Errors name file and field and what was expected there, never the value.
"""
from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Iterator
from typing import Any

import msgspec

from kubectl_runtime.core.base.building import converted
from kubectl_runtime.core.base.errors import ConfigError

_WRONG = r"Expected `(?P<expected>[^`]+)`, got `(?P<found>[^`]+)`(?: - at `(?P<path>[^`]+)`)?"
_WRONG_TIME = r"(?:RFC3339|timezone).* at `\$\.([^`]+)`"
_TIME = "a time with a zone, such as 2026-01-31T12:00:00Z"
_WORDS = {"str": "a text", "bool": "true or false", "array": "a list", "object": "a mapping", "int": "a number",
          "float": "a number", "null": "null", "datetime": _TIME}


class _Part(msgspec.Struct, frozen=True, rename="kebab"):
    def __repr__(self) -> str:
        return f"<{type(self).__name__} of a kubeconfig>"  # its fields hold tokens and keys


class Extension(_Part, frozen=True):
    """Data of somebody else's, by name."""

    name: str | None = None
    extension: Any = None


class Cluster(_Part, frozen=True):
    """A cluster of a kubeconfig: where its server is, and whom to trust."""

    server: str | None = None
    tls_server_name: str | None = None
    insecure_skip_tls_verify: bool | None = None
    certificate_authority: str | None = None
    certificate_authority_data: str | None = None
    proxy_url: str | None = None
    disable_compression: bool | None = None
    extensions: list[Extension | None] | None = None


class EnvironmentVariable(_Part, frozen=True):
    """A variable that an exec plugin gets besides the environment of this process."""

    name: str | None = None
    value: str | None = None


class Exec(_Part, frozen=True, rename="camel"):
    """An exec plugin: the program that gives credentials, and how to call it."""

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
    """A user of a kubeconfig: the credentials, and whom to act as."""

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
    """A context of a kubeconfig: which cluster, as which user, in which namespace."""

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
    """The preferences of a kubeconfig, which nothing here uses."""

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
    """`value`, the mapping that a document holds, checked. Raises ConfigError, which names `source` and the field."""
    try:
        document = converted(value, Document)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{source}: {explained(error)}") from None
    except RecursionError:
        raise ConfigError(f"{source}: it is nested too deeply") from None
    if document.kind not in ("Config", "", None) or document.api_version not in ("v1", "", None):
        raise ConfigError(f"{source} is not a kubeconfig: its kind is {document.kind!r} of {document.api_version!r}")
    for field, data in _encoded(document):
        decoded(data, f"{source}: {field}")
    for field, extensions in _extensions(document):
        names = [entry.name if entry is not None else None for entry in extensions or ()]
        if len(set(names)) < len(names):
            raise ConfigError(f"{source}: {field} holds a name twice")
    return document


def decoded(data: str | None, place: str) -> bytes | None:
    """Base64 text as Go reads it: padded, line breaks skipped. None for an absent or empty one. Raises ConfigError."""
    if not data:
        return None
    try:
        return base64.b64decode(data.replace("\n", "").replace("\r", ""), validate=True)
    except (binascii.Error, ValueError):
        raise ConfigError(f"{place} is not base64") from None


def explained(error: msgspec.ValidationError) -> str:
    """An error of msgspec in words; only the types that it names are taken over, never a value."""
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
    """Every field whose text is base64, with its place."""
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
