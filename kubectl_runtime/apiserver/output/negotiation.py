"""The form of an answer and its encoding: JSON or YAML; whole objects, metadata only, or table rows.

`accept(request, …)` reads the Accept header. A `Form` for one resource type then encodes stored versions as objects,
lists, tables or watch events. An answer in the stored form joins stored bytes without decoding; metadata and table rows
decode the part that they need.

`shown_objects` is the only function that turns stored `Version`s into the objects that clients see. It converts objects
that are stored in another API version, all objects of an answer in one call. If a webhook converts them, the call
blocks until the webhook has answered, releases the cluster's lock if the thread holds it, and raises StatusError if the
conversion fails.
"""
from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import accumulate

import msgspec

from kubectl_runtime.apiserver import errors
from kubectl_runtime.apiserver.encoding import JSON, MEDIA_TYPES, PROTOBUF, YAML
from kubectl_runtime.apiserver.output.table import SCALE_COLUMNS, table_cells, table_definitions
from kubectl_runtime.apiserver.storage import ServedResource, Version, make_version
from kubectl_runtime.apiserver.wire import HttpRequest, Object

_TRANSFORMS = ("Table", "PartialObjectMetadata", "PartialObjectMetadataList")
# The maximum number of characters in all warnings together, and in each warning if the first maximum is exceeded.
MAX_WARNINGS, MAX_WARNING = 4096, 256
WATCH_TYPES = ("application/json;stream=watch", "application/vnd.kubernetes.protobuf;stream=watch")

encode = msgspec.json.encode


@dataclass(frozen=True, slots=True)
class Media:
    """The accepted form: a media type and, if requested, the kind to convert to."""

    yaml: bool = False
    pretty: bool = False
    transform: str = ""  # "", Table, PartialObjectMetadata or PartialObjectMetadataList
    transform_version: str = "v1"

    @property
    def content_type(self) -> str:
        return YAML if self.yaml else JSON


@dataclass(frozen=True, slots=True)
class Clause:
    """One media range of an Accept header."""

    type: str
    subtype: str
    params: dict[str, str]
    quality: float = 1.0

    def takes(self, media_type: str) -> bool:
        """Whether the media range contains a media type; case-sensitive, as on the real server."""
        kind, _, sub = media_type.partition("/")
        return (self.type, self.subtype) in ((kind, sub), (kind, "*"), ("*", "*"))


def clauses(header: str) -> list[Clause]:
    """The media ranges of an Accept header in order of preference; malformed ranges are left out."""
    found: list[Clause] = []
    for part in header.split(","):
        media, *rest = part.split(";")
        kind, slash, sub = (text.strip(" ") for text in media.partition("/"))
        if not slash and kind == "*":
            sub = "*"
        if not sub or "/" in sub:
            continue
        pairs = [pair.split("=") for pair in rest]
        params = {pair[0].strip(" "): pair[1].strip(" ") for pair in pairs if len(pair) == 2 and pair[1]}
        clause = Clause(kind, sub, params, _quality(params.pop("q", "1")))
        at = len(found)
        while at and _goes_before(clause, found[at - 1]):
            at -= 1
        found.insert(at, clause)
    return found


def _goes_before(one: Clause, other: Clause) -> bool:
    """Whether one clause is tried before another.

    This relation is not a total order: a precise range precedes a wildcard even if its quality is lower. The rule and
    the insertion sort are the real server's.
    """
    return (one.quality > other.quality or (one.type != "*" and other.type == "*")
            or (one.subtype != "*" and other.subtype == "*"))


