"""`Verifier`: compares what a store holds with what the server has, every now and then, by lists of metadata.

    verdict of a list                        next list
    all the same                             after the whole interval
    something differs                        after 10 s: an event may be on its way
    the same still differs, unchanged here   the finding: no event will ever mend it
    it failed                                after the whole interval; logged

Of each object key, uid and version are compared, for equality, with what is stored and with what readers see (of a
write that the watch has not shown yet, its answer): the event of a write may be lost as any other. An object differs
"still" when its entry here is the one that differed before; one that an event has reached meanwhile starts over. This
finds what no other sign shows: data that was restored from an older copy and has already overtaken the versions that
are known here.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kubectl_runtime.client.api.paging import walk
from kubectl_runtime.core.base.guarded_log import guarded_logger, pass_interrupt
from kubectl_runtime.core.base.keys import Key
from kubectl_runtime.core.base.stop import StopToken
from kubectl_runtime.core.requests.params import ListParams
from kubectl_runtime.core.requests.request import Retry
from kubectl_runtime.runtime.usercode import described
from kubectl_runtime.runtime.watcher.watch_api import WatchApi
from kubectl_runtime.runtime.watcher.watcher_config import WatcherConfig

log = guarded_logger(__name__)

CONFIRM_SECONDS = 10.0
"""The time that events get to mend a difference."""
_NAMED = 3

Identity = tuple[str, str] | None
"""Uid and version of an object; None: there is none."""

Held = tuple[Identity, Identity]
"""What is stored, and what readers see."""

_NOTHING: Held = None, None


class Verifier:
    """For the thread of its watch. `known` gives what the store holds, new each time."""

    def __init__(self, api: WatchApi[Any], config: WatcherConfig, interval: float,
                 known: Callable[[], dict[Key, Held]], stop: StopToken, now: float) -> None:
        with_metadata_only = getattr(api, "with_metadata_only", None)
        self._api: WatchApi[Any] = with_metadata_only() if with_metadata_only is not None else api
        self._params = ListParams(label_selector=config.label_text, field_selector=config.field_text,
                                  limit=config.page_size)
        self._interval = interval
        self._known = known
        self._stop = stop
        self._due = now + interval
        self._differed: dict[Key, Held] = {}

    @property
    def due(self) -> float:
        """When the next list is due."""
        return self._due

    def check(self, now: float) -> str:
        """What is found wrong, in words; empty when nothing is, or when it is not due. Blocks for the list."""
        if now < self._due:
            return ""
        before, self._differed = self._differed, {}
        self._due = now + self._interval
        try:
            differing = self._compare()
        except BaseException as error:  # noqa: BLE001 - a watch that works must not end because its check does not
            pass_interrupt(error)
            log.warning("the store of %s could not be verified: %s", self._api.resource.full_name, described(error))
            return ""
        still = [key for key, known in differing.items() if key in before and before[key] == known]
        if still:
            names = ", ".join("/".join(part for part in key if part) for key in sorted(still, key=str)[:_NAMED])
            more = f" and {len(still) - _NAMED} more" if len(still) > _NAMED else ""
            return f"{len(still)} objects are not as the server has them, and no event said so ({names}{more})"
        if differing:
            self._differed = differing
            self._due = now + min(CONFIRM_SECONDS, self._interval)
        return ""

    def _compare(self) -> dict[Key, Held]:
        """What is known here of each object of which the server says something else."""
        known = self._known()
        differing: dict[Key, Held] = {}
        operation = f"list {self._api.resource.full_name} to verify the store"
        for _, records in walk(self._fetch, self._params, operation):
            for record in records:
                here, there = known.pop(record.key, _NOTHING), (record.uid, record.resource_version)
                if here != (there, there):
                    differing[record.key] = here
        return {**differing, **{key: here for key, here in known.items() if here != _NOTHING}}

    def _fetch(self, params: ListParams) -> Any:
        return self._api.list_page(params, stop=self._stop, retry=Retry.SAFE)
