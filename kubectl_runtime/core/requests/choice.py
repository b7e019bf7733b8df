"""The options of a verb: a prepared value, or keywords."""
from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, TypeVar

from kubectl_runtime.core.base.errors import RequestError

P = TypeVar("P")


def chosen(given: P | None, kind: type[P], called: str = "params", /, **keywords: Any) -> P:
    """The options of a verb: `given`, or what its keywords say (None and False say nothing), or the defaults. `called`:
    the argument that was `given`.

    Raises RequestError when both say something, for anything else as `given`, and as the class itself does.
    """
    return chosen_of_said(given, kind, {name: value for name, value in keywords.items() if value is not False}, called)


def chosen_of_said(given: P | None, kind: type[P], keywords: Mapping[str, Any], called: str = "params") -> P:
    """As `chosen`, where False says something: only None says nothing."""
    said = {name: value for name, value in keywords.items() if value is not None}
    if not said:
        return params_or_default(given, kind)
    if given is not None:
        raise RequestError(f"{called}= and {', '.join(f'{name}=' for name in said)} are both given: put the options "
                           f"all into {kind.__name__}(…), or all into keywords")
    return kind(**said)


def params_or_default(given: P | None, kind: type[P]) -> P:
    """The parameters, or the defaults. Raises RequestError for anything else, such as a namespace or a selector."""
    if given is None:
        default: P = _default(kind)  # type: ignore[arg-type] # classes are hashable
        return default
    if not isinstance(given, kind):
        raise RequestError(f"{given!r} stands where {kind.__name__}(…) is expected")
    return given


@cache
def _default(kind: Any) -> Any:
    return kind()
