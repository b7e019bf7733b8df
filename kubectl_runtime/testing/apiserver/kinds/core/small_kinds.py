"""Small kinds of the core group: ConfigMap, Secret, Namespace, ServiceAccount, limits and quotas."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any, ClassVar

from kubectl_runtime.testing.apiserver import errors
from kubectl_runtime.testing.apiserver.errors import Cause
from kubectl_runtime.testing.apiserver.kinds.base import (
    BuiltinStrategy,
    config_key_errors,
    fill,
    immutable_causes,
    put_default,
)
from kubectl_runtime.testing.apiserver.kinds.core.quotas import limit_causes, quota_causes
from kubectl_runtime.testing.apiserver.metadata import STANDARD_FINALIZERS, collector_finalizers
from kubectl_runtime.testing.apiserver.names import dns_label_errors, qualified_name_errors
from kubectl_runtime.testing.apiserver.strategy import Object, StrategyContext

MAX_DATA = 1 << 20  # bytes of all values of a ConfigMap or Secret
NAME_LABEL = "kubernetes.io/metadata.name"
_FROZEN = "field is immutable when `immutable` is set"


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


_TLS = "kubernetes.io/tls"
_REQUIRED_KEYS = {
    _TLS: ("tls.crt", "tls.key"),
    "kubernetes.io/dockerconfigjson": (".dockerconfigjson",),
    "kubernetes.io/dockercfg": (".dockercfg",),
    "kubernetes.io/ssh-auth": ("ssh-privatekey",),
}


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


_JSON_TYPES = ("kubernetes.io/dockercfg", "kubernetes.io/dockerconfigjson")


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


def _finalizer_causes(name: str, path: str) -> list[Cause]:
    causes = [errors.invalid_value(path, name, why) for why in qualified_name_errors(name)]
    if "/" not in name and name not in STANDARD_FINALIZERS:
        causes.append(errors.invalid_value(path, name,
                                           "name is neither a standard finalizer name nor is it fully qualified"))
    return causes


_SECURITY_LABELS = {f"pod-security.kubernetes.io/{mode}" for mode in ("enforce", "audit", "warn")}
_SECURITY_LEVELS = ("privileged", "baseline", "restricted")


class NamespaceStrategy(BuiltinStrategy):
    """Namespaces: spec.finalizers holds a deletion until the namespace is empty."""

    has_status = True
    terminates = True
    immortal = frozenset({"default", "kube-public", "kube-system"})
    fields: ClassVar[dict[str, str | Callable[[Object], str]]] = {"status.phase": "status.phase"}
    delete_returns_object = True

    def default(self, obj: Object) -> None:
        """The label with the name, and the phase."""
        fill(obj.setdefault("status", {}), phase="Active")
        if name := obj.setdefault("metadata", {}).get("name"):
            labels = obj["metadata"].get("labels") or {}
            obj["metadata"]["labels"] = {**labels, NAME_LABEL: name}

    def prepare_create(self, obj: Object, ctx: StrategyContext) -> None:
        """Active, held by the namespace controller."""
        finalizers = (obj.get("spec") or {}).get("finalizers") or []
        obj["spec"] = {"finalizers": finalizers if "kubernetes" in finalizers else [*finalizers, "kubernetes"]}
        obj["status"] = {"phase": "Active"}

    def canonicalize(self, obj: Object, ctx: StrategyContext) -> bool:
        """A generated name gets its label when it has been checked."""
        self.default(obj)
        return False

    def prepare_update(self, new: Object, old: Object, subresource: str, ctx: StrategyContext) -> None:
        """Finalizers of the spec change through /finalize only."""
        if subresource == "finalize":
            self.keep("status", new, old)
            return
        super().prepare_update(new, old, subresource, ctx)
        self.keep("spec", new, old)

    def validate_name(self, name: str, *, prefix: bool = False) -> list[str]:
        """A DNS label."""
        return dns_label_errors(name, prefix=prefix)

    def validate_create(self, obj: Object, ctx: StrategyContext) -> list[Cause]:
        """Finalizers of the spec; the levels of Pod security."""
        causes = []
        for finalizer in (obj.get("spec") or {}).get("finalizers") or ():
            causes += _finalizer_causes(finalizer, "spec.finalizers")
        for label, level in (obj["metadata"].get("labels") or {}).items():
            if label in _SECURITY_LABELS and level not in _SECURITY_LEVELS:
                causes.append(errors.invalid_value(f"metadata.labels[{label}]", level,
                                                   "must be one of privileged, baseline, restricted"))
        return causes

    def validate_update(self, new: Object, old: Object, subresource: str, ctx: StrategyContext) -> list[Cause]:
        """The phase belongs to the deletion."""
        if subresource == "finalize":
            return [cause for index, name in enumerate((new.get("spec") or {}).get("finalizers") or ())
                    for cause in _finalizer_causes(name, f"spec.finalizers[{index}]")]
        phase, deleting = (new.get("status") or {}).get("phase"), bool(old["metadata"].get("deletionTimestamp"))
        if subresource != "status" or phase == ("Terminating" if deleting else "Active"):
            return []
        rule = ("may only be 'Terminating' if `deletionTimestamp` is not empty" if deleting else
                "may only be 'Active' if `deletionTimestamp` is empty")
        return [errors.invalid_value("status.Phase", phase, rule)]

    def holds_deletion(self, obj: Object) -> bool:
        """While the spec has finalizers. Surprising: a first deletion never removes it, even without any."""
        return bool((obj.get("spec") or {}).get("finalizers")) or not obj["metadata"].get("deletionTimestamp")

    def prepare_delete(self, obj: Object, policy: str, ctx: StrategyContext) -> None:
        """The phase shows the deletion; the policy may add a finalizer."""
        meta = obj["metadata"]
        finalizers = collector_finalizers(meta.get("finalizers") or [], policy)
        if finalizers:
            meta["finalizers"] = finalizers
        else:
            meta.pop("finalizers", None)
        obj.setdefault("status", {})["phase"] = "Terminating"


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


class LimitRangeStrategy(BuiltinStrategy):
    """LimitRanges: what is left out follows from the other limits, as in the real server."""

    def default(self, obj: Object) -> None:
        """Container limits default from max, requests from limits, then from min."""
        for item in (obj.get("spec") or {}).get("limits") or ():
            if item.get("type") != "Container":
                continue
            default: Object = {**(item.get("max") or {}), **(item.get("default") or {})}
            request: Object = {**(item.get("min") or {}), **default, **(item.get("defaultRequest") or {})}
            _set_if_any(item, "default", default)
            _set_if_any(item, "defaultRequest", request)

    def validate_create(self, obj: Object, ctx: StrategyContext) -> list[Cause]:
        """Each limit."""
        return list(limit_causes(obj.get("spec") or {}))

    def validate_update(self, new: Object, old: Object, subresource: str, ctx: StrategyContext) -> list[Cause]:
        """As at creation."""
        return self.validate_create(new, ctx)


def _set_if_any(item: Object, key: str, value: Any) -> None:
    if value:
        item[key] = value


class ResourceQuotaStrategy(BuiltinStrategy):
    """ResourceQuotas; they are stored, not enforced."""

    has_status = True
    delete_returns_object = True

    def validate_create(self, obj: Object, ctx: StrategyContext) -> list[Cause]:
        """The resources and the scopes."""
        return list(quota_causes(obj.get("spec") or {}))

    def validate_update(self, new: Object, old: Object, subresource: str, ctx: StrategyContext) -> list[Cause]:
        """As at creation; the scopes stay."""
        if subresource:
            return []
        spec, before = new.get("spec") or {}, old.get("spec") or {}
        return self.validate_create(new, ctx) + immutable_causes(spec, before, ("scopes",))
