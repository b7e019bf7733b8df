"""In which form an answer goes out: JSON or YAML, the object itself, its metadata only, or a row of a table.

`accept(request, …)` reads the Accept header; a `Form` then turns stored versions into bytes. Forms are values: equal
forms of one type give equal bytes, so that watches can share an encoding.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import msgspec

from kubectl_runtime.testing.apiserver import errors
from kubectl_runtime.testing.apiserver.body import JSON, MEDIA_TYPES, PROTOBUF, YAML
from kubectl_runtime.testing.apiserver.wire import HttpRequest

Object = dict[str, Any]

_TRANSFORMS = ("Table", "PartialObjectMetadata", "PartialObjectMetadataList")
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


def clauses(header: str) -> list[tuple[float, str, dict[str, str]]]:
    """The (quality, media type, parameters) of an Accept header, the best ones first."""
    found = []
    for clause in header.split(","):
        media, *rest = (part.strip() for part in clause.split(";"))
        pairs = (part.partition("=") for part in rest)
        params = {key.strip().lower(): value.strip() for key, _, value in pairs}
        try:
            quality = float(params.pop("q", "1"))
        except ValueError:
            quality = 1.0
        found.append((quality, media.lower(), params))
    return sorted(found, key=lambda clause: -clause[0])


def is_pretty(request: HttpRequest) -> bool:
    """Whether JSON is asked for with line breaks."""
    return request.has_param("pretty") and request.param("pretty").lower() not in ("false", "0")


def accept(request: HttpRequest, *, watch: bool = False) -> Media:
    """The form to answer in; raises the 406 if there is none that the client accepts."""
    header = request.header("accept")
    pretty = is_pretty(request)
    if not header:
        return Media(pretty=pretty)
    known = False
    for _, media, params in clauses(header):
        if media not in (JSON, YAML, "*/*", PROTOBUF):
            continue
        known = True
        if media == PROTOBUF:
            continue  # this server has no protobuf: the client falls back to the next clause, or gets the 406
        transform = params.get("as", "")
        if transform and (transform not in _TRANSFORMS or params.get("g") != "meta.k8s.io"
                          or params.get("v") not in ("v1", "v1beta1")):
            continue
        return Media(media == YAML, pretty, transform, params.get("v", "v1"))
    if known:
        raise errors.not_acceptable(MEDIA_TYPES)
    available = ", ".join((*MEDIA_TYPES, *(WATCH_TYPES if watch else ())))
    raise errors.StatusError(406, "NotAcceptable", f"406: Not Acceptable\n\nAvailable representations: {available}",
                             details={})


def error_media(request: HttpRequest) -> Media:
    """The form of an error, which must not fail itself."""
    try:
        media = accept(request)
    except errors.StatusError:
        return Media()
    return Media(media.yaml, media.pretty)


def wants_protobuf_only(request: HttpRequest) -> bool:
    """Whether protobuf is all the client accepts: its errors then come in protobuf."""
    return all(media == PROTOBUF for _, media, _ in clauses(request.header("accept")))


def check_transform(media: Media, go_type: str, *, is_list: bool) -> None:
    """Refuse a conversion to a list of a single object, and the reverse."""
    if media.transform == "PartialObjectMetadataList" and not is_list:
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
        return to_yaml(msgspec.json.decode(body))
    if media.pretty:
        return msgspec.json.format(body, indent=2) + b"\n"
    return body + b"\n"


def to_yaml(value: Any) -> bytes:
    """YAML with sorted keys, as the real server writes it."""
    import yaml

    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
    text: str = yaml.dump(value, Dumper=dumper, sort_keys=True, allow_unicode=True, default_flow_style=False,
                          width=1 << 20)
    return text.encode()


def warning_headers(texts: Iterable[str]) -> list[tuple[str, str]]:
    """Warning headers as RFC 7234 wants them."""
    return [("Warning", f"299 - {quoted(text)}") for text in dict.fromkeys(texts)]


def quoted(text: str) -> str:
    """A header's quoted string."""
    printable = "".join(character if character.isprintable() else " " for character in text)
    return '"' + printable.replace("\\", "\\\\").replace('"', '\\"') + '"'


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
