"""The lines of a recording: JSON, one object a line, each with `k`, what it is, and `t`, seconds on a clock.

====================  =================================================================================================
begin                 the first line of a file: `format`, `controller`, `session` (a process's life of it), `part` (its
                      files, counted), `at` (the date), `watches` (by name: `path`, `labels`, `fields`, `metadata`: only
                      that), `partial` (what was stored when it began does not follow: it was too much), `note`
watch                 there is one more watch: `w`, its name, and its `place`, as in `watches`
held                  an object that was stored when the file began: `w` the watch, `key`, and `o`, the object
ready                 the watch `w` had a complete list
apply, delete         an object came or changed, or is gone; `o` is the object, or `line` the watch line that brought it
trigger               `refs` to reconcile: [namespace, name, reason] each
run                   a run begins: `id`, `ns`, `name`, `reason`, `failures` before it
call                  an answer inside the run `id`: method `m`, `path`, `query`, body `b`, status `s`, answer `a`
                      (`text`, if it is not JSON), or the error `e` where there was none
end                   the run `id` ended: `result`, and if it failed `type`, `error` and `trace`
lost                  `count` lines that could not be kept: the disk was slower than the controller
stop                  the controller ended: `reason`
====================  =================================================================================================

Lines are in the order in which things happened in each thread, those of several threads as they came. The last line of
a process that was killed may be torn. What is withheld is said in `note`.
"""
from __future__ import annotations

from typing import Any

import msgspec

from kubectl_runtime.client.api.writes import Exchanged
from kubectl_runtime.core.codec.record import Record
from kubectl_runtime.core.meta.problems import DECODE_FAILURES
from kubectl_runtime.core.requests.names import encoded_query
from kubectl_runtime.runtime.flight.withheld import is_withheld, without_secrets

FORMAT = 1
NOTE = ("the data of Secrets, tokens of service accounts and reviews, headers, and the bodies of streams are withheld; "
        "everything else that the controller read or wrote is here as it was")

encode = msgspec.json.encode


class WatchPlace(msgspec.Struct, frozen=True):
    """What a watch asks for."""

    path: str
    labels: str = ""
    fields: str = ""
    metadata: bool = False


def document(body: bytes | None) -> msgspec.Raw | str | None:
    """A body as part of a line: the JSON that it is, or text."""
    if not body:
        return None
    try:
        if b"\n" in body:
            body = msgspec.json.format(body, indent=-1)
        return msgspec.json.decode(body, type=msgspec.Raw)
    except DECODE_FAILURES:
        return body.decode("utf-8", "replace")


def object_line(kind: str, now: float, watch: str, record: Record) -> bytes:
    """The line of a recording for an object that a watch brought: `held`, `apply` or `delete`."""
    key = f"{record.head.namespace or ''}/{record.head.name}"
    raw, name = record.raw, "line" if record.enveloped else "o"
    if record.view is not None:
        view = msgspec.to_builtins(record.view)
        raw, name = encode({**(view if isinstance(view, dict) else {}), "metadata": record.head}), "o"
    raw = without_secrets(raw, withheld=is_withheld(record.resource.full_name))
    start = encode({"k": kind, "t": now, "w": watch, "key": key})
    if record.problem is None and (record.enveloped or b"\n" not in raw):  # a line of JSON, as the client found it
        return b'%b,"%b":%b}' % (start[:-1], name.encode(), raw)
    return encode({"k": kind, "t": now, "w": watch, "key": key, name: document(raw)})


def call_line(now: float, run: int, exchanged: Exchanged) -> bytes:
    """The line of a recording for a call that a run made, without what is to be withheld."""
    request, answer = exchanged.request, exchanged.body
    body = request.body
    withheld = is_withheld(request.resource_name, request.subresource)
    body = None if body is None else without_secrets(body, withheld=withheld)
    answer = without_secrets(answer, withheld=withheld) if answer else answer
    line: dict[str, Any] = {"k": "call", "t": now, "id": run, "m": request.method, "path": request.path,
                            "query": encoded_query(request.query), "b": document(body)}
    if exchanged.error is not None:
        line["e"] = f"{type(exchanged.error).__name__}: {exchanged.error}"
    else:
        told = document(answer)
        line |= {"s": exchanged.status, "text" if isinstance(told, str) else "a": told}
    return encode(line)
