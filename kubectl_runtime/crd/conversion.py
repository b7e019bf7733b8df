"""`Conversion`: objects of one kind from one version to another, by functions that lead from version to version.

    conversion = Conversion({(WidgetV1, WidgetV2): to_v2, (WidgetV2, WidgetV1): to_v1})    fn(WidgetV1) -> WidgetV2
    conversion = Conversion({("v1", "v2"): to_v2, ("v2", "v1"): to_v1})                    fn(dict) -> dict
    conversion.convert(widget, WidgetV2)            a WidgetV2
    conversion.convert(content, "v2")               a dict, as a webhook answers it

Where no function leads straight, the shortest chain does (v1 -> v2 -> v3). Functions say what happens to the content;
apiVersion, kind and metadata are carried over, but labels and annotations may be changed. Nothing is sent: what a
conversion webhook calls, a test or a migration calls as well. A class in a definition of several versions need not
know of it; `missing()` is for a test that every version leads to every other one, as the API server asks.
"""
from __future__ import annotations

import functools
import itertools
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, cast, overload

from kubectl_runtime.core.base.errors import KubeError, RequestError
from kubectl_runtime.core.codec.sameness import json_copy
from kubectl_runtime.core.meta.gvk import split_api_version
from kubectl_runtime.crd.customresource import CustomResource

K = TypeVar("K", bound=CustomResource)
Object = dict[str, Any]
Version = str | type[CustomResource]
Step = tuple[Version, Version]


class ConversionError(KubeError):
    """An object could not be converted; the text says from which version to which, and at which step.

    >>> issubclass(ConversionError, KubeError)
    True
    """


