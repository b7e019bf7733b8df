"""CertificateSigningRequests."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterator
from typing import ClassVar

from kubectl_runtime.apiserver import errors
from kubectl_runtime.apiserver.errors import Cause
from kubectl_runtime.apiserver.kinds import rules as r
from kubectl_runtime.apiserver.kinds.base import BuiltinStrategy
from kubectl_runtime.apiserver.managedfields.tracking import ResetFields
from kubectl_runtime.apiserver.objectmeta.names import dns_subdomain_errors, path_segment_errors
from kubectl_runtime.apiserver.strategy import Object, StrategyContext
from kubectl_runtime.core.meta.metav1 import format_time

USAGES = ("any", "cert sign", "client auth", "code signing", "content commitment", "crl sign", "data encipherment",
          "decipher only", "digital signature", "email protection", "encipher only", "ipsec end system", "ipsec tunnel",
          "ipsec user", "key agreement", "key encipherment", "microsoft sgc", "netscape sgc", "ocsp signing", "s/mime",
          "server auth", "signing", "timestamping")
_BEGIN, _END = b"-----BEGIN CERTIFICATE REQUEST-----", b"-----END CERTIFICATE REQUEST-----"


def _is_request(text: str) -> bool:
    """Whether it is a PEM block of the right type with something in it."""
    try:
        data = base64.b64decode(text)
    except binascii.Error:
        return False
    head, begin, rest = data.partition(_BEGIN)
    return bool(begin) and _END in rest and b"-----BEGIN" not in head


def _signer(given: str | None, path: str) -> Iterator[Cause]:
    signer = given or ""
    domain, slash, name = signer.partition("/")
    if signer == "kubernetes.io/legacy-unknown":
        yield errors.invalid_value(path, signer, "the legacy signerName is not allowed via this API version")
    elif not signer:
        yield errors.required(path)
    elif not slash or "/" in name:
        yield errors.invalid_value(path, signer, "must be a fully qualified domain and path of the form "
                                                 "'example.com/signer-name'")
    else:
        if "." not in domain:
            yield errors.invalid_value(path, domain,
                                       "should be a domain with at least two segments separated by dots")
        yield from (errors.invalid_value(path, part, f'validating label "{part}": {why}')
                    for part in (domain, name) for why in dns_subdomain_errors(part))


class SigningRequestStrategy(BuiltinStrategy):
    """CertificateSigningRequests: the server writes who asks."""

    has_status = True
    name_errors = staticmethod(path_segment_errors)
    rules = r.Rules(
        ("spec.request", r.must(_is_request, "PEM block type must be CERTIFICATE REQUEST", zero="")),
        ("spec.usages", r.REQUIRED),
        ("spec.usages[*]", r.REQUIRED, r.choice(*USAGES), r.UNIQUE),
        ("spec.signerName", _signer),
        ("spec.expirationSeconds", r.at_least(600, "may not specify a duration less than 600 seconds (10 minutes)")),
    )
    update_rules = r.Rules()
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
