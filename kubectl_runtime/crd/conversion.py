"""`Conversion`: converts objects of one kind between its versions, with a function for each step.

    conversion = Conversion({(WidgetV1, WidgetV2): to_v2, (WidgetV2, WidgetV1): to_v1})    fn(WidgetV1) -> WidgetV2
    conversion = Conversion({("v1", "v2"): to_v2, ("v2", "v1"): to_v1})                    fn(dict) -> dict
    conversion.convert(widget, WidgetV2)            a WidgetV2
    conversion.convert(content, "v2")               a dict, as a webhook returns it

Without a direct function, the shortest chain is used (v1 -> v2 -> v3). Functions convert the content; apiVersion, kind
and metadata are carried over, and functions may change labels and annotations. The status is carried over if a function
leaves it out. Values that a round trip would lose are kept in an annotation, as in Kubernetes' own controllers; `check`
reports such values. A conversion sends nothing to the server, so webhooks, tests and migrations use the same code.
`missing()` lets a test assert that every version can be converted to every other version, as the API server requires.
"""
from __future__ import annotations

import functools
import itertools
import json
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar, cast, overload

from kubectl_runtime.core.base.errors import KubeError, RequestError
from kubectl_runtime.core.base.wire import decoder_of
from kubectl_runtime.core.codec.jsonbytes import json_copy, same_json
from kubectl_runtime.core.meta.gvk import split_api_version
from kubectl_runtime.core.meta.problems import DECODE_FAILURES, DecodeError
from kubectl_runtime.core.objects.declare import codecs_of
from kubectl_runtime.crd.customresource import CustomResource

K = TypeVar("K", bound=CustomResource)
Object = dict[str, Any]
Version = str | type[CustomResource]
Step = tuple[Version, Version]


class ConversionError(KubeError):
    """An object could not be converted; the text names the versions and the failing step.

    >>> issubclass(ConversionError, KubeError)
    True
    """


class Conversion:
    """Converts objects of one custom kind between its versions: for webhooks, tools and tests.

    A step is a function that converts from one version to another. If the versions are given as classes, the function
    takes and returns objects of these classes; if they are given by name, it takes and returns a dict. Without a direct
    step the shortest chain of steps is used. Functions convert the content; apiVersion, kind and metadata are carried
    over. A Conversion is immutable, and thread-safe if its functions are.

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

    def __init__(self, functions: Mapping[Step, Callable[[Any], Any]], *, keep: bool = True) -> None:
        """`functions`: (from, to) -> function. For two classes, the function takes and returns their objects. For two
        version names, the function takes a copy of the whole object as a dict, and returns a dict. Raises RequestError
        for classes of different kinds, for a pair of a class and a name, and for a step that is given twice or leads
        from a version to itself.

        `keep`: values that the functions lose on a round trip are kept in the annotation GROUP/conversion-kept. They
        are restored when the object is converted back, unless the field was changed in the other version.
        """
        self._keep = keep
        self._classes: dict[str, type[CustomResource]] = {}
        self._steps: dict[str, dict[str, Callable[[Object], Object]]] = {}
        for (old, new), function in functions.items():
            self._add(old, new, function)
        if not self._steps:
            raise RequestError("a Conversion needs functions: Conversion({('v1', 'v2'): fn, ('v2', 'v1'): fn})")

    def _add(self, old: Version, new: Version, function: Callable[[Any], Any]) -> None:
        begin, end = self._name(old), self._name(new)
        if isinstance(old, str) != isinstance(new, str):
            raise RequestError(f"the conversion from {begin} to {end} must name both versions by class or both by name")
        if begin == end or end in self._steps.get(begin, ()):
            raise RequestError(f"the conversion from {begin} to {end} {'leads nowhere' if begin == end else 'is given'}"
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
        """The versions of all functions, in the order in which they were named."""
        return tuple(self._steps)

    @property
    def classes(self) -> tuple[type[CustomResource], ...]:
        """The classes of the versions that were given as classes, not by name."""
        return tuple(self._classes.values())

    @property
    def crd_name(self) -> str | None:
        """The name of the kind's CRD; None if all versions were given by name."""
        known = next(iter(self._classes.values()), None)
        return None if known is None else known.crd_name()

    def way(self, old: str, new: str) -> tuple[str, ...] | None:
        """The shortest chain of versions from `old` to `new`, both included; the first of several equally short chains.
        None if there is no chain."""
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
        """The pairs (from, to) of versions that no chain of functions connects."""
        return [(old, new) for old in self._steps for new in self._steps if self.way(old, new) is None]

    @overload
    def convert(self, obj: CustomResource, version: type[K]) -> K: ...

    @overload
    def convert(self, obj: Mapping[str, Any], version: str) -> Object: ...

    def convert(self, obj: Any, version: Any) -> Any:
        """Return the object in another version; `obj` is not changed.

        Raises ConversionError if no chain of functions leads to the version, if a function raises or returns no object,
        or if a function changes a field that a conversion must keep (name, namespace, uid, ...). Does not block unless
        a function does.
        """
        content = json_copy(obj.to_dict() if isinstance(obj, CustomResource) else dict(obj))
        if isinstance(version, str):
            return self._converted(content, version)
        return version.from_dict(self._converted(content, version.api_resource.version))

    def check(self, objects: Iterable[CustomResource | Mapping[str, Any]]) -> list[str]:
        """Convert each object to every other version and back. This is meant for tests, where
        `kubectl_runtime.testing.objects_of` makes suitable objects.

        Returns the fields that the functions do not preserve by themselves, each as `v2 -> v1 -> v2: spec.fuel`. Raises
        ConversionError, with the path of the difference, for an object that differs after the round trip.
        """
        found: dict[str, None] = {}
        for obj in objects:
            content = json_copy(obj.to_dict() if isinstance(obj, CustomResource) else dict(obj))
            version = split_api_version(content.get("apiVersion") or "")[1]
            for other in self._steps:
                if other == version:
                    continue
                there = self._converted(json_copy(content), other)
                back = self._converted(json_copy(there), version)
                for path, _, _ in lost(content, back):
                    raise ConversionError(f"{version} -> {other} -> {version}: {'.'.join(path)} of "
                                          f"{content.get('kind')} differs after the round trip")
                alone = self._along(there, version, self.way(other, version) or ())
                found |= dict.fromkeys(f"{version} -> {other} -> {version}: {'.'.join(path)}"
                                       for path, _, _ in lost(content, alone))
        return list(found)

    def _converted(self, content: Object, wanted: str) -> Object:
        group, version = split_api_version(content.get("apiVersion") or "")
        way = self.way(version, wanted)
        if not self._keep or way is None or version == wanted:
            return self._along(content, wanted, way)
        key = f"{group}/{KEPT}"
        kept, bare = _kept_in(content, key)
        made = self._along(bare, wanted, way)
        for path, was, value in kept.pop(wanted, ()):
            _put_back(made, path, was, value)
        if back := self.way(wanted, version):
            try:
                missing = lost(bare, self._along(json_copy(made), version, back))
            except ConversionError:  # the error will be raised when the object is converted back
                missing = []
            kept = {**kept, version: missing} if missing else {name: value for name, value in kept.items()
                                                               if name != version}
        if kept:
            metadata = made["metadata"] = dict(made["metadata"])
            metadata["annotations"] = {**(metadata.get("annotations") or {}), key: json.dumps(kept, sort_keys=True)}
        return made

    def _along(self, content: Object, wanted: str, way: tuple[str, ...] | None) -> Object:
        """Convert the object along a chain, by its functions alone."""
        group, version = split_api_version(content.get("apiVersion") or "")
        named = f"{content.get('kind')} {(content.get('metadata') or {}).get('name') or ''}".strip()
        if way is None:
            steps = ", ".join(f"{old} -> {new}" for old, known in self._steps.items() for new in known)
            raise ConversionError(f"convert {named} from {version} to {wanted}: no functions lead there; the steps "
                                  f"are {steps}")
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
            if made.get("status") is None and content.get("status") is not None and self._fits(content, there):
                made = {**made, "status": content["status"]}
            content = {"apiVersion": f"{group}/{there}", "kind": content["kind"], "metadata": metadata,
                       **{key: value for key, value in made.items() if key not in ("apiVersion", "kind", "metadata")}}
        return content


    def _fits(self, content: Object, version: str) -> bool:
        """Whether the object's status is valid in that version; True if the version has no class."""
        cls = self._classes.get(version)
        if cls is None:
            return True
        try:
            codecs_of(cls)["status"].from_plain(content["status"], None)
        except (DecodeError, KeyError):
            return False
        return True


