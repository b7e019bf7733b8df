"""Validation of probes and lifecycle hooks."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from kubectl_runtime.apiserver import errors
from kubectl_runtime.apiserver.errors import Cause
from kubectl_runtime.apiserver.kinds.base import NOT_NEGATIVE, PORT_RANGE, one_of
from kubectl_runtime.apiserver.objectmeta.names import port_name_errors
from kubectl_runtime.apiserver.strategy import Object

_KINDS = ("exec", "httpGet", "tcpSocket", "grpc", "sleep")
_PERIODS = ("initialDelaySeconds", "timeoutSeconds", "periodSeconds", "successThreshold", "failureThreshold")
_HEADER = re.compile("[-A-Za-z0-9]+")
_GRACE = "terminationGracePeriodSeconds"


def handler_causes(container: Object, path: str, grace: int) -> Iterator[Cause]:
    """What is wrong with the probes and hooks of a container in a Pod that has `grace` seconds to end."""
    for hook in ("postStart", "preStop"):
        if (handler := (container.get("lifecycle") or {}).get(hook)) is not None:
            yield from _handler(handler, f"{path}.lifecycle.{hook}", grace)
    for name in ("livenessProbe", "readinessProbe", "startupProbe"):
        if (probe := container.get(name)) is not None:
            yield from _probe(probe, f"{path}.{name}", name, grace)


def _probe(probe: Object, path: str, name: str, grace: int) -> Iterator[Cause]:
    yield from _handler(probe, path, grace)
    yield from (errors.invalid_value(f"{path}.{key}", probe[key], NOT_NEGATIVE)
                for key in _PERIODS if (probe.get(key) or 0) < 0)
    if name != "readinessProbe" and probe.get("successThreshold") not in (None, 1):
        yield errors.invalid_value(f"{path}.successThreshold", probe["successThreshold"], "must be 1")
    if (seconds := probe.get(_GRACE)) is not None:
        if name == "readinessProbe":
            yield errors.invalid_value(f"{path}.{_GRACE}", seconds, "must not be set for readinessProbes")
        elif seconds <= 0:
            yield errors.invalid_value(f"{path}.{_GRACE}", seconds, "must be greater than 0")


def _handler(handler: Object, path: str, grace: int) -> Iterator[Cause]:
    given = [kind for kind in _KINDS if handler.get(kind) is not None]
    if not given:
        yield errors.required(path, "must specify a handler type")
    for index, kind in enumerate(given):
        at, action = f"{path}.{kind}", handler[kind]
        if index:
            yield errors.forbidden_field(at, "may not specify more than 1 handler type")
        elif kind == "exec" and not action.get("command"):
            yield errors.required(f"{at}.command")
        elif kind == "httpGet":
            yield from _http(action, at)
        elif kind in ("tcpSocket", "grpc"):
            yield from _port(action.get("port"), f"{at}.port")
        elif kind == "sleep" and not 0 <= action.get("seconds", 0) <= grace:
            yield errors.invalid_value(at, action.get("seconds", 0),
                                       f"must be non-negative and less than terminationGracePeriodSeconds ({grace})")


def _http(action: Object, path: str) -> Iterator[Cause]:
    if not action.get("path"):
        yield errors.required(f"{path}.path")
    yield from _port(action.get("port"), f"{path}.port")
    yield from one_of(action.get("scheme"), ("HTTP", "HTTPS"), f"{path}.scheme", required=True)
    for header in action.get("httpHeaders") or ():
        if not _HEADER.fullmatch(header.get("name", "")):
            yield errors.invalid_value(f"{path}.httpHeaders", header.get("name", ""),
                                       "a valid HTTP header must consist of alphanumeric characters or '-' (e.g. "
                                       "'X-Header-Name', regex used for validation is '[-A-Za-z0-9]+')")


def _port(port: Any, path: str) -> Iterator[Cause]:
    if isinstance(port, str):
        yield from (errors.invalid_value(path, port, why) for why in port_name_errors(port))
    elif not 1 <= (port or 0) <= 65535:
        yield errors.invalid_value(path, port or 0, PORT_RANGE)
