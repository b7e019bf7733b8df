"""ConfigMaps and Secrets: named values, which can be frozen.

ServiceAccounts.
"""
from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import ClassVar

from kubectl_runtime.apiserver import errors
from kubectl_runtime.apiserver.errors import Cause
from kubectl_runtime.apiserver.kinds.base import BuiltinStrategy, config_key_errors, put_default
from kubectl_runtime.apiserver.strategy import Object, StrategyContext

MAX_DATA = 1 << 20  # bytes of all values of a ConfigMap or Secret
_FROZEN = "field is immutable when `immutable` is set"
_TLS = "kubernetes.io/tls"
_REQUIRED_KEYS = {
    _TLS: ("tls.crt", "tls.key"),
    "kubernetes.io/dockerconfigjson": (".dockerconfigjson",),
    "kubernetes.io/dockercfg": (".dockercfg",),
    "kubernetes.io/ssh-auth": ("ssh-privatekey",),
}
_JSON_TYPES = ("kubernetes.io/dockercfg", "kubernetes.io/dockerconfigjson")


def _key_causes(data: Object, path: str) -> list[Cause]:
    return [errors.invalid_value(f"{path}[{key}]", key, why) for key in sorted(data) for why in config_key_errors(key)]


def _frozen_causes(new: Object, old: Object, keys: tuple[str, ...]) -> list[Cause]:
    """What an object with ``immutable: true`` may not change."""
    if not old.get("immutable"):
        return []
    causes = [] if new.get("immutable") else [errors.forbidden_field("immutable", _FROZEN)]
    return causes + [errors.forbidden_field(key, _FROZEN) for key in keys
                     if (new.get(key) or {}) != (old.get(key) or {})]


class ConfigMapStrategy(BuiltinStrategy):
    """ConfigMaps."""

    def validate_create(self, obj: Object, ctx: StrategyContext) -> list[Cause]:
        """Keys and size; no key twice."""
        data, binary = obj.get("data") or {}, obj.get("binaryData") or {}
        causes = []
        for key in sorted(data):
            causes += [errors.invalid_value(f"data[{key}]", key, why) for why in config_key_errors(key)]
            if key in binary:
                causes.append(errors.invalid_value(f"data[{key}]", key, "duplicate of key present in binaryData"))
        causes += _key_causes(binary, "binaryData")
        size = sum(len(value.encode()) for value in data.values())
        size += sum(len(value) * 3 // 4 for value in binary.values())
        return causes if size <= MAX_DATA else [*causes, errors.too_long("[]", MAX_DATA)]

    def validate_update(self, new: Object, old: Object, subresource: str, ctx: StrategyContext) -> list[Cause]:
        """As at creation, and immutable ones do not change."""
        return _frozen_causes(new, old, ("data", "binaryData")) + self.validate_create(new, ctx)


class SecretStrategy(BuiltinStrategy):
    """Secrets; stringData is merged into data and never shown."""

    fields: ClassVar[dict[str, str | Callable[[Object], str]]] = {"type": "type"}

    def default(self, obj: Object) -> None:
        """The type; stringData as base64."""
        put_default(obj, "type", "Opaque")
        if texts := obj.pop("stringData", None):
            data = obj.setdefault("data", {})
            for key, text in texts.items():
                data[key] = base64.b64encode(text.encode()).decode()

    def validate_create(self, obj: Object, ctx: StrategyContext) -> list[Cause]:
        """Keys, size, and what the known types require."""
        data = obj.get("data") or {}
        causes = _key_causes(data, "data")
        if sum(len(value or "") * 3 // 4 for value in data.values()) > MAX_DATA:
            causes.append(errors.too_long("data", MAX_DATA))
        return causes + _secret_type_causes(obj, data)

    def warnings(self, obj: Object, old: Object | None) -> list[str]:
        """A certificate or key that is none. (Whether they belong together is not looked at.)"""
        data = obj.get("data") or {}
        for key, name in (("tls.crt", "certificate"), ("tls.key", "key")) if obj.get("type") == _TLS else ():
            if b"-----BEGIN" not in base64.b64decode(data.get(key) or ""):
                return [f"tls: failed to find any PEM data in {name} input"]
        return []

    def validate_update(self, new: Object, old: Object, subresource: str, ctx: StrategyContext) -> list[Cause]:
        """As at creation; the type never changes."""
        causes = []
        if new.get("type") != old.get("type"):
            causes.append(errors.immutable("type", new.get("type")))
        return causes + _frozen_causes(new, old, ("data",)) + self.validate_create(new, ctx)


def _secret_type_causes(obj: Object, data: Object) -> list[Cause]:
    kind = obj.get("type", "")
    if kind == "kubernetes.io/service-account-token":
        annotation = "kubernetes.io/service-account.name"
        present = (obj.get("metadata", {}).get("annotations") or {}).get(annotation)
        return [] if present else [errors.required(f"metadata.annotations[{annotation}]")]
    if kind == "kubernetes.io/basic-auth" and not {"username", "password"} & set(data):
        return [errors.required("data[username]"), errors.required("data[password]")]
    causes = [errors.required(f"data[{key}]") for key in _REQUIRED_KEYS.get(kind, ())
              if key not in data or (key == "ssh-privatekey" and not data[key])]
    return causes + [errors.invalid_value(f"data[{key}]", "<secret contents redacted>", why)
                     for key in _REQUIRED_KEYS.get(kind, ()) if kind in _JSON_TYPES and key in data
                     and (why := _json_error(base64.b64decode(data[key] or "")))]


def _json_error(data: bytes) -> str:
    """Why Go's decoder would not take it, "" if it would; the words of the commonest cases."""
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


_MOUNTABLE = "kubernetes.io/enforce-mountable-secrets"


class ServiceAccountStrategy(BuiltinStrategy):
    """ServiceAccounts."""

    delete_returns_object = True

    def prepare_create(self, obj: Object, ctx: StrategyContext) -> None:
        """Of references to Secrets only the names are kept."""
        if obj.get("secrets"):
            obj["secrets"] = [{"name": entry["name"]} if entry.get("name") else {} for entry in obj["secrets"]]

    def prepare_update(self, new: Object, old: Object, subresource: str, ctx: StrategyContext) -> None:
        """As at creation."""
        self.prepare_create(new, ctx)

    def warnings(self, obj: Object, old: Object | None) -> list[str]:
        """An annotation that has been replaced by namespaces."""
        known = ((old or {}).get("metadata") or {}).get("annotations") or {}
        if _MOUNTABLE in (obj["metadata"].get("annotations") or {}) and _MOUNTABLE not in known:
            return [f"metadata.annotations[{_MOUNTABLE}]: deprecated in v1.32+; prefer separate namespaces to isolate "
                    "access to mounted secrets"]
        return []
