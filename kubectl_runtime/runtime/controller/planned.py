"""Which watch serves which plan of a controller: what is watched whole also serves who needs a part of it.

    the objects that it reconciles   a watch in the form that was asked for, which decides what the store reads
    whatever else it watches         that one, or another of its watches, if it is about the same objects in the same
                                     form or in the whole; else one of its own

A plan for several namespaces is one place for each.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from kubectl_runtime.core.codec.record import Record
from kubectl_runtime.core.objects.partial import FieldsForm, PartialView
from kubectl_runtime.core.requests.request import list_
from kubectl_runtime.runtime.controller.plan import WatchPlan
from kubectl_runtime.runtime.flight.flight_lines import WatchPlace
from kubectl_runtime.runtime.flight.flight_recorder import FlightRecorder
from kubectl_runtime.runtime.triggers.shared_watches import Share, form_of, is_whole, selection_of
from kubectl_runtime.runtime.watcher.readers import reader_of
from kubectl_runtime.runtime.watcher.watch_api import WatchApi, apis_of, as_configured


@dataclass(frozen=True)
class Place:
    """One place to watch, of a plan."""

    plan: WatchPlan
    api: WatchApi[Any]

    @property
    def is_whole(self) -> bool:
        """Whether the watch gives whole objects."""
        return is_whole(self.api, self.plan.config)

    @property
    def view(self) -> type[PartialView] | None:
        """The class of views that the plan asks for, if it does."""
        form = getattr(as_configured(self.api, self.plan.config), "form", None)
        return form.view if isinstance(form, FieldsForm) else None

    def reader(self) -> Callable[[Record], Any]:
        """What makes the objects that the plan's functions get, of records as `fullest` may keep them."""
        api = as_configured(self.api, self.plan.config)
        read, form = reader_of(api.kind), getattr(api, "form", None)
        if not isinstance(form, FieldsForm):
            return read
        return lambda record: read(record if record.view is not None else form.decode_object(record.raw))


@dataclass(frozen=True)
class Planned:
    """A place and the watch that serves it, which was made for `chosen`: the same one, or one of the same objects."""

    share: Share
    chosen: Place
    place: Place
    name: str
    is_first: bool
    """Whether no place before uses this watch."""

    def record(self, flight: FlightRecorder) -> None:
        """Have `flight` hear of what this watch sees."""
        api, config = self.chosen.api, self.chosen.plan.config
        place = getattr(api, "place", None)
        asked = WatchPlace("" if place is None else list_(place).path, config.label_text or "",
                           config.field_text or "", bool(place is not None and place.metadata_only))
        self.share.subscribe(flight.watching(self.name, asked), lambda _: None, partial(flight.ready, self.name))


def places_of(*plans: WatchPlan) -> list[Place]:
    """The places that these plans watch: one for each namespace of a plan for several."""
    return [Place(plan, api) for plan in plans for api in apis_of(plan.api)]


def fullest(place: Place, places: Sequence[Place]) -> Place:
    """The first of `places` that is about the same objects in the same form, or in the whole, which serves both."""
    config = place.plan.config
    if place.plan.store is not None or not config.shared:
        return place
    selection, form = selection_of(place.api, config), form_of(place.api, config, None)
    same = [other for other in places if other.plan.modify is place.plan.modify
            and selection_of(other.api, other.plan.config) == selection]
    whole = (other for other in same if other.is_whole)
    return next(whole, None) or next(other for other in same if form_of(other.api, other.plan.config, None) == form)
