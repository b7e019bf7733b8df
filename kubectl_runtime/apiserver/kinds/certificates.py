"""CertificateSigningRequests."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterator
from typing import ClassVar

from kubectl_runtime.apiserver import errors
from kubectl_runtime.apiserver.errors import Cause
from kubectl_runtime.apiserver.kinds.base import BuiltinStrategy, one_of
from kubectl_runtime.apiserver.managedfields.tracking import ResetFields
from kubectl_runtime.apiserver.objectmeta.names import dns_subdomain_errors, path_segment_errors
from kubectl_runtime.apiserver.strategy import Object, StrategyContext
from kubectl_runtime.core.meta.metav1 import format_time

USAGES = ("any", "cert sign", "client auth", "code signing", "content commitment", "crl sign", "data encipherment",
          "decipher only", "digital signature", "email protection", "encipher only", "ipsec end system", "ipsec tunnel",
          "ipsec user", "key agreement", "key encipherment", "microsoft sgc", "netscape sgc", "ocsp signing", "s/mime",
          "server auth", "signing", "timestamping")
MIN_SECONDS = 600
_BEGIN, _END = b"-----BEGIN CERTIFICATE REQUEST-----", b"-----END CERTIFICATE REQUEST-----"


class SigningRequestStrategy(BuiltinStrategy):
    """CertificateSigningRequests: the server writes who asks."""

    has_status = True
    fields: ClassVar[dict[str, str | Callable[[Object], str]]] = {"spec.signerName": "spec.signerName"}

    def prepare_create(self, obj: Object, ctx: StrategyContext) -> None:
        """The user of the request, not what the body says."""
        super().prepare_create(obj, ctx)
        for key in ("uid", "groups", "extra"):
            obj["spec"].pop(key, None)
        obj["spec"].update(ctx.identity)

    def prepare_update(self, new: Object, old: Object, subresource: str, ctx: StrategyContext) -> None:
        """The spec is fixed; /approval changes conditions of the status only."""
        super().prepare_update(new, old, "status" if subresource == "approval" else subresource, ctx)
        self.keep("spec", new, old)
        for condition in (new.get("status") or {}).get("conditions") or ():
            known: Object = next((entry for entry in (old.get("status") or {}).get("conditions") or ()
                          if entry.get("type") == condition.get("type")), {})
            now = known.get("lastTransitionTime") if known.get("status") == condition.get("status") else None
            condition["lastTransitionTime"] = condition.get("lastTransitionTime") or now or format_time(ctx.now)
            condition["lastUpdateTime"] = condition.get("lastUpdateTime") or format_time(ctx.now)

    def reset(self, subresource: str) -> ResetFields:
        """Surprising: not even the spec is the client's, though a create sets it."""
        return super().reset(subresource) if subresource else ResetFields(drop=(("spec",), ("status",)))

    def validate_name(self, name: str, *, prefix: bool = False) -> list[str]:
        """A path segment."""
        return path_segment_errors(name, prefix=prefix)

    def validate_create(self, obj: Object, ctx: StrategyContext) -> list[Cause]:
        """A request, a signer and usages."""
        return list(_causes(obj["spec"]))


def _causes(spec: Object) -> Iterator[Cause]:
    request, usages, seconds = spec.get("request") or "", spec.get("usages") or [], spec.get("expirationSeconds")
    if not _is_request(request):
        yield errors.invalid_value("spec.request", request, "PEM block type must be CERTIFICATE REQUEST")
    if not usages:
        yield errors.required("spec.usages")
    for index, usage in enumerate(usages):
        yield from one_of(usage, USAGES, f"spec.usages[{index}]", required=True)
        if usage in usages[:index]:
            yield errors.duplicate(f"spec.usages[{index}]", usage)
    signer = spec.get("signerName") or ""
    if signer == "kubernetes.io/legacy-unknown":
        yield errors.invalid_value("spec.signerName", signer,
                                   "the legacy signerName is not allowed via this API version")
    else:
        yield from _signer_causes(signer, "spec.signerName")
    if seconds is not None and seconds < MIN_SECONDS:
        yield errors.invalid_value("spec.expirationSeconds", seconds,
                                   f"may not specify a duration less than {MIN_SECONDS} seconds (10 minutes)")


def _is_request(text: str) -> bool:
    """Whether it is a PEM block of the right type with something in it."""
    try:
        data = base64.b64decode(text)
    except binascii.Error:
        return False
    head, begin, rest = data.partition(_BEGIN)
    return bool(begin) and _END in rest and b"-----BEGIN" not in head


def _signer_causes(signer: str, path: str) -> Iterator[Cause]:
    domain, slash, name = signer.partition("/")
    if not signer:
        yield errors.required(path)
    elif not slash or "/" in name:
        yield errors.invalid_value(path, signer, "must be a fully qualified domain and path of the form "
                                                 "'example.com/signer-name'")
    else:
        if "." not in domain:
            yield errors.invalid_value(path, domain,
                                       "should be a domain with at least two segments separated by dots")
        yield from (errors.invalid_value(path, domain, f'validating label "{domain}": {why}')
                    for why in dns_subdomain_errors(domain))
        yield from (errors.invalid_value(path, name, f'validating label "{name}": {why}')
                    for why in dns_subdomain_errors(name))
