"""The configured webhooks in the order of their calls, and the interface through which the core calls them.

Webhooks are ordered by the name of their configuration and their position in it. They are read from the stored
configurations, and read again after a configuration changes, under the cluster's lock.

The transport implements `WebhookCaller`, and the core interprets the answer. A call blocks, so no lock is held.
`send` sends a review and reads the answer. Its error messages are client-go's: `PostError` has the text that follows
``failed to call webhook: `` in the real server's refusals.
"""
from __future__ import annotations

import base64
import binascii
import math
from dataclasses import dataclass
from typing import Protocol
from urllib.parse import urlsplit, urlunsplit

import msgspec

from kubectl_runtime.apiserver.encoding import parse_json, type_meta_problem
from kubectl_runtime.apiserver.errors import BodyDecodeError, go_quoted
from kubectl_runtime.apiserver.kinds import typed
from kubectl_runtime.apiserver.kinds.base import label_selector
from kubectl_runtime.apiserver.policies.configured import Policies
from kubectl_runtime.apiserver.query import LabelSelector
from kubectl_runtime.apiserver.storage import Storage, Version
from kubectl_runtime.apiserver.wire import Object

HTTPS = 443
DEADLINE = "context deadline exceeded"  # Go's text for a call that took too long
REVIEW_VERSIONS = ("v1", "v1beta1")  # the review versions that the server can send


@dataclass(frozen=True, slots=True)
class Target:
    """The address of a webhook, or its Service (`service` is ``namespace/name``)."""

    url: str
    """``https://host[:port]/path``; for a Service ``https://name.namespace.svc:port/path``."""
    service: str = ""
    ca: bytes = b""
    """The CA bundle that verifies the webhook's certificate; empty for the system's CAs."""


@dataclass(frozen=True, slots=True)
class WebhookAnswer:
    """An HTTP response with any content."""

    status: int
    content_type: str
    body: bytes


class CallFailed(Exception):
    """A call got no answer. The text is what Go's HTTP client prints after ``Post "URL": ``."""


class WebhookCaller(Protocol):
    """Sends requests to webhooks. Safe to use from any thread."""

    def is_remote(self, url: str) -> bool:
        """Whether a call to `url` leaves this process, so that several calls may run in parallel."""

    def post(self, target: Target, url: str, body: bytes, timeout: float) -> WebhookAnswer:
        """POST a review to `url`, the target's URL with a query, as JSON. Blocks for at most `timeout` seconds, or
        until the server stops. Raises CallFailed."""


class NoCaller:
    """The `WebhookCaller` of a server core that cannot call webhooks: every call fails."""

    def is_remote(self, url: str) -> bool:
        return False

    def post(self, target: Target, url: str, body: bytes, timeout: float) -> WebhookAnswer:
        """Raise CallFailed."""
        raise CallFailed("this server core cannot call webhooks: use ApiServer, which can")


def target_of(config: Object) -> Target:
    """The target of a clientConfig."""
    try:
        ca = base64.b64decode(config.get("caBundle") or "").strip()
    except binascii.Error:
        ca = b"?"  # invalid, so that the certificate check fails
    service = config.get("service")
    if service is None:
        parts = urlsplit(config.get("url") or "")
        return Target(urlunsplit((parts.scheme, parts.netloc, parts.path or "/", "", "")), ca=ca)
    name, namespace, path = (service.get(key) or "" for key in ("name", "namespace", "path"))
    url = f"https://{name}.{namespace}.svc:{service.get('port') or HTTPS}/{path.lstrip('/')}"
    return Target(url, f"{namespace}/{name}", ca)


MAX_TEXT = 2048  # maximum bytes of an invalid answer that a message quotes

_MESSAGES = {
    400: "the server rejected our request for an unknown reason",
    401: "the server has asked for the client to provide credentials",
    404: "the server could not find the requested resource",
    405: "the server does not allow this method on the requested resource",
    409: "the server reported a conflict",
    422: "the server rejected our request due to an error in our request",
    429: "the server has received too many requests and has asked us to try again later",
    503: "the server is currently unable to handle the request",
    504: "the server was unable to return a response in the time allotted, but may still be processing the request",
}


class PostError(Exception):
    """A call failed, or its answer contains no readable review."""


def send(caller: WebhookCaller, target: Target, review: Object, type_name: str, *, timeout: float) -> Object:
    """Send a review and return the answer's content, decoded as `type_name` (``admission.v1.AdmissionReview``).

    A missing apiVersion or kind becomes "". Blocks for at most `timeout` seconds; the webhook reads the timeout from
    the URL. Raises PostError.
    """
    url = f"{target.url}?timeout={math.ceil(timeout)}s" if timeout > 0 else target.url
    try:
        if timeout <= 0:
            raise CallFailed(DEADLINE)
        answer = caller.post(target, url, msgspec.json.encode(review), timeout)
    except CallFailed as error:
        raise PostError(f'Post "{url}": {error}') from None
    if not 200 <= answer.status <= 206:
        raise PostError(_failure(answer))
    if not answer.body:
        raise PostError(f"0-length response with status code: {answer.status} and content type: {answer.content_type}")
    return _read(answer.body, review["apiVersion"], review["kind"], type_name)


