"""What the parameters of the verbs have in common: how they are checked, and what of a request's query they become."""
from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import msgspec
from msgspec.structs import force_setattr

from kubectl_runtime.core.base.clock import Duration, seconds
from kubectl_runtime.core.base.errors import RequestError
from kubectl_runtime.core.meta.selectors import FieldSelection, LabelSelection, field_selection, label_selection

Query = Iterator[tuple[str, str]]


class Selecting(Protocol):
    """Parameters with a label selector and a field selector."""

    @property
    def label_selector(self) -> LabelSelection | None:
        """Which labels the objects have; None selects all."""

    @property
    def field_selector(self) -> FieldSelection | None:
        """Which fields the objects have; None selects all."""


def keep_selections(params: Selecting) -> None:
    """For `__post_init__` of a frozen Struct or dataclass: its selectors in forms that are immutable, hashable and
    compare by what they say, whatever was given. Raises RequestError for anything that cannot be read as a selector."""
    keep: Any = force_setattr if isinstance(params, msgspec.Struct) else object.__setattr__
    keep(params, "label_selector", label_selection(params.label_selector))
    keep(params, "field_selector", field_selection(params.field_selector))


def selection_query(params: Selecting) -> Query:
    """The selectors as the parameters of a request."""
    if text := str(params.label_selector or ""):
        yield "labelSelector", text
    if text := str(params.field_selector or ""):
        yield "fieldSelector", text


def timeout_query(timeout: Duration | None) -> Query:
    """The server's timeout, in whole seconds."""
    if timeout is not None:
        yield "timeoutSeconds", str(max(1, round(seconds(timeout))))


def writing_query(dry_run: bool, field_manager: str | None, field_validation: str | None) -> Query:
    """What the writing verbs have in common."""
    if dry_run:
        yield "dryRun", "All"
    if field_manager:
        yield "fieldManager", field_manager
    if field_validation:
        yield "fieldValidation", field_validation


def check_timeout(timeout: Duration | None) -> None:
    """Raise RequestError for a timeout that is not positive; None leaves it to the server."""
    if timeout is not None and seconds(timeout) <= 0:
        raise RequestError(f"timeout={timeout} must be positive; None leaves it to the server")


def check_version(version: str | None, match: str | None) -> None:
    """Raise RequestError for a version and a way to match it that do not go together."""
    check_choice("resource_version_match", match, ("NotOlderThan", "Exact"))
    if match is not None and not version:
        raise RequestError(f"resource_version_match={match!r} needs a resource_version")
    if match == "Exact" and version == "0":
        raise RequestError('resource_version "0" means any version, which cannot be matched exactly')


def check_manager(field_manager: str | None) -> None:
    """Raise RequestError for a name that the server would refuse as a field manager."""
    if field_manager is None:
        return
    if not isinstance(field_manager, str):
        raise RequestError(f"field_manager={field_manager!r}: a name is expected, as text")
    if len(field_manager) > 128:
        raise RequestError(f"field_manager has {len(field_manager)} characters: at most 128 are allowed")
    if not field_manager.isprintable():
        raise RequestError("field_manager has characters that cannot be printed")


def check_flag(name: str, value: object) -> None:
    """Raise RequestError for a value other than True and False: text such as "false" would be taken for True."""
    if not isinstance(value, bool):
        raise RequestError(f"{name}={value!r}: True or False is expected")


def check_flags(options: object, *names: str) -> None:
    """The same for these attributes of `options`."""
    for name in names:
        check_flag(name, getattr(options, name))


def check_choice(name: str, value: str | None, choices: tuple[str, ...]) -> None:
    """Raise RequestError for a value that is not one of the choices, and name them."""
    if value is not None and value not in choices:
        raise RequestError(f"{name}={value!r}: choose one of {', '.join(choices)}")