def _quality(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0


def is_pretty(request: HttpRequest) -> bool:
    """Whether to indent the JSON, because the query requests it or the User-Agent is curl, Wget or a browser."""
    wanted = request.param("pretty")
    if wanted:
        return wanted in ("1", "t", "T", "TRUE", "true", "True")
    return request.header("user-agent").startswith(("curl", "Wget", "Mozilla/5.0"))


def accept(request: HttpRequest, *, watch: bool = False, custom: bool = False) -> Media:
    """The form of the answer. Raises a 406 if the client accepts no supported form.

    Requests for built-in types must first pass the real server's router, which knows no parameters and no ranges except
    ``*/*``. Requests for custom resources (`custom`) skip the router.
    """
    header = request.header("accept")
    if header and not custom:
        check_routed(header, (*MEDIA_TYPES, *(WATCH_TYPES if watch else ())))
    return negotiated(request)


def check_routed(header: str, media_types: Sequence[str]) -> None:
    """Raise the router's 406 unless an Accept header names one of the media types, or ``*/*``."""
    if not any(part.partition(";")[0].strip(" ") in ("*/*", *media_types) for part in header.split(",")):
        raise errors.StatusError(406, "NotAcceptable", "406: Not Acceptable\n\nAvailable representations: "
                                 + ", ".join(media_types), details={})


def negotiated(request: HttpRequest, *, transforms: bool = True) -> Media:
    """The first supported form in the Accept header's order of preference. Raises a 406."""
    header, pretty = request.header("accept"), is_pretty(request)
    if not header:
        return Media(pretty=pretty)
    for clause in clauses(header):
        # Protobuf is not supported: the client falls back to its next clause, or gets a 406.
        for media_type in (JSON, YAML):
            if clause.takes(media_type) and _allowed(clause.params, media_type, transforms):
                transform = clause.params.get("as", "")
                return Media(media_type == YAML, pretty or clause.params.get("pretty") == "1", transform,
                             clause.params.get("v", "v1"))
    raise errors.not_acceptable(MEDIA_TYPES)


def _allowed(params: dict[str, str], media_type: str, transforms: bool) -> bool:
    """Whether the parameters of a clause request a supported conversion."""
    if params.get("stream") and (params["stream"] != "watch" or media_type == YAML):
        return False
    if params.get("sv") and not (transforms and params["sv"] == "v1"):
        return False
    if not params.keys() & {"as", "g", "v"}:
        return True
    return (transforms and params.get("as") in _TRANSFORMS and params.get("g") == "meta.k8s.io"
            and params.get("v") in ("v1", "v1beta1"))


def error_media(request: HttpRequest) -> Media:
    """The form of an error: JSON if the requested form is not supported."""
    try:
        return negotiated(request, transforms=False)
    except errors.StatusError:
        return Media()


def wants_protobuf_only(request: HttpRequest) -> bool:
    """Whether the client accepts only protobuf. Errors are then sent in protobuf."""
    kind, _, sub = PROTOBUF.partition("/")
    found = clauses(request.header("accept"))
    return bool(found) and all((clause.type, clause.subtype) == (kind, sub) for clause in found)


def check_transform(media: Media, go_type: str, *, is_list: bool, custom: bool = False) -> None:
    """Refuse PartialObjectMetadataList for a single object, and PartialObjectMetadata for a list."""
    if media.transform == "PartialObjectMetadataList" and not is_list:
        if custom:
            raise errors.bare_500("content is not a list")  # the real server sends no 406 here
        raise errors.StatusError(406, "NotAcceptable",
                                 "you requested PartialObjectMetadataList, but the requested object is "
                                 f"not a list ({go_type})")
    if media.transform == "PartialObjectMetadata" and is_list:
        raise errors.StatusError(406, "NotAcceptable",
                                 "you requested PartialObjectMetadata, but the requested object is a "
                                 f"list ({go_type})")


def render(body: bytes, media: Media) -> bytes:
    """Convert encoded JSON to the form that the client accepts."""
    if media.yaml:
        return _yaml(body)
    if media.pretty:
        return msgspec.json.format(body, indent=2) + b"\n"
    return body + b"\n"


def _yaml(body: bytes) -> bytes:
    from kubectl_runtime.manifests.yaml_text import to_yaml

    return to_yaml(msgspec.json.decode(body)).encode()


def warning_headers(texts: Iterable[str]) -> list[tuple[str, str]]:
    """Warning headers as in RFC 7234. If all texts are too long together, each is cut, and the last are omitted."""
    shown = list(dict.fromkeys(texts))
    if sum(map(len, shown)) > MAX_WARNINGS:
        cut = [text[:MAX_WARNING] for text in shown]
        shown = [text for text, before in zip(cut, accumulate(map(len, cut), initial=0), strict=False)
                 if before < MAX_WARNINGS]
    return [("Warning", f"299 - {quoted(text)}") for text in shown]


def quoted(text: str) -> str:
    if not text.isprintable():
        text = "".join(character if character.isprintable() else " " for character in text)
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def protobuf_status(status: Object) -> bytes:
    """Encode a failure Status in protobuf with its envelope, for a client that accepts only protobuf."""
    details = b"\x0a\x00\x12\x00\x1a\x00"
    message = (_field(1, details) + _field(2, status["status"].encode()) + _field(3, status["message"].encode())
               + _field(4, status.get("reason", "").encode()) + b"\x30" + _varint(status["code"]))
    unknown = _field(1, _field(1, b"v1") + _field(2, b"Status")) + _field(2, message) + b"\x1a\x00\x22\x00"
    return b"k8s\x00" + unknown


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _field(number: int, data: bytes) -> bytes:
    return bytes([number << 3 | 2]) + _varint(len(data)) + data


def is_as_stored(resource_type: ServedResource, version: Version) -> bool:
    """Whether clients see the stored bytes unchanged."""
    return not resource_type.strategy.converts and version.stored_as in ("", resource_type.version)


def shown_objects(resource_type: ServedResource, versions: Sequence[Version]) -> list[Object]:
    """The decoded objects in the API version of `resource_type`, without kind and apiVersion."""
    decoded = [version.decode() for version in versions]
    stale = [index for index, version in enumerate(versions) if not is_as_stored(resource_type, version)]
    if stale:
        found = resource_type.strategy.all_from_storage([(decoded[index], versions[index].stored_as)
                                                         for index in stale], resource_type.version)
        for index, obj in zip(stale, found, strict=True):
            decoded[index] = obj
    return decoded


def own_versions(resource_type: ServedResource, versions: list[Version]) -> list[Version]:
    """Convert stored versions to the API version of `resource_type`. Raises StatusError.

    The results of a conversion webhook are also kept in the stored versions.
    """
    if all(is_as_stored(resource_type, version) for version in versions):
        return versions
    strategy = resource_type.strategy
    made = [make_version(obj, version.rv, version.fields, resource_type.version)
            for obj, version in zip(shown_objects(resource_type, versions), versions, strict=True)]
    if strategy.asks_webhook:
        for version, found in zip(versions, made, strict=True):
            version.converted = {**(version.converted or {}), strategy: found}
    return made


def shown_object(resource_type: ServedResource, version: Version) -> Object:
    obj = version.decode() if is_as_stored(resource_type, version) else shown_objects(resource_type, [version])[0]
    return {"kind": resource_type.kind, "apiVersion": resource_type.api_version, **obj}


_INCLUDE = {"": "Metadata", "Metadata": "Metadata", "Object": "Object", "None": "None"}


class Form:
    """The form in which one request gets the objects of one type."""

    def __init__(self, resource_type: ServedResource, media: Media, request: HttpRequest, now: Callable[[], datetime],
                 *, is_list: bool, is_watch: bool = False) -> None:
        package, suffix = resource_type.group.partition(".")[0] or "core", "List" if is_list else ""
        go_type = f"*{package}.{resource_type.kind}{suffix}"
        if resource_type.is_custom:
            go_type = f"*unstructured.Unstructured{suffix}"
        if not is_watch:
            check_transform(media, go_type, is_list=is_list, custom=resource_type.is_custom)
        self.type = resource_type
        self.media = media
        self.is_table = media.transform == "Table"
        self.is_partial = media.transform.startswith("PartialObjectMetadata")
        self._is_plain = not resource_type.is_custom and not resource_type.strategy.converts
        self._now = now
        self._include = _include(request) if self.is_table else ""
        self._meta_version = f"meta.k8s.io/{media.transform_version}"
        self._definitions_sent = False

    def one(self, version: Version) -> bytes:
        """The response body for a single object."""
        if not self._is_plain:
            (version,) = self.own([version])
        if self.is_table:
            metadata = {"resourceVersion": str(version.rv)} if version.rv else {}
            return self._table([version], metadata, table_definitions(self.type))
        return self._partial(version) if self.is_partial else self._whole(version)

    def own(self, versions: list[Version], *, cached: bool = False) -> list[Version]:
        """Convert stored versions to the request's API version, if needed. May call a conversion webhook.

        With `cached` a failing webhook has no effect if it converted all objects earlier, because the real server
        answers lists from a cache.
        """
        if self._is_plain:
            return versions
        try:
            return own_versions(self.type, versions)
        except errors.StatusError as error:
            known = [(version.converted or {}).get(self.type.strategy) for version in versions]
            if cached and error.from_webhook and all(known):
                return [version for version in known if version is not None]
            raise

    def _whole(self, version: Version) -> bytes:
        """The whole object with kind and apiVersion."""
        return self.type.prefix + version.tail

    def many(self, versions: list[Version], metadata: Object) -> bytes:
        """The response body for a list."""
        versions = self.own(versions, cached=True)
        if self.is_table:
            return self._table(versions, metadata, table_definitions(self.type))
        if self.is_partial:
            head = b'{"kind":"PartialObjectMetadataList","apiVersion":"%s","metadata":' % self._meta_version.encode()
            items = [self._partial(version) for version in versions]
            if not items:
                return b"%s%s,\"items\":null}" % (head, encode(metadata))  # as in the real server: null, not []
        elif self.type.is_custom:
            # In lists of custom resources items have a kind and apiVersion, and an empty continue is written.
            metadata = {"continue": "", **metadata}
            head = self._list_head()
            items = [self._whole(version) for version in versions]
        else:
            head = self._list_head()
            items = [b"{" + version.tail for version in versions]
        return b"".join((head, encode(metadata), b',"items":[', b",".join(items), b"]}"))

    def _list_head(self) -> bytes:
        kind, api_version = self.type.list_kind.encode(), self.type.api_version.encode()
        return b'{"kind":"%s","apiVersion":"%s","metadata":' % (kind, api_version)

    def event(self, kind: str, version: Version) -> bytes:
        """One watch event as a line of JSON."""
        if not self._is_plain:
            (version,) = self.own([version])
        if self.is_table:
            body = self._table([version], {"resourceVersion": str(version.rv)}, self._new_definitions())
        else:
            body = self._partial(version) if self.is_partial else self._whole(version)
        return b'{"type":"%s","object":%s}\n' % (kind.encode(), body)

    def bookmark(self, rv: int, *, initial: bool) -> bytes:
        """A bookmark event as a line of JSON; `initial` marks the end of the initial events."""
        metadata: Object = {"resourceVersion": str(rv)}
        whole: Object = {"kind": self.type.kind, "apiVersion": self.type.api_version, "metadata": metadata,
                         **self._blank()}
        partial: Object = {"kind": "PartialObjectMetadata", "apiVersion": self._meta_version, "metadata": metadata}
        shown = partial if self.is_partial or (self.is_table and self._include != "Object") else whole
        if self.is_table:  # the real server's row, too, has an object even if the client requests none
            shown = {"kind": "Table", "apiVersion": self._meta_version, "metadata": dict(metadata),
                     "columnDefinitions": self._new_definitions(),
                     "rows": [{"cells": table_cells(self.type, whole, self._now()), "object": shown}]}
        if initial:
            metadata["annotations"] = {"k8s.io/initial-events-end": "true"}
        return b'{"type":"BOOKMARK","object":%s}\n' % encode(shown)

    def _new_definitions(self) -> list[Object] | None:
        """The column definitions for the first table of a watch, None for later tables."""
        definitions = None if self._definitions_sent else table_definitions(self.type)
        self._definitions_sent = True
        return definitions

    def _blank(self) -> Object:
        """The empty fields that the real server writes in typed objects."""
        return {key: value for key, value in self.type.strategy.blank_shown().items()
                if key not in ("metadata", "kind", "apiVersion")}

    def _partial(self, version: Version) -> bytes:
        return b'{"kind":"PartialObjectMetadata","apiVersion":"%s","metadata":%s}' % (
            self._meta_version.encode(), version.metadata())

    def _table(self, versions: Iterable[Version], metadata: Object, definitions: list[Object] | None) -> bytes:
        now = self._now()
        rows = [b'{"cells":%s,"object":%s}' % (encode(table_cells(self.type, self._decoded(version), now)),
                                              self._row_object(version)) for version in versions]
        body = b"[%s]" % b",".join(rows)
        if not rows and not self.type.columns and not self.type.is_custom:
            body = b"null"  # as the real server writes for a built-in kind without columns of its own
        return b'{"kind":"Table","apiVersion":"%s","metadata":%s,"columnDefinitions":%s,"rows":%s}' % (
            self._meta_version.encode(), encode(metadata), encode(definitions), body)

    def _decoded(self, version: Version) -> Object:
        return {"kind": self.type.kind, "apiVersion": self.type.api_version, **version.decode()}

    def _row_object(self, version: Version) -> bytes:
        if self._include == "None":
            return b"null"
        return self._whole(version) if self._include == "Object" else self._partial(version)


def _include(request: HttpRequest) -> str:
    wanted = request.param("includeObject")
    if wanted not in _INCLUDE:
        raise errors.bad_request(f'Unable to convert to Table as requested: includeObject: Invalid value: "{wanted}": '
                                 "must be 'Metadata', 'Object', 'None', or empty")
    return _INCLUDE[wanted]


def as_transformed(media: Media, request: HttpRequest, obj: Object, now: datetime) -> Object:
    """Convert an object that is not stored to the accepted form. Only a Scale has a table; other kinds raise a 406."""
    group, _, _ = obj["apiVersion"].rpartition("/")
    check_transform(media, f"*{group.partition('.')[0]}.{obj['kind']}", is_list=False)
    api_version = f"meta.k8s.io/{media.transform_version}"
    partial = {"kind": "PartialObjectMetadata", "apiVersion": api_version, "metadata": obj["metadata"]}
    if media.transform != "Table":
        return partial
    if obj["kind"] != "Scale":
        raise errors.not_acceptable(MEDIA_TYPES)
    shown = {"None": None, "Object": obj, "Metadata": partial}[_include(request)]
    row = {"cells": [column.cell(obj, now) for column in SCALE_COLUMNS], "object": shown}
    return {"kind": "Table", "apiVersion": api_version,
            "metadata": {"resourceVersion": obj["metadata"].get("resourceVersion", "")},
            "columnDefinitions": [column.definition() for column in SCALE_COLUMNS], "rows": [row]}
