"""`application`: admission webhooks and conversions as a WSGI application, which any server runs.

    app = application({"/quota": Quota(), "/convert": Conversion({("v1", "v2"): to_v2, ("v2", "v1"): to_v1})})

    POST /quota/validate, /quota/mutate    AdmissionReview in, AdmissionReview out: those that the class defines
    POST /convert                          ConversionReview in, ConversionReview out

    200   every review that has a uid, whatever its answer is
    400   no review, or one of another version      405   another method than POST      411   without Content-Length
    404   another path                              408   the body came too slowly      413   more than `limit` bytes
    415   another content type than JSON

What is not 200 has a Status as its body, as everything of Kubernetes: the API server shows its message to whoever is
concerned. Nothing is encrypted here, and nobody is asked who he is: that is the server's business.
"""
from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from kubectl_runtime.core.base.errors import RequestError, did_you_mean, reason_of
from kubectl_runtime.core.base.guard import Guard, guarded_logger
from kubectl_runtime.core.base.interpreter import signature_of
from kubectl_runtime.core.codec.encode import encode_plain
from kubectl_runtime.core.objects.admission import failure_status, status_dict
from kubectl_runtime.webhooks.answering import BadReview, Converts, admission_answer, conversion_answer
from kubectl_runtime.webhooks.handler import Admission

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIEnvironment

log = guarded_logger(__name__)

LIMIT = 7 << 20
"""Bytes of an AdmissionReview, as in controller-runtime: it holds the object and the old one, each of up to the 3 MiB
that the API server itself reads."""
CONVERSION_LIMIT = 64 << 20
"""Bytes of a ConversionReview, which holds all objects of a list that somebody asked for in another version."""

Answer = Callable[[bytes], bytes]


