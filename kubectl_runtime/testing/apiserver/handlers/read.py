"""GET of an object and of a collection: paging, selectors, and which state of the data a resourceVersion asks for.

====================  ================  =======================================================================
resourceVersion       match             shows
====================  ================  =======================================================================
unset                 (forbidden)       the present
0                     -, NotOlderThan   the present; a limit is ignored
N                     -, with limit     the past, at N exactly (surprising, but so the real server reads it)
N                     -, NotOlderThan   the present; 504 after 3 s if N does not exist yet
N                     Exact             the past, at N exactly; 410 if compacted
in a continue token                     the past of the first page; 410 with a new token if compacted
====================  ================  =======================================================================
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import Any

from kubectl_runtime.testing.apiserver import errors, paging
from kubectl_runtime.testing.apiserver.context import RequestContext
from kubectl_runtime.testing.apiserver.errors import Cause
from kubectl_runtime.testing.apiserver.forms import Form
from kubectl_runtime.testing.apiserver.handlers.answers import answer_bytes, answer_one, stored
from kubectl_runtime.testing.apiserver.options import integer_param
from kubectl_runtime.testing.apiserver.registry import ResourceType
from kubectl_runtime.testing.apiserver.selectors import FieldSelector, LabelSelector, parse_fields, parse_labels
from kubectl_runtime.testing.apiserver.storage import Version, slice_of
from kubectl_runtime.testing.apiserver.wire import HttpResponse

Object = dict[str, Any]


@dataclass(slots=True)
class ListRequest:
    """The options of a list or watch."""

    labels: LabelSelector
    fields: FieldSelector
    limit: int
    rv: str
    match: str
    token: str
    timeout: int | None


def get(ctx: RequestContext) -> HttpResponse:
    """One object, or its /status."""
    with ctx.core.locked():
        version = stored(ctx)
    if version is None:
        raise errors.not_found(ctx.type.group, ctx.type.plural, ctx.info.name)
    return answer_one(ctx, version)


def read_list_request(ctx: RequestContext) -> ListRequest:
    """Read the query of a list or watch; 400 if it is malformed."""
    request = ctx.request
    limit, timeout = integer_param(request, "limit"), integer_param(request, "timeoutSeconds")
    return ListRequest(parse_labels(request.param("labelSelector")), _fields(ctx.type, request.param("fieldSelector")),
                       max(limit or 0, 0), request.param("resourceVersion"), request.param("resourceVersionMatch"),
                       request.param("continue"), timeout)


def _fields(resource_type: ResourceType, text: str) -> FieldSelector:
    names = resource_type.strategy.selectable_field_names()
    supported = {"metadata.name", "metadata.namespace"} | names
    unsupported = "field label not supported: {}"
    if not names and not resource_type.is_custom:
        unsupported = '"{}" is not a known field selector: only "metadata.name", "metadata.namespace"'
    return parse_fields(text, supported, unsupported)


def select(listing: ListRequest, version: Version) -> bool:
    """Whether the selectors match an object."""
    if listing.labels and not listing.labels.matches(version.labels):
        return False
    if not listing.fields:
        return True
    return listing.fields.matches({"metadata.name": version.name, "metadata.namespace": version.namespace,
                                   **version.fields})


def list_(ctx: RequestContext) -> HttpResponse:
    """A collection, or a page of it."""
    form = Form(ctx.type, ctx.media, ctx.request, ctx.core.clock.now, is_list=True)
    listing = read_list_request(ctx)
    validate(ctx, listing)
    with ctx.core.locked():
        versions, metadata = page(ctx, listing)
    return answer_bytes(ctx, form.many(versions, metadata))


def page(ctx: RequestContext, listing: ListRequest) -> tuple[list[Version], Object]:
    """The objects of a list or of a page of it, and the list's metadata; the core's lock is held."""
    rv, after, limit, objects, keys = _state(ctx, listing)
    items = (version for version in slice_of(objects, keys, ctx.namespace, after) if select(listing, version))
    found = list(islice(items, limit) if limit else items)
    metadata: Object = {"resourceVersion": str(rv)}
    if limit and len(found) == limit:
        rest = sum(1 for _ in items)
        if rest:
            metadata["continue"] = paging.ContinueToken(rv, found[-1].key).encode()
        if rest and not listing.labels and not listing.fields:
            metadata["remainingItemCount"] = rest
    return found, metadata


def _state(ctx: RequestContext, listing: ListRequest) -> tuple[int, str, int, dict[str, Version], list[str]]:
    """Which state to show: its resourceVersion, the key to go on after, the limit, the objects, their sorted keys."""
    storage, key = ctx.core.storage, ctx.type.storage
    bucket = storage.bucket(key)
    if listing.token:
        if listing.rv not in ("", "0"):
            raise errors.bad_request("specifying resource version is not allowed when using continue")
        token = paging.decode(listing.token)
        if token.rv < 0:
            return storage.rv, token.after, listing.limit, bucket.objects, bucket.keys
        if token.rv < storage.compacted:
            raise paging.too_old(token)
        rv = min(token.rv, storage.rv)
        return rv, token.after, listing.limit, *storage.snapshot(key, rv)
    wanted = parse_version(listing.rv)
    if listing.match == "Exact" or (wanted and not listing.match and listing.limit):
        if wanted > storage.rv:
            raise errors.resource_version_too_large(wanted, storage.rv)
        if wanted < storage.compacted:
            raise errors.expired("The resourceVersion for the provided list is too old.")
        return wanted, "", listing.limit, *storage.snapshot(key, wanted)
    if wanted > storage.rv:
        raise errors.resource_version_too_large(wanted, storage.rv)
    # resourceVersion=0 comes from the cache, which knows no pages
    limit = 0 if listing.rv and not wanted else listing.limit
    return storage.rv, "", limit, bucket.objects, bucket.keys


def parse_version(text: str) -> int:
    """A resourceVersion as number; 400 if it is none. (01 is taken as 1.)"""
    if not text:
        return 0
    if not (text.isascii() and text.isdecimal()):
        raise errors.bad_request(f"invalid resource version: {bad_version(text)}")
    return int(text)


def bad_version(text: str) -> str:
    """Why a text is no resourceVersion."""
    value = errors.go_value(text)
    return f"resourceVersion: Invalid value: {value}: strconv.ParseUint: parsing {value}: invalid syntax"


def validate(ctx: RequestContext, listing: ListRequest) -> None:
    """Whether the options of a list go together; raises the 422."""
    causes: list[Cause] = []
    match, at = listing.match, "resourceVersionMatch"
    if match:
        if not listing.rv:
            causes.append(errors.forbidden_field(
                at, "resourceVersionMatch is forbidden unless resourceVersion is provided"))
        if listing.token:
            causes.append(errors.forbidden_field(at, "resourceVersionMatch is forbidden when continue is provided"))
        if match not in ("Exact", "NotOlderThan"):
            causes.append(errors.not_supported(at, match, ["Exact", "NotOlderThan", ""]))
        if match == "Exact" and listing.rv == "0":
            causes.append(errors.forbidden_field(
                at, 'resourceVersionMatch "exact" is forbidden for resourceVersion "0"'))
    if ctx.request.has_param("sendInitialEvents"):
        causes.append(errors.forbidden_field("sendInitialEvents", "sendInitialEvents is forbidden for list"))
    if causes:
        raise errors.invalid("meta.k8s.io", "ListOptions", "", causes)