class Conversion:
    """Converts objects of one custom kind between its versions: for webhooks, tools and tests.

    A step is named by two classes, whose function takes and returns their objects, or by two versions, whose function
    takes and returns a dict. Without a direct step the shortest chain of steps is used. Functions say what happens to
    the content; apiVersion, kind and metadata are carried over. Immutable; safe for concurrent use, if its functions
    are.

    >>> class Size(Struct):
    ...     size: int
    >>> class BoxV1(CustomResource, group="example.com", version="v1", kind="Box", storage=False):
    ...     spec: Size
    >>> class Box(CustomResource, group="example.com", version="v2", kind="Box"):
    ...     spec: Size
    >>> conversion = Conversion({(BoxV1, Box): lambda old: Box(spec=Size(old.spec.size * 10)),
    ...                          (Box, BoxV1): lambda new: BoxV1(spec=Size(new.spec.size // 10))})
    >>> conversion.convert(BoxV1(name="a", spec=Size(3)), Box).spec.size
    30
    """

    def __init__(self, functions: Mapping[Step, Callable[[Any], Any]]) -> None:
        """`functions`: (from, to) -> function. A step is named by two classes, whose function takes and returns their
        objects, or by two versions, whose function takes and returns the whole object as a dict of its own. Raises
        RequestError for classes of different kinds and for steps that are named in both ways or lead nowhere.
        """
        self._classes: dict[str, type[CustomResource]] = {}
        self._steps: dict[str, dict[str, Callable[[Object], Object]]] = {}
        for (old, new), function in functions.items():
            self._add(old, new, function)
        if not self._steps:
            raise RequestError("a Conversion needs functions: Conversion({('v1', 'v2'): fn, ('v2', 'v1'): fn})")

    def _add(self, old: Version, new: Version, function: Callable[[Any], Any]) -> None:
        begin, end = self._name(old), self._name(new)
        if isinstance(old, str) != isinstance(new, str):
            raise RequestError(f"the conversion from {begin} to {end} names one version by a class and one by a text")
        if begin == end or end in self._steps.get(begin, ()):
            raise RequestError(f"the conversion from {begin} to {end} {'leads nowhere' if begin == end else 'is there'}"
                               f"{'' if begin == end else ' twice'}")
        step = function if isinstance(old, str) else _typed(function, old, cast("type[CustomResource]", new))
        self._steps.setdefault(begin, {})[end] = step
        self._steps.setdefault(end, {})

    def _name(self, version: Version) -> str:
        if isinstance(version, str):
            return version
        resource = version.api_resource
        for known in self._classes.values():
            other = known.api_resource
            if (other.group, other.kind) != (resource.group, resource.kind):
                raise RequestError(f"{version.__name__} is a {resource.kind} of {resource.group}, {known.__name__} a "
                                   f"{other.kind} of {other.group}: a Conversion is for the versions of one kind")
        self._classes.setdefault(resource.version, version)
        return resource.version

    @property
    def versions(self) -> tuple[str, ...]:
        """The versions that functions lead from or to, in the order they were named."""
        return tuple(self._steps)

    @property
    def classes(self) -> tuple[type[CustomResource], ...]:
        """The classes of the versions, as far as they were given as classes."""
        return tuple(self._classes.values())

    @property
    def crd_name(self) -> str | None:
        """The name of the kind's definition, if the versions are named by classes."""
        known = next(iter(self._classes.values()), None)
        return None if known is None else known.crd_name()

    def way(self, old: str, new: str) -> tuple[str, ...] | None:
        """The shortest way from one version to the other: the versions on it, both ends included; the one named first
        if several are as short. None when there is no way."""
        came_from: dict[str, str] = {old: old}
        waiting = deque([old])
        while waiting:
            here = waiting.popleft()
            if here == new:
                found = [here]
                while found[-1] != old:
                    found.append(came_from[found[-1]])
                return tuple(reversed(found))
            for there in self._steps.get(here, ()):
                if there not in came_from:
                    came_from[there] = here
                    waiting.append(there)
        return None

    def missing(self) -> list[tuple[str, str]]:
        """The pairs of versions between which no functions lead."""
        return [(old, new) for old in self._steps for new in self._steps if self.way(old, new) is None]

    @overload
    def convert(self, obj: CustomResource, version: type[K]) -> K: ...

    @overload
    def convert(self, obj: Mapping[str, Any], version: str) -> Object: ...

    def convert(self, obj: Any, version: Any) -> Any:
        """The object in another version: a new one, `obj` is left as it is.

        Raises ConversionError where no way leads there, where a function raises or returns no object, and where it
        changes what a conversion may not (name, namespace, uid, ...). Does not block, if the functions do not.
        """
        content = json_copy(obj.to_dict() if isinstance(obj, CustomResource) else dict(obj))
        if isinstance(version, str):
            return self._converted(content, version)
        return version.from_dict(self._converted(content, version.api_resource.version))

    def _converted(self, content: Object, wanted: str) -> Object:
        group, version = split_api_version(content.get("apiVersion") or "")
        named = f"{content.get('kind')} {(content.get('metadata') or {}).get('name') or ''}".strip()
        way = self.way(version, wanted)
        if way is None:
            steps = ", ".join(f"{old} -> {new}" for old, known in self._steps.items() for new in known)
            raise ConversionError(f"convert {named} from {version} to {wanted}: no functions lead there; there are "
                                  f"{steps}")
        if not content.get("kind"):
            raise ConversionError(f"convert from {version} to {wanted}: the object has no kind")
        metadata = content.get("metadata") or {}
        for here, there in itertools.pairwise(way):
            said = f"convert {named} from {here} to {there}"
            try:
                made = self._steps[here][there](json_copy(content))
            except Exception as error:
                raise ConversionError(f"{said}: {type(error).__name__}: {error}") from error
            if not isinstance(made, dict):
                raise ConversionError(f"{said}: the function returned {type(made).__name__}, not an object")
            metadata = _metadata(metadata, made.get("metadata"), said)
            content = {"apiVersion": f"{group}/{there}", "kind": content["kind"], "metadata": metadata,
                       **{key: value for key, value in made.items() if key not in ("apiVersion", "kind", "metadata")}}
        return content


def _metadata(old: Object, new: Object | None, said: str) -> Object:
    """The old metadata with the new one's labels and annotations; the old one where a function returned none."""
    if new is None:
        return old
    free = ("labels", "annotations")
    changed = sorted(key for key, value in new.items() if key not in free and value != old.get(key))
    if changed:
        raise ConversionError(f"{said}: the function changed metadata.{changed[0]}; only labels and annotations may "
                              "change")
    return {**{key: value for key, value in old.items() if key not in free},
            **{key: new[key] for key in free if new.get(key)}}


def _typed(function: Callable[[Any], Any], old: type[CustomResource],
           new: type[CustomResource]) -> Callable[[Object], Object]:
    """The same on whole objects. A new object from the function gets the metadata of its argument, with the
    labels and annotations that the function gave it in place of those."""
    @functools.wraps(function)
    def convert(content: Object) -> Object:
        found = function(old.from_dict(content))
        if not isinstance(found, new):
            raise TypeError(f"the function returned {type(found).__name__}, not {new.__name__}")
        made: Object = found.to_dict()
        if found.record is None:
            own = {key: value for key, value in (made.get("metadata") or {}).items() if value}
            made["metadata"] = {**content.get("metadata", {}), **own}
        return made
    return convert
