"""From the JSON values of a body to an object of its kind: its typed shape, its defaults, and what becomes of a request
whose body has fields that it should not have.

    fieldValidation   a field that the kind does not have, or that the body names twice
    Ignore            passes in silence
    Warn              becomes a warning, which `ctx` collects
    Strict            refuses the request
"""

from __future__ import annotations

from typing import Any

from kubectl_runtime.apiserver import errors
from kubectl_runtime.apiserver.context import RequestContext
from kubectl_runtime.apiserver.encoding.field_validation import Keys, warning_texts

Object = dict[str, Any]


def refusing(ctx: RequestContext, problems: list[str]) -> str:
    """What refuses the write, if field validation is strict; else the problems become warnings, or nothing."""
    validation = ctx.options.field_validation if ctx.options else "Warn"
    if validation == "Strict" and problems:
        return "strict decoding error: " + ", ".join(problems)
    if validation != "Ignore":
        ctx.warnings += warning_texts(problems)
    return ""


def refuse_fields(ctx: RequestContext, type_name: str, problems: list[str]) -> None:
    """Raises the 400 of a body with fields that it should not have; `type_name` ends in version and kind."""
    version, kind = type_name.split(".")[-2:]
    if why := refusing(ctx, problems):
        raise errors.bad_request(f'{kind} in version "{version}" cannot be handled as a {kind}: {why}')


def decode(ctx: RequestContext, obj: Object, keys: Keys) -> None:
    """Give a received object its typed shape and defaults; 400 if it does not fit."""
    kind, version = ctx.type.kind, ctx.type.version
    try:
        unknown = ctx.type.strategy.decode(obj)
    except errors.BodyDecodeError as error:
        raise errors.bad_request(f'{kind} in version "{version}" cannot be handled as a {kind}: {error}') from None
    refuse_fields(ctx, f"{version}.{kind}", keys.problems(unknown, mixed=not ctx.type.is_custom))
    obj["metadata"] = obj.get("metadata") or {}
    ctx.type.strategy.default(obj)
