"""`observed`: a WSGI application whose requests an observer hears of."""
from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from kubectl_runtime.core.base.clock import Clock
from kubectl_runtime.core.base.observer import NO_OBSERVER, Observer
from kubectl_runtime.webhooks.application import Application

if TYPE_CHECKING:
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

ANY = "*"
"""What all requests to an application are called that does not say what its webhooks are: its paths may be anything,
and each would make series of its own."""


def webhooks_of(application: WSGIApplication) -> tuple[str, ...]:
    """What the webhooks of an application are called in metrics: its paths."""
    return application.paths if isinstance(application, Application) else (ANY,)


def observed(application: WSGIApplication, observer: Observer, clock: Clock) -> WSGIApplication:
    """`application`, with each request to one of its webhooks told of. What is at no path of it is told to nobody: that
    is not a webhook. `observer` raises nothing (see `together`)."""
    if observer is NO_OBSERVER:
        return application
    webhooks = webhooks_of(application)

    def answer(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        webhook = ANY if webhooks == (ANY,) else environ.get("PATH_INFO") or "/"
        if webhook not in webhooks:
            return application(environ, start_response)
        code = 500  # what the server answers for an application that raises

        def started(status: str, *more: Any) -> Any:
            nonlocal code
            code = int(status[:3])
            return start_response(status, *more)

        began = clock.monotonic()
        observer.webhook_began(webhook)
        try:
            body = application(environ, started)
            try:
                return [*body]  # reviews are small, and an answer is over when all of it is there
            finally:
                if (close := getattr(body, "close", None)) is not None:
                    close()
        except BaseException:
            code = 500
            raise
        finally:
            observer.webhook_answered(webhook, code, clock.monotonic() - began)

    return answer