def _failure(answer: WebhookAnswer) -> str:
    """The message for an unsuccessful answer, from its Status or its HTTP code."""
    try:
        content = msgspec.json.decode(answer.body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        content = None
    if isinstance(content, dict) and (content.get("kind"), content.get("status")) == ("Status", "Failure"):
        return str(content.get("message") or "unknown")
    media = answer.content_type.partition(";")[0].strip().lower()
    shown = answer.body[:MAX_TEXT].decode(errors="replace").strip() if media.startswith("text/") or not media else (
        "unknown")
    if answer.status in (403, 415) or (answer.status == 406 and shown not in ("", "unknown")):
        return shown
    if answer.status == 406:
        return "the server was unable to respond with a content type that the client supports"
    if answer.status in _MESSAGES:
        return _MESSAGES[answer.status]
    if answer.status >= 500:
        return f"an error on the server ({go_quoted(shown)}) has prevented the request from succeeding"
    return f"the server responded with the status code {answer.status} but did not return more information"


def _read(body: bytes, api_version: str, kind: str, type_name: str) -> Object:
    try:
        content, _ = parse_json(body)
    except ValueError as error:
        raise PostError(f"couldn't get version/kind; json parse error: {error}") from None
    content = {} if content is None else content  # the real decoder reads null as an empty object
    if problem := type_meta_problem(content):
        raise PostError(f"couldn't get version/kind; json parse error: {problem}")
    found, answered = content.get("apiVersion") or "", content.get("kind") or ""
    if (found or api_version, answered or kind) != (api_version, kind):
        raise PostError(_mismatch(found, answered, api_version, kind, content))
    try:
        typed.decode(type_name, content)
    except BodyDecodeError as error:
        raise PostError(str(error)) from None
    return {**content, "apiVersion": found, "kind": answered}


def _mismatch(found: str, answered: str, api_version: str, kind: str, content: Object) -> str:
    if answered == "Status" and content.get("status") == "Failure":
        return str(content.get("message") or "unknown")
    if answered == kind and found.rpartition("/")[0] == api_version.rpartition("/")[0] and found.endswith(
            ("/v1", "/v1beta1")):
        one, other = (version.rpartition("/")[2] for version in (found, api_version))
        return f"converting ({one}.{kind}) to ({other}.{kind}): unknown conversion"
    return f'no kind "{answered}" is registered for version "{found}" in scheme "pkg/runtime/scheme.go:110"'


MUTATING = "admissionregistration.k8s.io/mutatingwebhookconfigurations"
VALIDATING = "admissionregistration.k8s.io/validatingwebhookconfigurations"
_DRY_RUN_EFFECTS = ("None", "NoneOnDryRun")


@dataclass(frozen=True, slots=True, eq=False)
class Hook:
    """One webhook of a configuration; compared by identity."""

    name: str
    target: Target
    rules: tuple[Object, ...]
    fails_closed: bool
    matches_equivalents: bool
    namespace_selector: LabelSelector
    object_selector: LabelSelector
    conditions: tuple[tuple[str, str], ...]
    """(name, expression)"""
    may_run_dry: bool
    timeout: float
    """In seconds."""
    review_versions: tuple[str, ...]
    reinvoked: bool


class Hooks:
    """The webhooks and policies in one storage, and the `WebhookCaller`."""

    def __init__(self, storage: Storage, caller: WebhookCaller) -> None:
        self._storage = storage
        self.caller = caller
        self.policies = Policies(storage)
        self._read: dict[str, tuple[list[Version], tuple[Hook, ...]]] = {}

    def mutating(self) -> tuple[Hook, ...]:
        """The webhooks that may change an object."""
        return self._of(MUTATING)

    def validating(self) -> tuple[Hook, ...]:
        """The webhooks that only validate."""
        return self._of(VALIDATING)

    def __bool__(self) -> bool:
        """Whether any webhook configuration or policy binding exists. Every write checks this, so the check is cheap.
        """
        get = self._storage.buckets.get
        mutating, validating = get(MUTATING), get(VALIDATING)
        return ((mutating is not None and bool(mutating.objects))
                or (validating is not None and bool(validating.objects)) or bool(self.policies))

    def _of(self, key: str) -> tuple[Hook, ...]:
        bucket = self._storage.buckets.get(key)
        if bucket is None or not bucket.objects:
            return ()
        versions = list(bucket.scan(""))
        before, hooks = self._read.get(key, ([], ()))
        if before != versions:  # compared by identity
            hooks = tuple(hook_of(entry) for version in versions for entry in version.decode().get("webhooks") or ())
            self._read[key] = (versions, hooks)
        return hooks


def hook_of(entry: Object) -> Hook:
    """The webhook that an entry of a configuration describes."""
    return Hook(
        name=entry["name"], target=target_of(entry.get("clientConfig") or {}), rules=tuple(entry.get("rules") or ()),
        fails_closed=entry.get("failurePolicy") != "Ignore",
        matches_equivalents=entry.get("matchPolicy") != "Exact",
        namespace_selector=_selector(entry.get("namespaceSelector")),
        object_selector=_selector(entry.get("objectSelector")),
        conditions=tuple((condition["name"], condition["expression"])
                         for condition in entry.get("matchConditions") or ()),
        may_run_dry=entry.get("sideEffects") in _DRY_RUN_EFFECTS, timeout=float(entry.get("timeoutSeconds") or 10),
        review_versions=tuple(entry.get("admissionReviewVersions") or ()),
        reinvoked=entry.get("reinvocationPolicy") == "IfNeeded")


def _selector(selector: Object | None) -> LabelSelector:
    return label_selector(selector) or LabelSelector()
