"""What is wrong with the conversion of a CustomResourceDefinition."""

from __future__ import annotations

from typing import Any

from kubectl_runtime.apiserver import errors
from kubectl_runtime.apiserver.errors import Cause
from kubectl_runtime.apiserver.kinds.admissionregistration.webhook_validation import client_causes

Object = dict[str, Any]


def conversion_causes(conversion: Object | None, at: str) -> list[Cause]:
    """The causes, at the fields that the real server's older form of CRDs has."""
    strategy = (conversion or {}).get("strategy") or ""
    webhook = (conversion or {}).get("webhook") or {}
    client, versions = webhook.get("clientConfig"), webhook.get("conversionReviewVersions") or []
    causes = [] if strategy in ("None", "Webhook") else [
        errors.not_supported(f"{at}.strategy", strategy, ("None", "Webhook")) if strategy else
        errors.required(f"{at}.strategy")]
    if strategy == "Webhook":
        place = f"{at}.webhookClientConfig"
        missing = errors.required(place, "required when strategy is set to Webhook")
        return [*causes, *([missing] if client is None else client_causes(client, place)),
                *_review_causes(versions, f"{at}.conversionReviewVersions")]
    refused = "should not be set when strategy is not set to Webhook"
    return causes + [errors.forbidden_field(f"{at}.{key}", refused) for key, value in (
        ("webhookClientConfig", client is not None), ("conversionReviewVersions", versions)) if value]


def _review_causes(versions: list[str], at: str) -> list[Cause]:
    if not versions:
        return [errors.required(at)]
    causes = [errors.invalid_value(f"{at}[{index}]", version, "duplicate version")
              for index, version in enumerate(versions) if version in versions[:index]]
    if not {"v1", "v1beta1"} & set(versions):
        causes.append(errors.invalid_value(at, versions, "must include at least one of v1, v1beta1"))
    return causes
