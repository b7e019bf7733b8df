"""ConfigMaps and Secrets, which can be immutable, and ServiceAccounts."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from typing import ClassVar

from kubectl_runtime.apiserver import errors
from kubectl_runtime.apiserver.errors import Cause
from kubectl_runtime.apiserver.kinds import rules as r
from kubectl_runtime.apiserver.kinds.base import BuiltinStrategy, config_key_errors, put_default
from kubectl_runtime.apiserver.strategy import StrategyContext
from kubectl_runtime.apiserver.wire import Object

MAX_DATA = 1 << 20  # bytes in all values of one ConfigMap or Secret together
_FROZEN = "field is immutable when `immutable` is set"
_TLS = "kubernetes.io/tls"
_REQUIRED_KEYS = {
    _TLS: ("tls.crt", "tls.key"),
    "kubernetes.io/dockerconfigjson": (".dockerconfigjson",),
    "kubernetes.io/dockercfg": (".dockercfg",),
    "kubernetes.io/ssh-auth": ("ssh-privatekey",),
}
_ANY_KEY = r.name(config_key_errors, empty=True)
_JSON_TYPES = ("kubernetes.io/dockercfg", "kubernetes.io/dockerconfigjson")


def _keys(data: Object | None, path: str) -> Iterator[Cause]:
    for key in sorted(data or {}):
        yield from _ANY_KEY(key, f"{path}[{key}]")


def _frozen_causes(new: Object, old: Object, keys: tuple[str, ...]) -> list[Cause]:
    """Return a cause for each forbidden change of an object with ``immutable: true``."""
    if not old.get("immutable"):
        return []
    causes = [] if new.get("immutable") else [errors.forbidden_field("immutable", _FROZEN)]
    return causes + [errors.forbidden_field(key, _FROZEN) for key in keys
                     if (new.get(key) or {}) != (old.get(key) or {})]


def _texts(obj: Object, path: str) -> Iterator[Cause]:
    """Yield a cause for each error of a key in data: an invalid key, or a key that binaryData has too."""
    for key in sorted(obj.get("data") or {}):
        at = f"{path}data[{key}]"
        yield from _ANY_KEY(key, at)
        if key in (obj.get("binaryData") or {}):
            yield errors.invalid_value(at, key, "duplicate of key present in binaryData")


def _size(obj: Object, path: str) -> list[Cause]:
    size = sum(len(value.encode()) for value in (obj.get("data") or {}).values())
    size += sum(len(value) * 3 // 4 for value in (obj.get("binaryData") or {}).values())
    return [errors.too_long(path or "[]", MAX_DATA)] if size > MAX_DATA else []


class ConfigMapStrategy(BuiltinStrategy):
    rules = r.Rules(("", _texts), ("binaryData", _keys), ("", _size))

    def validate_update(self, new: Object, old: Object, subresource: str, ctx: StrategyContext) -> list[Cause]:
        """Validate as on create, and refuse changes to immutable objects."""
        return _frozen_causes(new, old, ("data", "binaryData")) + self.validate_create(new, ctx)


def _secret_size(data: Object | None, path: str) -> list[Cause]:
    size = sum(len(value or "") * 3 // 4 for value in (data or {}).values())
    return [errors.too_long(path, MAX_DATA)] if size > MAX_DATA else []


def _required_of_type(obj: Object, path: str) -> list[Cause]:
    kind, data = obj.get("type", ""), obj.get("data") or {}
    if kind == "kubernetes.io/service-account-token":
        annotation = "kubernetes.io/service-account.name"
        present = (obj.get("metadata", {}).get("annotations") or {}).get(annotation)
        return [] if present else [errors.required(f"{path}metadata.annotations[{annotation}]")]
    if kind == "kubernetes.io/basic-auth" and not {"username", "password"} & set(data):
        return [errors.required("data[username]"), errors.required("data[password]")]
    causes = [errors.required(f"data[{key}]") for key in _REQUIRED_KEYS.get(kind, ())
              if key not in data or (key == "ssh-privatekey" and not data[key])]
    return causes + [errors.invalid_value(f"data[{key}]", "<secret contents redacted>", why)
                     for key in _REQUIRED_KEYS.get(kind, ()) if kind in _JSON_TYPES and key in data
                     and (why := _json_error(base64.b64decode(data[key] or "")))]


def _json_error(data: bytes) -> str:
    """Go's error for a text that is not a JSON object (only the most common errors); "" if the text is valid."""
    try:
        if isinstance(json.loads(data), dict | None):
            return ""
    except ValueError:
        pass
    else:
        return "json: cannot unmarshal into Go value of type map[string]interface {}"
    first = data.lstrip()[:1].decode("latin-1")
    if not first:
        return "unexpected end of JSON input"
    return f"invalid character '{first}' looking for beginning of value"


class SecretStrategy(BuiltinStrategy):
    """Secrets. stringData is merged into data and never returned."""

    fields: ClassVar[dict[str, str | Callable[[Object], str]]] = {"type": "type"}
    rules = r.Rules(("data", _keys, _secret_size), ("", _required_of_type))

    def default(self, obj: Object) -> None:
        put_default(obj, "type", "Opaque")
        if texts := obj.pop("stringData", None):
            data = obj.setdefault("data", {})
            for key, text in texts.items():
                data[key] = base64.b64encode(text.encode()).decode()

    def warnings(self, obj: Object, old: Object | None) -> list[str]:
        """Warn about an invalid certificate or key. (Whether certificate and key match is not checked.)"""
        data = obj.get("data") or {}
        for key, title in (("tls.crt", "certificate"), ("tls.key", "key")) if obj.get("type") == _TLS else ():
            if b"-----BEGIN" not in base64.b64decode(data.get(key) or ""):
                return [f"tls: failed to find any PEM data in {title} input"]
        return []

    def validate_update(self, new: Object, old: Object, subresource: str, ctx: StrategyContext) -> list[Cause]:
        """Validate as on create. The type cannot change."""
        changed = [] if new.get("type") == old.get("type") else [errors.immutable("type", new.get("type"))]
        return changed + _frozen_causes(new, old, ("data",)) + self.validate_create(new, ctx)


_MOUNTABLE = "kubernetes.io/enforce-mountable-secrets"


class ServiceAccountStrategy(BuiltinStrategy):
    delete_returns_object = True

    def prepare_create(self, obj: Object, ctx: StrategyContext) -> None:
        """Drop all fields except the name from the references to Secrets."""
        if obj.get("secrets"):
            obj["secrets"] = [{"name": entry["name"]} if entry.get("name") else {} for entry in obj["secrets"]]

    def prepare_update(self, new: Object, old: Object, subresource: str, ctx: StrategyContext) -> None:
        self.prepare_create(new, ctx)

    def warnings(self, obj: Object, old: Object | None) -> list[str]:
        """Warn about the deprecated annotation that restricts mountable Secrets."""
        known = ((old or {}).get("metadata") or {}).get("annotations") or {}
        if _MOUNTABLE in (obj["metadata"].get("annotations") or {}) and _MOUNTABLE not in known:
            return [f"metadata.annotations[{_MOUNTABLE}]: deprecated in v1.32+; prefer separate namespaces to isolate "
                    "access to mounted secrets"]
        return []
