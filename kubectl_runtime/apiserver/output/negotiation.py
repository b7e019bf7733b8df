"""In which form an answer goes out: JSON or YAML, the object itself, its metadata only, or a row of a table.

`accept(request, …)` reads the Accept header; a `Form` then turns stored versions into bytes. Forms are values: equal
forms of one type give equal bytes, so that watches can share an encoding.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import msgspec

from kubectl_runtime.apiserver import errors
from kubectl_runtime.apiserver.encoding.body import JSON, MEDIA_TYPES, PROTOBUF, YAML
from kubectl_runtime.apiserver.wire import HttpRequest

Object = dict[str, Any]

_TRANSFORMS = ("Table", "PartialObjectMetadata", "PartialObjectMetadataList")
MAX_WARNINGS, MAX_WARNING = 4096, 256  # characters of all warnings, and of one if there are more
WATCH_TYPES = ("application/json;stream=watch", "application/vnd.kubernetes.protobuf;stream=watch")

encode = msgspec.json.encode


@dataclass(frozen=True, slots=True)
class Media:
    """What the client accepts: a media type and, if wanted, the kind to convert to."""

    yaml: bool = False
    pretty: bool = False
    transform: str = ""  # "", Table, PartialObjectMetadata or PartialObjectMetadataList
    transform_version: str = "v1"

    @property
    def content_type(self) -> str:
        """The media type of the answer."""
        return YAML if self.yaml else JSON


@dataclass(frozen=True, slots=True)
class Clause:
    """One media range of an Accept header."""

    type: str
    subtype: str
    params: dict[str, str]
    quality: float = 1.0

    def takes(self, media_type: str) -> bool:
        """Whether a media type lies in the range; upper and lower case differ, as on the real server."""
        kind, _, sub = media_type.partition("/")
        return (self.type, self.subtype) in ((kind, sub), (kind, "*"), ("*", "*"))


def clauses(header: str) -> list[Clause]:
    """The media ranges of an Accept header, the best ones first; what is malformed is left out."""
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
    """Not an order: a lower quality does not hold a precise range back. This and sorting by insertion are the real
    server's."""
    return (one.quality > other.quality or (one.type != "*" and other.type == "*")
            or (one.subtype != "*" and other.subtype == "*"))


def _quality(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0


def is_pretty(request: HttpRequest) -> bool:
    """Whether JSON is asked for with line breaks: by the query, or by being somebody who reads it himself."""
    wanted = request.param("pretty")
    if wanted:
        return wanted in ("1", "t", "T", "TRUE", "true", "True")
    return request.header("user-agent").startswith(("curl", "Wget", "Mozilla/5.0"))


def accept(request: HttpRequest, *, watch: bool = False, custom: bool = False) -> Media:
    """The form to answer in; raises the 406 if there is none that the client accepts.

    Requests for built-in types pass a router first that knows no parameters and no ranges but ``*/*``; those for custom
    resources (`custom`) do not.
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
    """The form that an Accept header asks for among those that the server has; raises the 406."""
    header, pretty = request.header("accept"), is_pretty(request)
    if not header:
        return Media(pretty=pretty)
    for clause in clauses(header):
        # This server has no protobuf: the client falls back to its next clause, or gets the 406.
        for media_type in (JSON, YAML):
            if clause.takes(media_type) and _allowed(clause.params, media_type, transforms):
                transform = clause.params.get("as", "")
                return Media(media_type == YAML, pretty or clause.params.get("pretty") == "1", transform,
                             clause.params.get("v", "v1"))
    raise errors.not_acceptable(MEDIA_TYPES)


def _allowed(params: dict[str, str], media_type: str, transforms: bool) -> bool:
    """Whether the parameters of a clause ask for something that there is."""
    if params.get("stream") and (params["stream"] != "watch" or media_type == YAML):
        return False
    if params.get("sv") and not (transforms and params["sv"] == "v1"):
        return False
    if not params.keys() & {"as", "g", "v"}:
        return True
    return (transforms and params.get("as") in _TRANSFORMS and params.get("g") == "meta.k8s.io"
            and params.get("v") in ("v1", "v1beta1"))


def error_media(request: HttpRequest) -> Media:
    """The form of an error, which must not fail itself."""
    try:
        return negotiated(request, transforms=False)
    except errors.StatusError:
        return Media()


def wants_protobuf_only(request: HttpRequest) -> bool:
    """Whether protobuf is all the client accepts: its errors then come in protobuf."""
    kind, _, sub = PROTOBUF.partition("/")
    found = clauses(request.header("accept"))
    return bool(found) and all((clause.type, clause.subtype) == (kind, sub) for clause in found)


def check_transform(media: Media, go_type: str, *, is_list: bool, custom: bool = False) -> None:
    """Refuse a conversion to a list of a single object, and the reverse."""
    if media.transform == "PartialObjectMetadataList" and not is_list:
        if custom:
            raise errors.bare_500("content is not a list")  # surprising: no 406, and no reason
        raise errors.StatusError(406, "NotAcceptable",
                                 "you requested PartialObjectMetadataList, but the requested object is "
                                 f"not a list ({go_type})")
    if media.transform == "PartialObjectMetadata" and is_list:
        raise errors.StatusError(406, "NotAcceptable",
                                 "you requested PartialObjectMetadata, but the requested object is a "
                                 f"list ({go_type})")


def render(body: bytes, media: Media) -> bytes:
    """Encoded JSON in the form that the client accepts."""
    if media.yaml:
        return _yaml(body)
    if media.pretty:
        return msgspec.json.format(body, indent=2) + b"\n"
    return body + b"\n"


def _yaml(body: bytes) -> bytes:
    from kubectl_runtime.manifests.yaml_text import to_yaml

    return to_yaml(msgspec.json.decode(body)).encode()


def warning_headers(texts: Iterable[str]) -> list[tuple[str, str]]:
    """Warning headers as RFC 7234 wants them; if they are many, each is cut, and the last ones are left out."""
    shown = list(dict.fromkeys(texts))
    if sum(map(len, shown)) > MAX_WARNINGS:
        cut = [text[:MAX_WARNING] for text in shown]
        shown = [text for text, before in zip(cut, accumulate(map(len, cut), initial=0), strict=False)
                 if before < MAX_WARNINGS]
    return [("Warning", f"299 - {quoted(text)}") for text in shown]


def quoted(text: str) -> str:
    """A header's quoted string."""
    if not text.isprintable():
        text = "".join(character if character.isprintable() else " " for character in text)
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def protobuf_status(status: Object) -> bytes:
    """A failure Status in the protobuf envelope: what a client that accepts nothing else gets."""
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
