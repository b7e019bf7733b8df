"""GET of an object and of a collection: paging, selectors, and the state that a resourceVersion selects.

A list returns this state, by resourceVersion and resourceVersionMatch ("match"):

- unset: the current state. (A match without a resourceVersion is refused.)
- 0, with no match or NotOlderThan: the current state; a limit is ignored.
- N, with no match but a limit: the state at exactly N (surprising, but the real server does the same).
- N, with neither match nor limit, or with NotOlderThan: the current state; 504 after 3 s if N does not exist yet.
- N, with Exact: the state at exactly N; 410 if compacted.
- in a continue token: the state of the first page; 410 with a new token if compacted.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice

from kubectl_runtime.apiserver import errors, query
from kubectl_runtime.apiserver.context import RequestContext, answer_bytes, answer_one, stored
from kubectl_runtime.apiserver.errors import Cause
from kubectl_runtime.apiserver.output.negotiation import Form
from kubectl_runtime.apiserver.query import (
    FieldSelector,
    LabelSelector,
    Shards,
    integer_param,
    parse_fields,
    parse_labels,
    parse_shards,
    parse_uint,
)
from kubectl_runtime.apiserver.storage import SHARDED, ServedResource, Version, slice_of
from kubectl_runtime.apiserver.wire import HttpResponse, Object, is_true


@dataclass(slots=True)
class ListRequest:
    labels: LabelSelector
    fields: FieldSelector
    limit: int
    rv: str
    match: str
    token: str
    timeout: int | None
    shards: Shards | None = None


def get(ctx: RequestContext) -> HttpResponse:
    """Answer with the current state of an object or its /status. The requested resourceVersion must exist."""
    if ctx.request.has_param("export") and is_true(ctx.request, "export"):
        raise errors.bad_request("the export parameter, deprecated since v1.14, is no longer supported")
    try:
        wanted = parse_version(ctx.request.param("resourceVersion"))
    except ValueError as error:
        raise errors.bare_500(str(error)) from None  # the real server sends a 500 without a reason, not a 400
    with ctx.cluster.locked():
        if wanted > ctx.cluster.storage.rv:
            raise errors.resource_version_too_large(wanted, ctx.cluster.storage.rv)
        version = stored(ctx)
    if version is None:
        raise errors.not_found(ctx.type.group, ctx.type.plural, ctx.info.name)
    return answer_one(ctx, version)


def read_list_request(ctx: RequestContext) -> ListRequest:
    """Read the query of a list or watch. Raises a 400 if it is malformed."""
    request = ctx.request
    fields = _fields(ctx.type, request.param("fieldSelector"))
    if ctx.info.name:  # only deprecated /watch/ paths name an object
        if fields and not fields.matches({"metadata.name": ctx.info.name, "metadata.namespace": ctx.info.namespace}):
            raise errors.bad_request("fieldSelector metadata.name doesn't match requested name")
        fields = FieldSelector((("metadata.name", True, ctx.info.name),))
    limit, timeout = integer_param(request, "limit"), integer_param(request, "timeoutSeconds")
    shards = parse_shards(request.param("shardSelector")) if SHARDED in ctx.cluster.gates else None
    return ListRequest(parse_labels(request.param("labelSelector")), fields, max(limit or 0, 0),
                       request.param("resourceVersion"), request.param("resourceVersionMatch"),
                       request.param("continue"), timeout, shards)


def _fields(resource_type: ServedResource, text: str) -> FieldSelector:
    if not text:
        return FieldSelector()
    strategy = resource_type.strategy
    names = strategy.selectable_field_names()
    supported = {"metadata.name"} | names
    # The real server also accepts metadata.namespace for a cluster-scoped kind that declares no fields.
    if resource_type.namespaced or not names:
        supported |= {"metadata.namespace"}
    return parse_fields(text, supported, strategy.unsupported_field)


def select(listing: ListRequest, version: Version) -> bool:
    """Whether the selectors match an object."""
    if listing.shards is not None and not listing.shards.matches(version):
        return False
    if listing.labels and not listing.labels.matches(version.labels):
        return False
    if not listing.fields:
        return True
    return listing.fields.matches({"metadata.name": version.name, "metadata.namespace": version.namespace,
                                   **version.fields})


def list_(ctx: RequestContext) -> HttpResponse:
    """Answer with a collection, or a page of it."""
    form = Form(ctx.type, ctx.media, ctx.request, ctx.cluster.clock.now, is_list=True)
    listing = read_list_request(ctx)
    validate(ctx, listing)
    with ctx.cluster.locked():
        versions, metadata = page(ctx, listing)
    return answer_bytes(ctx, form.many(versions, metadata))


def page(ctx: RequestContext, listing: ListRequest) -> tuple[list[Version], Object]:
    """The objects of a list or of one page, and the list's metadata. The caller must hold the cluster's lock."""
    rv, start, limit, objects, keys = _state(ctx, listing)
    items = slice_of(objects, keys, ctx.namespace, start)
    selected = (version for version in items if select(listing, version))
    found = list(islice(selected, limit) if limit else selected)
    metadata: Object = {"resourceVersion": str(rv)}
    if limit and len(found) == limit and not _is_single(ctx, listing):
        rest = sum(1 for _ in items)  # like the real server, also counts objects that do not match
        if rest:
            metadata["continue"] = query.after(rv, found[-1], ctx.namespace).encode()
        if rest and not listing.labels and not listing.fields:
            metadata["remainingItemCount"] = rest  # counts all shards together
    if listing.shards is not None and not ctx.type.is_custom:  # surprising: lists of custom resources lack it
        metadata["shardInfo"] = {"selector": listing.shards.text}
    return found, metadata


def _is_single(ctx: RequestContext, listing: ListRequest) -> bool:
    """Whether the field selector names a single object."""
    fields = listing.fields
    one_namespace = ctx.namespace or not ctx.type.namespaced or fields.exact("metadata.namespace")
    return bool(one_namespace) and fields.exact("metadata.name") is not None


def _state(ctx: RequestContext, listing: ListRequest) -> tuple[int, str, int, dict[str, Version], list[str]]:
    """The state to return: its resourceVersion, the first key, the limit, the objects, and their sorted keys."""
    storage, key = ctx.cluster.storage, ctx.type.storage
    bucket = storage.bucket(key)
    if listing.token:
        if listing.rv not in ("", "0"):
            raise errors.bad_request("specifying resource version is not allowed when using continue")
        token = query.decode(listing.token)
        if token.rv < 0:
            return storage.rv, token.start, listing.limit, bucket.objects, bucket.keys
        if token.rv < storage.compacted:
            raise query.too_old(token)
        if token.rv > storage.rv:
            raise errors.resource_version_too_large(token.rv, storage.rv)
        return token.rv, token.start, listing.limit, *storage.snapshot(key, token.rv)
    try:
        wanted = parse_version(listing.rv)
    except ValueError as error:
        raise errors.bad_request(f"invalid resource version: {error}") from None
    if listing.match == "Exact" or (wanted and not listing.match and listing.limit):
        if wanted > storage.rv:
            raise errors.resource_version_too_large(wanted, storage.rv)
        if wanted < storage.compacted:
            raise errors.expired("The resourceVersion for the provided list is too old.")
        return wanted, "", listing.limit, *storage.snapshot(key, wanted)
    if wanted > storage.rv:
        raise errors.resource_version_too_large(wanted, storage.rv)
    # the real server answers resourceVersion=0 from its cache, without pages
    limit = 0 if listing.rv and not wanted else listing.limit
    return storage.rv, "", limit, bucket.objects, bucket.keys


def parse_version(text: str) -> int:
    """A resourceVersion as a number, 0 for "". Raises ValueError if it is invalid. (01 is read as 1.)"""
    try:
        return parse_uint(text) if text else 0
    except ValueError as error:
        raise ValueError(f"resourceVersion: Invalid value: {errors.go_value(text)}: {error}") from None


def validate(ctx: RequestContext, listing: ListRequest) -> None:
    """Check that the options of a list are compatible. Raises a 422."""
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
