"""`RequestContext`: one request to a resource, as the handlers and strategies see it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from kubectl_runtime.apiserver.access import Access, User
from kubectl_runtime.apiserver.kubelet.kubelet import Kubelet
from kubectl_runtime.apiserver.output.negotiation import Media
from kubectl_runtime.apiserver.query.options import WriteOptions
from kubectl_runtime.apiserver.storage.registry import ServedResource
from kubectl_runtime.apiserver.storage.storage import Cluster
from kubectl_runtime.apiserver.webhooks.hooks import Hooks
from kubectl_runtime.apiserver.wire import HttpRequest, RequestInfo

Object = dict[str, Any]


@dataclass(slots=True)
class RequestContext:
    """The request, what it is about, and what is collected for its answer. Implements `strategy.StrategyContext`."""

    cluster: Cluster
    access: Access
    request: HttpRequest
    info: RequestInfo
    type: ServedResource
    media: Media
    user_info: User
    now: datetime
    kubelet: Kubelet
    hooks: Hooks
    options: WriteOptions | None = None
    warnings: list[str] = field(default_factory=list)
    asks: bool = False  # admission webhooks are configured; set at the start of each attempt to write
    deadline: float | None = None  # in monotonic seconds; set when the request first waits for somebody else

    @property
    def user(self) -> str:
        """The user's name."""
        return self.user_info.name

    @property
    def identity(self) -> Object:
        """The user as objects show one; what is empty is left out."""
        user = self.user_info
        shown = {"username": user.name, "uid": user.uid, "groups": list(user.groups),
                 "extra": {key: list(values) for key, values in user.extra}}
        return {key: value for key, value in shown.items() if value}

    @property
    def may_wait(self) -> bool:
        """Whether a write may ask a webhook, and so may have to begin anew."""
        return self.asks or self.type.strategy.asks_webhook

    @property
    def dry_run(self) -> bool:
        """Whether nothing is to be stored."""
        return self.options is not None and self.options.dry_run

    @property
    def namespace(self) -> str:
        """The namespace of the object; "" for a cluster-scoped one (a Namespace's own name is no namespace here)."""
        return self.info.namespace if self.type.namespaced else ""

    def objects(self, group: str, plural: str) -> Iterator[Object]:
        """All objects of a type in storage form; the cluster's lock is held."""
        bucket = self.cluster.storage.buckets.get(f"{group}/{plural}")
        for version in list(bucket.objects.values()) if bucket else ():
            yield version.decode()
