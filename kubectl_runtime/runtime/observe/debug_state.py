"""`DebugState`: what `/debug/state.json` says, and its JSON Schema.

It is all that the page and `kubectl-runtime top` show. Durations are seconds; what is empty, zero or unknown is left
out. Rows are some of each kind, the most telling first; the numbers beside them are of all. Objects are named, and
nothing else of them is shown: an error is its class, with the code of an answer, and its text only where `details` is
true.

`VERSION` grows when a reader of an older one would misread a newer one; members may be added without that, so readers
pass over what they do not know.
"""
from __future__ import annotations

from typing import Any

import msgspec

VERSION = 1


class KeyRow(msgspec.Struct, rename="camel", omit_defaults=True, kw_only=True):
    """A key that runs, is due, waits, or failed. `name` is `namespace/name`."""

    name: str
    state: str = ""
    """`running`, `due`, `delayed`, `backing_off`, `held_back` (by the brake) or `waits_for_change`."""
    reason: str = ""
    age: float = 0.0
    """Running: since its start; due: since it was."""
    waited: float = 0.0
    """Running: from when it was due to its start."""
    due_in: float | None = None
    """Negative: it has been due for so long."""
    bulk: bool = False
    attempt: int = 0
    """Running: 1, plus one for each failure before."""
    failures: int = 0
    """In a row."""
    failing_for: float = 0.0
    error: str = ""
    """Of the last run that failed."""


class RunRow(msgspec.Struct, rename="camel", omit_defaults=True, kw_only=True):
    """A run that has ended."""

    name: str
    result: str
    took: float
    ago: float
    waited: float = 0.0
    reason: str = ""
    error: str = ""


class LoopRow(msgspec.Struct, rename="camel", omit_defaults=True, kw_only=True):
    """A controller that kept itself, or it and another one each other, busy."""

    name: str
    what: str
    ago: float
    fields: list[str] = []
    """The JSON paths that differed between the last two versions."""


class Counts(msgspec.Struct, rename="camel", kw_only=True):
    """How many keys are in each state; `failing` ones are in any of them."""

    running: int
    due: int
    delayed: int
    backing_off: int
    held_back: int
    failing: int


class ControllerState(msgspec.Struct, rename="camel", omit_defaults=True, kw_only=True):
    """The state of one controller. `runs` and `failed` count the runs that have ended since it started."""

    name: str
    kind: str
    concurrency: int
    not_ready: str = ""
    """Why it is not ready, for people."""
    not_alive: str = ""
    counts: Counts
    runs: int = 0
    failed: int = 0
    running: list[KeyRow] = []
    due: list[KeyRow] = []
    delayed: list[KeyRow] = []
    failing: list[KeyRow] = []
    recent: list[RunRow] = []
    slowest: list[RunRow] = []
    loops: list[LoopRow] = []


class WatchRow(msgspec.Struct, rename="camel", omit_defaults=True, kw_only=True):
    """A watch and its store; several controllers may use one."""

    name: str
    controllers: list[str]
    phase: str
    """`listing`, `watching`, `waiting` (after a failure) or `stopped`."""
    since: float
    """How long it has been in this phase."""
    complete: bool = False
    """Its store has had a whole list."""
    objects: int = 0
    bytes: int = 0
    last_event: float | None = None
    """How long ago something came."""
    relists: int = 0
    failures: int = 0
    """In a row."""
    error: str = ""


class ManagerState(msgspec.Struct, rename="camel", omit_defaults=True, kw_only=True):
    """The manager, where there is one."""

    phase: str
    reason: str = ""
    """Why it stops."""
    leader: bool | None = None
    """None: there is no election."""
    lease: str = ""
    shards: list[int] | None = None


class DebugState(msgspec.Struct, rename="camel", omit_defaults=True, kw_only=True):
    """A process, at one moment."""

    version: int
    library: str
    time: str
    """RFC 3339."""
    process: int
    uptime: float
    """Since this page was made."""
    details: bool = False
    manager: ManagerState | None = None
    controllers: list[ControllerState]
    watches: list[WatchRow]
    controllers_left_out: int = 0
    watches_left_out: int = 0


def json_schema() -> dict[str, Any]:
    """The JSON Schema (2020-12) of `/debug/state.json`. `debug_state.schema.json` beside this module holds it."""
    (described,), components = msgspec.json.schema_components([DebugState], ref_template="#/$defs/{name}")
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "kubectl_runtime /debug/state.json",
            **described, "$defs": components}