class Application:
    """Answers the reviews of API servers, as a WSGI application; made by `application`. Immutable; safe for any number
    of threads, if the handlers are.

    >>> class Quota(Admission[Pod]):
    ...     def validate(self, request: AdmissionRequest[Pod]) -> None:
    ...         request.warn("the quota is nearly used up")
    >>> application({"/quota": Quota()}).paths
    ('/quota/validate',)
    """

    def __init__(self, routes: Mapping[str, Admission[Any] | Converts], limit: int) -> None:
        if not isinstance(routes, Mapping):
            raise RequestError(f"an application needs a mapping from paths to webhooks, not {type(routes).__name__}")
        self.handlers = dict(routes)
        """As they were given: by path."""
        self._routes: dict[str, tuple[Answer, int]] = {}
        for mount, handler in routes.items():
            _check_mount(mount)
            if isinstance(handler, Admission):
                for path, answer in _admission_routes(mount, handler):
                    self._add(path, answer, limit)
            elif callable(getattr(handler, "convert", None)) and not isinstance(handler, type):
                self._add(mount, partial(conversion_answer, handler, guard=Guard(mount, log)), CONVERSION_LIMIT)
            else:
                given = f"the class {handler.__name__}: make an object" if isinstance(handler, type) else repr(handler)
                raise RequestError(f"{mount}: an Admission or a Conversion is served, not {given}")

    def _add(self, path: str, answer: Answer, limit: int) -> None:
        if path in self._routes:
            raise RequestError(f"two webhooks would be served at {path}")
        self._routes[path] = (answer, limit)

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths at which it answers."""
        return tuple(self._routes)

    @property
    def verbs(self) -> frozenset[str]:
        """`validate` and `mutate`, if any class defines it, and `convert` if there is a conversion."""
        admissions = [handler for handler in self.handlers.values() if isinstance(handler, Admission)]
        found = {verb for handler in admissions for verb in type(handler).verbs()}
        return frozenset({*found, "convert"} if len(admissions) < len(self.handlers) else found)

    @property
    def definitions(self) -> tuple[str, ...] | None:
        """The names of the CustomResourceDefinitions that it converts; None where a conversion does not know its own,
        since its versions are named by texts."""
        names = [getattr(handler, "crd_name", None) for handler in self.handlers.values()
                 if not isinstance(handler, Admission)]
        known = tuple(name for name in names if isinstance(name, str))
        return known if len(known) == len(names) else None

    def answer(self, path: str, body: bytes) -> tuple[int, bytes]:
        """The HTTP status and the body of the answer to a review, without HTTP: for tests and servers of other kinds.

        Blocks as the handler does; raises nothing but a KeyboardInterrupt in the main thread.
        """
        found = self._routes.get(path)
        if found is None:
            return _status(404, f"nothing is served at {path}{did_you_mean(path, self._routes)}; the paths are "
                                f"{', '.join(self._routes)}")
        answer, limit = found
        if len(body) > limit:
            return _too_large(limit)
        try:
            return HTTPStatus.OK, answer(body)
        except BadReview as error:
            log.warning("%s: %s", path, error)
            return _status(400, str(error))

    def __call__(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        """As PEP 3333 says."""
        code, body = self._handle(environ)
        headers = [("Content-Type", "application/json"), ("Content-Length", str(len(body)))]
        if code == HTTPStatus.METHOD_NOT_ALLOWED:
            headers.append(("Allow", "POST"))
        start_response(f"{code} {HTTPStatus(code).phrase}", headers)
        return [body]

    def _handle(self, environ: WSGIEnvironment) -> tuple[int, bytes]:
        path = environ.get("PATH_INFO") or "/"
        found = self._routes.get(path)
        if found is None:
            return self.answer(path, b"")
        method, content_type = environ["REQUEST_METHOD"], environ.get("CONTENT_TYPE") or ""
        if method != "POST":
            return _status(405, f"a review is sent to {path} by POST, not {method}")
        if content_type.partition(";")[0].strip().lower() != "application/json":
            return _status(415, f"contentType={content_type}, expected application/json")
        said = environ.get("CONTENT_LENGTH") or ""
        if not (said.isascii() and said.isdigit()):
            return _status(411, "a review comes with its Content-Length")
        length = int(said[:19])
        if length > found[1] or len(said) > 18:
            return _too_large(found[1])
        try:
            body = environ["wsgi.input"].read(length) if length > 0 else b""
        except TimeoutError:
            return _status(408, f"the body of {length} bytes did not come in time")
        except OSError as error:
            return _status(400, f"the body could not be read: {error}")
        if len(body) < length:
            return _status(400, f"the body ended after {len(body)} of {length} bytes")
        return self.answer(path, body)


def application(routes: Mapping[str, Admission[Any] | Converts], *, limit: int = LIMIT) -> Application:
    """A WSGI application of the webhooks in `routes`, by path. `limit`: the most bytes of an AdmissionReview.

    An Admission at `/quota` is served at `/quota/validate` and `/quota/mutate`, as far as its class defines them; a
    Conversion is served at its path.

    Raises RequestError for a path that cannot be one and for anything but a webhook, with what it lacks. A webhook that
    changes objects needs the extra `webhooks` when it is served: a WebhookServer does not start without it, under other
    servers each of its changes fails.

    >>> class Labelled(Admission[Pod]):
    ...     def mutate(self, request: AdmissionRequest[Pod]) -> Pod:
    ...         request.object.labels["checked"] = "yes"
    ...         return request.object
    >>> application({"/labelled": Labelled()}).paths
    ('/labelled/mutate',)
    """
    if not routes:
        raise RequestError('an application needs webhooks: application({"/quota": Quota()})')
    return Application(routes, limit)


def _admission_routes(mount: str, handler: Admission[Any]) -> Iterable[tuple[str, Answer]]:
    name = type(handler).__name__
    verbs = type(handler).verbs()
    if not verbs:
        raise RequestError(f"{mount}: {name} defines neither validate nor mutate")
    try:
        type(handler).kind()
    except TypeError as error:
        raise RequestError(f"{mount}: {error}") from None
    for verb in verbs:
        function = getattr(handler, verb)
        if inspect.iscoroutinefunction(function):
            raise RequestError(f"{mount}: {name}.{verb} is an async function: write def, not async def")
        if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
            raise RequestError(f"{mount}: {name}.{verb} is a generator, of which nothing would run: take out its yield")
        try:
            signature_of(function).bind("request")
        except TypeError as error:
            raise RequestError(f"{mount}: {name}.{verb} is called with one argument, the request: {error}") from None
        path = f"{mount.rstrip('/')}/{verb}"
        yield path, partial(admission_answer, handler, verb, guard=Guard(path, log))


def _check_mount(mount: str) -> None:
    # Go's server and clients clean paths; what they would change must not be the path of anything.
    parts = mount.split("/")[1:] if isinstance(mount, str) and mount.startswith("/") else [""]
    if mount != "/" and not all(part and part not in (".", "..") and part.isprintable() and part.isascii()
                                and not set(part) & set(" ?#%") for part in parts):
        raise RequestError(f"{mount!r} is not a path for a webhook, which is one such as '/quota'")


def _status(code: int, message: str) -> tuple[int, bytes]:
    status = failure_status(message, code, reason_of(code))
    return code, encode_plain({"kind": "Status", "apiVersion": "v1", "metadata": {}, **status_dict(status)})


def _too_large(limit: int) -> tuple[int, bytes]:
    return _status(413, f"request entity is too large; limit is {limit} bytes")
