"""`Cause`, one field that is wrong, and a constructor for each kind of the real server's ``field.Error``.

Texts follow the real server's, since kubectl prints them and controllers match them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Cause:
    """One cause in ``details.causes``: the reason (FieldValueInvalid, ...), the message without the field, and the
    field."""

    reason: str
    message: str
    field: str = ""

    def text(self) -> str:
        """The cause as it stands in the Status's message."""
        return f"{self.field}: {self.message}" if self.field else self.message

    def to_dict(self) -> dict[str, Any]:
        """The cause as JSON."""
        entry: dict[str, Any] = {"reason": self.reason} if self.reason else {}
        entry["message"] = self.message
        if self.field:
            entry["field"] = self.field
        return entry


def required(field: str, detail: str = "") -> Cause:
    """A field that must be there."""
    return Cause("FieldValueRequired", f"Required value: {detail}" if detail else "Required value", field)


def invalid_value(field: str, value: Any, detail: str) -> Cause:
    """A field with a value that is not allowed."""
    text = f"Invalid value: {go_value(value)}"
    return Cause("FieldValueInvalid", f"{text}: {detail}" if detail else text, field)


def immutable(field: str, value: Any) -> Cause:
    """A field that cannot be changed."""
    return invalid_value(field, value, "field is immutable")


def forbidden_field(field: str, detail: str) -> Cause:
    """A field that may not be set, or not so."""
    return Cause("FieldValueForbidden", f"Forbidden: {detail}", field)


def not_supported(field: str, value: Any, supported: Iterable[str]) -> Cause:
    """A field with a value outside its enumeration."""
    known = ", ".join(json.dumps(choice) for choice in supported)
    return Cause("FieldValueNotSupported", f"Unsupported value: {go_value(value)}: supported values: {known}", field)


def duplicate(field: str, value: Any) -> Cause:
    """A value that occurs twice."""
    return Cause("FieldValueDuplicate", f"Duplicate value: {go_value(value)}", field)


def not_found_value(field: str, value: Any) -> Cause:
    """A reference to something that is not there."""
    return Cause("FieldValueNotFound", f"Not found: {go_value(value)}", field)


def too_long(field: str, limit: int) -> Cause:
    """A text that is too long."""
    unit = "byte" if limit == 1 else "bytes"
    return Cause("FieldValueTooLong", f"Too long: may not be more than {limit} {unit}", field)


def too_many(field: str, count: int, limit: int) -> Cause:
    """A list that is too long."""
    return Cause("FieldValueTooMany", f"Too many: {count}: must have at most {limit} item{'s' * (limit != 1)}", field)


def type_invalid(field: str, value: Any, detail: str) -> Cause:
    """A value of the wrong type."""
    return Cause("FieldValueTypeInvalid", f"Invalid value: {go_value(value)}: {detail}", field)


def go_value(value: Any) -> str:
    """A value as the real server prints it in a cause: strings quoted, the rest as JSON."""
    if value is None:
        return "null"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