KEPT = "conversion-kept"
"""The annotation's name, without the group before it."""
Lost = tuple[list[str], Any, Any]
"""The path of a value, the value after the round trip (None: missing), and the original value."""


_decode_kept = decoder_of(dict[str, list[Lost]])


def lost(before: Any, after: Any, path: tuple[str, ...] = ()) -> list[Lost]:
    """The values of `before` that `after` lacks: maps are compared by key, everything else as a whole. Metadata is not
    compared, and additional values in `after`, such as defaults, are no loss."""
    found: list[Lost] = []
    for key, value in before.items():
        if not path and key in ("apiVersion", "kind", "metadata"):
            continue
        now = after.get(key)
        if isinstance(value, dict) and isinstance(now, dict):
            found += lost(value, now, (*path, key))
        elif value is not None and not same_json(value, now):
            found.append(([*path, key], now, value))
    return found


def _kept_in(content: Object, key: str) -> tuple[dict[str, list[Lost]], Object]:
    """The annotation's content by version, and the object without it. Unreadable content is dropped, since any client
    may change the annotation."""
    metadata = content.get("metadata") or {}
    annotations = metadata.get("annotations") or {}
    if key not in annotations:
        return {}, content
    others = {name: value for name, value in annotations.items() if name != key}
    bare = {**content, "metadata": {**{name: value for name, value in metadata.items() if name != "annotations"},
                                    **({"annotations": others} if others else {})}}
    try:
        return _decode_kept(annotations[key]), bare
    except (*DECODE_FAILURES, TypeError):
        return {}, bare


def _put_back(content: Object, path: list[str], was: Any, value: Any) -> None:
    """Restore `value` at `path` if the value there is still `was`, as the earlier conversion left it."""
    here = content
    for key in path[:-1]:
        if here.get(key) is None:
            here[key] = {}
        here = here[key]
        if not isinstance(here, dict):
            return
    if path and path[0] not in ("apiVersion", "kind", "metadata") and same_json(here.get(path[-1]), was):
        here[path[-1]] = value


def _metadata(old: Object, new: Object | None, said: str) -> Object:
    """The old metadata with the new labels and annotations; unchanged if the function returned no metadata."""
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
    """Adapt a function on class instances to a function on dicts. A new object that `function` makes gets the metadata
    of the argument, except for labels and annotations that `function` set."""
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
