"""`Column`: one column of a server-side table; the registry keeps those of a type, table.py makes rows of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

Object = dict[str, Any]
Cell = Callable[[Object, datetime], Any]
"""What a cell shows of an object at the time of a request."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column of a table."""

    name: str
    cell: Cell
    type: str = "string"
    format: str = ""
    priority: int = 0
    description: str = ""

    def definition(self) -> Object:
        """The entry of ``columnDefinitions``."""
        return {"name": self.name, "type": self.type, "format": self.format,
                "description": self.description or self.name, "priority": self.priority}
