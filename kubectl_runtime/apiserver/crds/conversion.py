"""What is wrong with the conversion of a CustomResourceDefinition."""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from kubectl_runtime.apiserver import errors
from kubectl_runtime.apiserver.errors import Cause

Object = dict[str, Any]

_URL_FORM = "; desired format: https://host[/path]"


def conversion_causes(conversion: Object | None, at: str) -> list[Cause]:
    """The causes, at the fields that the real server's older form of CRDs has."""
    strategy = (conversion or {}).get("strategy") or ""
    webhook = (conversion or {}).get("webhook") or {}
    client, versions = webhook.get("clientConfig"), webhook.get("conversionReviewVersions") or []
    causes = [] if strategy in ("None", "Webhook") else [
        errors.not_supported(f"{at}.strategy", strategy, ("None", "Webhook")) if strategy else
        errors.required(f"{at}.strategy")]
    if strategy == "Webhook":
        return causes + _client_causes(client, f"{at}.webhookClientConfig") + _review_causes(
            versions, f"{at}.conversionReviewVersions")
    refused = "should not be set when strategy is not set to Webhook"
    return causes + [errors.forbidden_field(f"{at}.{key}", refused) for key, value in (
        ("webhookClientConfig", client is not None), ("conversionReviewVersions", versions)) if value]


def _client_causes(client: Object | None, at: str) -> list[Cause]:
    if client is None:
        return [errors.required(at, "required when strategy is set to Webhook")]
    url, service = client.get("url"), client.get("service")
    if (url is None) == (service is None):
        return [errors.required(at, "exactly one of url or service is required")]
    if service is not None:
        return [errors.required(f"{at}.service.{key}") for key in ("name", "namespace") if not service.get(key)]
    parts = urlsplit(str(url))
    causes = [] if parts.scheme == "https" else [
        errors.invalid_value(f"{at}.url", parts.scheme, f"'https' is the only allowed URL scheme{_URL_FORM}")]
    if not parts.netloc:
        causes.append(errors.invalid_value(f"{at}.url", "", f"host must be specified{_URL_FORM}"))
    return causes


def _review_causes(versions: list[str], at: str) -> list[Cause]:
    if not versions:
        return [errors.required(at)]
    causes = [errors.invalid_value(f"{at}[{index}]", version, "duplicate version")
              for index, version in enumerate(versions) if version in versions[:index]]
    if not {"v1", "v1beta1"} & set(versions):
        causes.append(errors.invalid_value(at, versions, "must include at least one of v1, v1beta1"))
    return causes
