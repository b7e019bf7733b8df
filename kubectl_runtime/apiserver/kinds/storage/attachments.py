"""VolumeAttachments."""

from __future__ import annotations

from kubectl_runtime.apiserver import errors
from kubectl_runtime.apiserver.errors import Cause
from kubectl_runtime.apiserver.kinds.base import (
    BuiltinStrategy,
)
from kubectl_runtime.apiserver.objectmeta.names import dns_subdomain_errors
from kubectl_runtime.apiserver.strategy import Object, StrategyContext

_ONE_VOLUME = "must specify exactly one of inlineVolumeSpec and persistentVolumeName"


class AttachmentStrategy(BuiltinStrategy):
    """VolumeAttachments."""

    has_status = True
    delete_returns_object = True

    def validate_create(self, obj: Object, ctx: StrategyContext) -> list[Cause]:
        """The driver, the node, and one volume."""
        spec = obj["spec"]
        attacher, node, source = spec.get("attacher") or "", spec.get("nodeName") or "", spec.get("source") or {}
        causes = [errors.invalid_value("spec.attacher", attacher, why) for why in dns_subdomain_errors(attacher.lower())
                  ] if attacher else [errors.required("spec.attacher")]
        causes += [errors.invalid_value("spec.nodeName", node, why) for why in dns_subdomain_errors(node)]
        name, inline = source.get("persistentVolumeName"), source.get("inlineVolumeSpec")
        if name is None and inline is None:
            causes.append(errors.required("spec.source", _ONE_VOLUME))
        elif name is not None and inline is not None:
            causes.append(errors.forbidden_field("spec.source", _ONE_VOLUME))
        elif name is not None:
            causes += [errors.invalid_value("spec.source.persistentVolumeName", name, why)
                       for why in dns_subdomain_errors(name)] if name else [
                errors.required("spec.source.persistentVolumeName")]
        elif inline is not None:
            causes += [errors.forbidden_field(f"spec.source.inlineVolumeSpec.{key}",
                                              "may not be specified in the context of inline volumes")
                       for key in ("capacity", "claimRef", "storageClassName")
                       if inline.get(key)]
        return causes

    def validate_update(self, new: Object, old: Object, subresource: str, ctx: StrategyContext) -> list[Cause]:
        """The spec is fixed."""
        return [] if subresource == "status" or new["spec"] == old["spec"] else [
            errors.immutable("spec", new["spec"])]
