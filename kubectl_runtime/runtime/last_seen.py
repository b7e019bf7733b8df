"""`last_seen`: what a wait says of the object that it waited for, when it ends without success."""
from __future__ import annotations

from typing import Any

from kubectl_runtime.core.base.errors import KubeError
from kubectl_runtime.core.meta.metav1 import format_time
from kubectl_runtime.core.objects.invalid import InvalidObject
from kubectl_runtime.core.objects.resource import Resource
from kubectl_runtime.runtime.parts import generation_of, is_current

MOST_MESSAGE = 120
"""Characters of a condition's message that are told."""


def last_seen(obj: Any, looked: bool) -> str:
    """What was last seen of an object, without its content: of its status the phase, the counts, and the conditions,
    each `type=status (reason: message)`, with long messages cut, and with the generation that it is
    about where that is not the present one."""
    if not looked:
        return "it was never seen, as no list was answered"
    if obj is None:
        return "it does not exist"
    if isinstance(obj, InvalidObject):
        return f"last seen: {obj.error}"
    parts = [f"uid {obj.uid}", f"resourceVersion {obj.resource_version}"]
    if isinstance(obj, Resource):
        if obj.deletion_timestamp is not None:
            left = f", waiting for {', '.join(obj.finalizers)}" if obj.finalizers else ""
            parts.append(f"being deleted since {format_time(obj.deletion_timestamp)}{left}")
        parts += _status_parts(obj)
    return f"last seen: {', '.join(parts)}"


def _status_parts(obj: Resource) -> list[str]:
    try:
        status = obj.get("status")
    except KubeError as error:
        return [str(error)]
    if not isinstance(status, dict):
        return ["no status yet"] if getattr(type(obj), "status", None) is not None else []
    parts = [f"generation {obj.generation}"] if "observedGeneration" in status else []
    parts += [f"{key} {value}" for key, value in status.items()
              if key == "phase" or (isinstance(value, int) and not isinstance(value, bool))]
    conditions = status.get("conditions")
    for entry in conditions if isinstance(conditions, list) else ():
        if isinstance(entry, dict):
            why = ": ".join(_shortened(entry[key]) for key in ("reason", "message") if entry.get(key))
            if not is_current(obj, entry):
                lags = f"of generation {generation_of(obj, entry)}, not yet {obj.generation}"
                why = f"{why}; {lags}" if why else lags
            parts.append(f"{entry.get('type')}={entry.get('status')}{f' ({why})' if why else ''}")
    return parts


def _shortened(text: object) -> str:
    """A text as one line of a message shows it: without line breaks, and cut at `MOST_MESSAGE` characters."""
    line = " ".join(str(text).split())
    return line if len(line) <= MOST_MESSAGE else f"{line[:MOST_MESSAGE - 1]}…"
