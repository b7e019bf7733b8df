"""A server on a clock that stands still, webhooks that are functions, and short ways to ask."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable
from typing import Any

from kubectl_runtime.apiserver.wire import HttpRequest
from kubectl_runtime.testing import ApiServer
from kubectl_runtime.testing.clock import SimClock
from tests.apiserver.kinds.kindapi import Answer

Object = dict[str, Any]
Answering = Callable[[Object], Object]  # the request of a review -> the fields of its response, besides the uid

PLACE = "https://hooks.test"
CONFIGMAPS = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"],
              "operations": ["CREATE", "UPDATE", "DELETE"]}


def allow(_request: Object) -> Object:
    """Nothing against it."""
    return {"allowed": True}


def patch(*operations: Object) -> Object:
    """An answer that changes the object."""
    return {"allowed": True, "patchType": "JSONPatch",
            "patch": base64.b64encode(json.dumps(list(operations)).encode()).decode()}


def set_to(path: str, value: Any) -> Object:
    """An answer that sets a value."""
    return patch({"op": "add", "path": path, "value": value})


def deny(message: str = "", **status: Any) -> Object:
    """An answer that refuses."""
    return {"allowed": False, "status": {"message": message, **status}}


class Hooked:
    """A server whose webhooks are functions; `reviews` are the requests that these have seen, by webhook."""

    def __init__(self, clock: SimClock | None = None, **options: Any) -> None:
        self.clock = clock or SimClock()
        self.server = ApiServer(clock=self.clock, seed=1, **options)
        self.reviews: list[tuple[str, Object]] = []
        self._answering: dict[str, Answering | bytes] = {}
        self.server.mount_webhook(PLACE, self._application)

    def __call__(self, method: str, path: str, body: Any = None, query: Iterable[tuple[str, str]] = (),
                 **headers: str) -> Answer:
        data = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        fields = {"content-type": "application/json",
                  **{key.replace("_", "-"): value for key, value in headers.items()}}
        response = self.server.core.handle(HttpRequest(method, path, list(query), fields, data))
        self.settle()
        try:
            decoded = json.loads(response.body) if response.body else None
        except ValueError:
            decoded = response.body.decode(errors="replace")
        found: dict[str, str] = {}
        for key, value in response.headers:
            found[key.lower()] = f"{found[key.lower()]}; {value}" if key.lower() in found else value
        return Answer(response.status, found, decoded, response.body)

    def settle(self) -> None:
        """Let the controllers do what is due."""
        core = self.server.core
        while (due := core.next_wakeup()) is not None and due <= self.clock.monotonic():
            if not core.tick():
                return

    def create(self, name: str = "a", *, dry_run: bool = False, data: Any = None, **metadata: Any) -> Answer:
        """POST of a ConfigMap; without a name if there is a generateName."""
        meta = metadata if "generateName" in metadata else {"name": name, **metadata}
        return self("POST", "/api/v1/namespaces/default/configmaps",
                    {"apiVersion": "v1", "kind": "ConfigMap", "metadata": meta, "data": data or {"k": "v"}},
                    [("dryRun", "All")] if dry_run else [])

    def merge(self, path: str, body: Object) -> Answer:
        """A merge patch."""
        return self("PATCH", path, body, content_type="application/merge-patch+json")

    def get(self, name: str = "a") -> Any:
        """The ConfigMap."""
        return self("GET", f"/api/v1/namespaces/default/configmaps/{name}").body

    def hook(self, name: str, answering: Answering | bytes = allow, *, mutating: bool = False, configuration: str = "",
             rules: list[Object] | None = None, **fields: Any) -> Answer:
        """Configure a webhook, `name`.hooks.test, of its own configuration; an answer as bytes is sent as it is."""
        entry = {"name": f"{name}.hooks.test", "clientConfig": {"url": f"{PLACE}/{name}"}, "sideEffects": "None",
                 "admissionReviewVersions": ["v1"], "rules": [CONFIGMAPS] if rules is None else rules, **fields}
        self._answering[name] = answering
        return self.configure(configuration or name, [entry], mutating=mutating)

    def configure(self, configuration: str, entries: list[Object], *, mutating: bool = False) -> Answer:
        """Create a configuration."""
        kind = "MutatingWebhookConfiguration" if mutating else "ValidatingWebhookConfiguration"
        return self("POST", f"/apis/admissionregistration.k8s.io/v1/{kind.lower()}s",
                    {"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind,
                     "metadata": {"name": configuration}, "webhooks": entries})

    def answer(self, name: str, answering: Answering | bytes) -> None:
        """From now on a webhook answers so."""
        self._answering[name] = answering

    def asked(self, name: str = "") -> list[Object]:
        """The requests that one webhook, or any, has seen."""
        return [request for webhook, request in self.reviews if name in ("", webhook)]

    def _application(self, environ: Object, start_response: Any) -> list[bytes]:
        name = environ["PATH_INFO"].strip("/")
        review = json.loads(environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"])))
        self.reviews.append((name, review["request"]))
        answering = self._answering[name]
        start_response("200 OK", [("Content-Type", "application/json")])
        if isinstance(answering, bytes):
            return [answering]
        answer = answering(review["request"])
        response = {"apiVersion": review["apiVersion"], "kind": review["kind"],
                    "response": {"uid": review["request"]["uid"], **answer}}
        return [json.dumps(response).encode()]
