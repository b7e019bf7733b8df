"""What a `Manager` takes where its program says nothing: so the command line's values reach one that it did not make.

    Manager(client, serve=":9090")     what the program says counts
    Manager(client)                    what `manager_defaults` says around it, else the library's own defaults

The block belongs to the context that enters it: to this thread, and to those that it hands its context on to.
"""
from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Final

from kubectl_runtime.runtime.manager.leader_election import LeaderElection
from kubectl_runtime.runtime.observe.debug_page import DebugPage


class _Unsaid(str):
    """A default, told from the same value that a program gives."""

    __slots__ = ()


SERVE: Final[str] = _Unsaid(":8080")
"""Where a Manager serves, if nobody says it."""

DEBUG: Final = DebugPage()
"""The status page of a Manager, if nobody says it: this very object stands for that."""


@dataclass(frozen=True, slots=True)
class ManagerDefaults:
    """What a Manager is made with where the program does not say it, under the names of its arguments."""

    leader: LeaderElection | None = None
    serve: str | None = SERVE
    debug: DebugPage | None = DEBUG

    def for_leader(self, said: LeaderElection | None) -> LeaderElection | None:
        """The election: what the program said, else the default."""
        return self.leader if said is None else said

    def for_serve(self, said: str | None) -> str | None:
        """The address: what the program said, None included, else the default."""
        return self.serve if isinstance(said, _Unsaid) else said

    def for_debug(self, said: DebugPage | None) -> DebugPage | None:
        """The status page: what the program said, None included, else the default."""
        return self.debug if said is DEBUG else said


current_defaults: ContextVar[ManagerDefaults] = ContextVar("kubectl_runtime_manager_defaults",
                                                           default=ManagerDefaults())  # noqa: B039 - frozen


@contextmanager
def manager_defaults(defaults: ManagerDefaults) -> Iterator[None]:
    """Let every Manager that is made inside the block take these."""
    token = current_defaults.set(defaults)
    try:
        yield
    finally:
        current_defaults.reset(token)
