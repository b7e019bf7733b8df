"""The kind CustomResourceDefinition: defaults, validation, conditions, deletion. (The controller serves the types.)

The real server validates CRDs in an older form, in which parts common to all versions (schema, subresources, columns,
selectable fields) are fields of the spec itself. So the causes of its errors name the spec's field
(``spec.subresources.scale.…``). They name a version's field (``spec.versions[0].subresources.scale.…``) only if the
versions differ.
"""
from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

from kubectl_runtime.apiserver import errors
from kubectl_runtime.apiserver.errors import Cause
from kubectl_runtime.apiserver.kinds.admission import CLIENT
from kubectl_runtime.apiserver.kinds.base import BuiltinStrategy, dig, put_default
from kubectl_runtime.apiserver.managedfields.entries import ResetFields
from kubectl_runtime.apiserver.names import dns_1035_label_errors, dns_subdomain_errors
from kubectl_runtime.apiserver.strategy import StrategyContext
from kubectl_runtime.apiserver.wire import Object
from kubectl_runtime.core.meta.metav1 import format_time
from kubectl_runtime.schema.rules import Costs, rule_definition_causes
from kubectl_runtime.schema.structural import resolve_field, schema_definition_causes, unknown_formats


def conversion_causes(conversion: Object | None, at: str) -> list[Cause]:
    """The causes that report an invalid conversion, with field names from the real server's older form."""
    strategy = (conversion or {}).get("strategy") or ""
    webhook = (conversion or {}).get("webhook") or {}
    client, versions = webhook.get("clientConfig"), webhook.get("conversionReviewVersions") or []
    causes = [] if strategy in ("None", "Webhook") else [
        errors.not_supported(f"{at}.strategy", strategy, ("None", "Webhook")) if strategy else
        errors.required(f"{at}.strategy")]
    if strategy == "Webhook":
        place = f"{at}.webhookClientConfig"
        missing = errors.required(place, "required when strategy is set to Webhook")
        return [*causes, *([missing] if client is None else CLIENT(client, place)),
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


APPROVAL = "api-approved.kubernetes.io"
SELECTABLE_TYPES = ("string", "boolean", "integer")
MAX_SELECTABLE = 8
_COLUMN_TYPES = ("boolean", "date", "integer", "number", "string")
_COLUMN_FORMATS = ("byte", "date", "date-time", "double", "float", "int32", "int64", "password")
_APPROVAL_RULES = f'protected groups must have approval annotation "{APPROVAL}"'
_APPROVAL_LINK = "see https://github.com/kubernetes/enhancements/pull/1111"


def storage_versions(crd: Object) -> list[str]:
    """The names of the versions marked as storage version. A valid CRD has exactly one."""
    return [version.get("name") or "" for version in dig(crd, "spec.versions") or () if version.get("storage")]


def spec_causes(crd: Object, old: Object | None = None) -> list[Cause]:
    spec = crd.get("spec") or {}
    names, versions = spec.get("names") or {}, spec.get("versions") or []
    return [*_group_causes(spec.get("group") or ""), *_scope_causes(spec.get("scope") or ""),
            *_version_causes(crd, versions),
            *(errors.required(f"spec.names.{key}") for key in ("plural", "singular", "kind", "listKind")
              if not names.get(key)),
            *name_causes(names, "spec.names"),
            *schema_version_causes(versions, old),
            *(cause for at, part in _parts(versions, "subresources") for cause in _scale_causes(part, at)),
            *(cause for at, part in _parts(versions, "additionalPrinterColumns") for cause in _column_causes(part, at)),
            *(cause for at, part in _parts(versions, "selectableFields")
              for cause in _field_causes(versions, part, at)),
            *conversion_causes(spec.get("conversion"), "spec.conversion")]


def schema_version_causes(versions: list[Object], old: Object | None) -> list[Cause]:
    """The causes that report invalid schemas and schema rules in the versions. If a version's schema is unchanged since
    `old`, its rules may exceed the cost limit."""
    before = {version.get("name"): version.get("schema") for version in dig(old or {}, "spec.versions") or ()}
    found = []
    for index, (at, part) in enumerate(_parts(versions, "schema")):
        place = "spec.validation" if at == "spec.schema" else at
        if (schema := dig(part or {}, "openAPIV3Schema")) is not None:
            here = f"{place}.openAPIV3Schema"
            costs = Costs(each=before.get(versions[index].get("name")) != part)
            found += schema_definition_causes(schema, here) or rule_definition_causes(schema, here, costs)
    return found


def create_causes(crd: Object) -> list[Cause]:
    """All causes that refuse a create, including an invalid name and fields that only old CRDs may have."""
    spec, causes = crd.get("spec") or {}, []
    names = spec.get("names") or {}
    wanted = f"{names.get('plural') or ''}.{spec.get('group') or ''}"
    causes += [errors.invalid_value(f"metadata.{key}", name, 'must be spec.names.plural+"."+spec.group')
               for key in ("generateName", "name") if (name := crd["metadata"].get(key)) and name != wanted]
    return causes + spec_causes(crd) + stored_causes(crd) + approval_causes(crd, None) + _preserve_causes(spec)


def update_causes(crd: Object, old: Object, *, established: bool) -> list[Cause]:
    """All causes that refuse an update, including changes of the group, the plural and other fixed fields."""
    spec, before = crd.get("spec") or {}, old.get("spec") or {}
    fixed = ("scope", "names.kind") if established else ()
    causes = spec_causes(crd, old) + [errors.immutable(f"spec.{path}", dig(spec, path) or "")
                                 for path in (*fixed, "group", "names.plural") if dig(spec, path) != dig(before, path)]
    causes += stored_causes(crd) + approval_causes(crd, old)
    return causes if before.get("preserveUnknownFields") else causes + _preserve_causes(spec)


def name_causes(names: Object, at: str) -> list[Cause]:
    """The causes that report invalid names of the CRD's kind. `names` is spec.names or status.acceptedNames, and `at`
    is its path."""
    causes = []
    for key in ("plural", "singular"):
        if name := names.get(key):
            causes += _joined(f"{at}.{key}", name, dns_1035_label_errors(name))
    for key in ("kind", "listKind"):
        if (name := names.get(key)) and (why := dns_1035_label_errors(name.lower())):
            causes.append(errors.invalid_value(f"{at}.{key}", name,
                                               "may have mixed case, but should otherwise match: " + ",".join(why)))
    if names.get("kind") and names["kind"] == names.get("listKind"):
        causes.append(errors.invalid_value(f"{at}.listKind", names["listKind"],
                                           "kind and listKind may not be the same"))
    return causes + [cause for key in ("shortNames", "categories") for index, name in enumerate(names.get(key) or ())
                     for cause in _joined(f"{at}.{key}[{index}]", name, dns_1035_label_errors(name))]


def approval(crd: Object) -> tuple[str, str]:
    """(state, message) of the API approval, which only Kubernetes community groups need; ("", "") for other groups."""
    group = dig(crd, "spec.group") or ""
    if not any(group == suffix or group.endswith("." + suffix) for suffix in ("k8s.io", "kubernetes.io")):
        return "", ""
    given = (crd["metadata"].get("annotations") or {}).get(APPROVAL, "")
    if not given:
        return "Missing", f"{_APPROVAL_RULES}, {_APPROVAL_LINK}"
    if given.startswith("unapproved"):
        return "Unapproved", f'not approved: "{given}"'
    url = urlsplit(given)
    if url.scheme and url.netloc:
        return "Approved", f"approved in {given}"
    return "Invalid", f'{_APPROVAL_RULES} with either a URL or a reason starting with "unapproved", {_APPROVAL_LINK}'


def approval_causes(crd: Object, old: Object | None) -> list[Cause]:
    """The cause that reports a missing or wrong approval; no cause if the old object had the same problem."""
    state, why = approval(crd)
    at = f"metadata.annotations[{APPROVAL}]"
    if (old is not None and approval(old)[0] == state) or state not in ("Missing", "Invalid"):
        return []
    if state == "Missing":
        return [errors.required(at, why)]
    return [errors.invalid_value(at, crd["metadata"]["annotations"][APPROVAL], why)]


def stored_causes(crd: Object) -> list[Cause]:
    """The causes that report an invalid status.storedVersions. The list must contain the storage version, and only
    existing versions."""
    at, stored = "status.storedVersions", dig(crd, "status.storedVersions") or []
    if not stored:
        return [errors.invalid_value(at, stored or None, "must have at least one stored version")]
    known = [version.get("name") for version in dig(crd, "spec.versions") or ()]
    return [errors.invalid_value(at, stored, f"must have the storage version {name}")
            for name in storage_versions(crd) if name not in stored] + [
        errors.invalid_value(f"{at}[{index}]", name, (
            f"missing from spec.versions; {name} was previously a storage version, and must remain in spec.versions "
            f"until a storage migration ensures no data remains persisted in {name} and removes {name} from "
            "status.storedVersions")) for index, name in enumerate(stored) if name not in known]


def _joined(at: str, value: Any, why: list[str]) -> list[Cause]:
    return [errors.invalid_value(at, value, ",".join(why))] if why else []


def _group_causes(group: str) -> list[Cause]:
    if not group:
        return [errors.required("spec.group")]
    if why := dns_subdomain_errors(group):
        return _joined("spec.group", group, why)
    return [] if "." in group else _joined("spec.group", group, ["should be a domain with at least one dot"])


def _scope_causes(scope: str) -> list[Cause]:
    if not scope:
        return [errors.required("spec.scope")]
    choices = ("Cluster", "Namespaced")
    return [] if scope in choices else [errors.not_supported("spec.scope", scope, choices)]


def _version_causes(crd: Object, versions: list[Object]) -> list[Cause]:
    causes = [errors.required(f"spec.versions[{index}].schema.openAPIV3Schema")
              for index, version in enumerate(versions) if dig(version, "schema.openAPIV3Schema") is None]
    names = [version.get("name") or "" for version in versions]
    for index, (name, version) in enumerate(zip(names, versions, strict=True)):
        at = f"spec.versions[{index}]"
        causes += _joined(f"{at}.name", name, dns_1035_label_errors(name))
        causes += [errors.invalid_value(f"{at}.deprecationWarning", version["deprecationWarning"], why)
                   for why in _warning_errors(version)]
    if len(set(names)) < len(names):
        causes.append(errors.invalid_value("spec.versions", versions, "must contain unique version names"))
    if len(storage_versions(crd)) != 1:
        causes.append(errors.invalid_value("spec.versions", versions or None,
                                           "must have exactly one version marked as storage version"))
    # The real server copies the first version's name to the older field spec.version, and reports its errors there too.
    if names and names[0]:
        causes += _joined("spec.version", names[0], dns_1035_label_errors(names[0]))
    return causes


def _warning_errors(version: Object) -> list[str]:
    text = version.get("deprecationWarning")
    if text is None:
        return []
    if not version.get("deprecated"):
        return ["can only be set for deprecated versions"]
    found = ["must be <= 256 characters long"] if len(text.encode()) > 256 else []
    found += [] if text else ["must not be an empty string"]
    bad = next((index for index, character in enumerate(text) if not character.isprintable()), None)
    return found if bad is None else [*found, "must only contain printable UTF-8 characters; non-printable character "
                                      f"found at index {bad}"]


def _parts(versions: list[Object], key: str) -> Iterator[tuple[str, Any]]:
    """Yield (path, value) of one part of the versions: once if all versions have the same value, else per version."""
    values = [version.get(key) for version in versions]
    if values and all(value == values[0] for value in values):
        yield f"spec.{key}", values[0]
    else:
        yield from ((f"spec.versions[{index}].{key}", value) for index, value in enumerate(values))


def _scale_causes(subresources: Object | None, at: str) -> list[Cause]:
    scale = (subresources or {}).get("scale")
    if scale is None:
        return []
    causes = []
    for key, roots, needed in (("specReplicasPath", (".spec.",), True), ("statusReplicasPath", (".status.",), True),
                               ("labelSelectorPath", (".spec.", ".status."), False)):
        path, field = scale.get(key) or "", f"{at}.scale.{key}"
        if not path:
            causes += [errors.required(field)] if needed else []
        elif not path.startswith("."):
            causes.append(errors.invalid_value(field, path, "must be a simple json path starting with ."))
        elif not path.startswith(roots):
            where = roots[0][:-1] if needed else "either .spec or .status"
            causes.append(errors.invalid_value(field, path, f"should be a json path under {where}"))
    return causes


def _column_causes(columns: list[Object] | None, at: str) -> list[Cause]:
    causes = []
    for index, column in enumerate(columns or ()):
        here, kind, text, path = (f"{at}[{index}]", column.get("type"), column.get("format"), column.get("jsonPath"))
        if not column.get("name"):
            causes.append(errors.required(f"{here}.name"))
        choices = "must be one of " + ",".join(_COLUMN_TYPES)
        if not kind:
            causes.append(errors.required(f"{here}.type", choices))
        elif kind not in _COLUMN_TYPES:
            causes.append(errors.invalid_value(f"{here}.type", kind, choices))
        if text and text not in _COLUMN_FORMATS:
            causes.append(errors.invalid_value(f"{here}.format", text, "must be one of " + ",".join(_COLUMN_FORMATS)))
        if not path:
            causes.append(errors.required(f"{here}.JSONPath"))
        elif not path.startswith("."):
            causes.append(errors.invalid_value(f"{here}.JSONPath", path, "must be a simple json path starting with ."))
    return causes


def _field_causes(versions: list[Object], fields: list[Object] | None, at: str) -> list[Cause]:
    index = int(at.partition("[")[2].partition("]")[0] or 0)
    schema = dig(versions[index], "schema.openAPIV3Schema") or {}
    causes, seen = [], set()
    for number, field in enumerate(fields or ()):
        here, path = f"{at}[{number}].jsonPath", field.get("jsonPath") or ""
        if not path:
            causes.append(errors.required(here))
            continue
        found, why = resolve_field(path, schema)
        if found is None:
            causes.append(errors.invalid_value(here, path, f"is an invalid path: {why}"))
            continue
        if path.startswith(".metadata"):
            causes.append(errors.invalid_value(here, path, "must not point to fields in metadata"))
        if found.get("type") not in SELECTABLE_TYPES:
            causes.append(errors.invalid_value(here, path, "must point to a field of type string, boolean or integer. "
                                               "Enum string fields and strings with formats are allowed."))
        if path in seen:
            causes.append(errors.duplicate(here, path))
        seen.add(path)
    if len(seen) > MAX_SELECTABLE:
        causes.append(errors.too_many(at, len(seen), MAX_SELECTABLE))
    return causes


def _preserve_causes(spec: Object) -> list[Cause]:
    if not spec.get("preserveUnknownFields"):
        return []
    return [errors.invalid_value("spec.preserveUnknownFields", True, (
        "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in spec.versions[*].schema instead"))]


CLEANUP = "customresourcecleanup.apiextensions.k8s.io"


def condition(crd: Object, kind: str) -> Object | None:
    conditions = (crd.get("status") or {}).get("conditions") or []
    return next((entry for entry in conditions if entry["type"] == kind), None)


def is_true(crd: Object, kind: str) -> bool:
    return (condition(crd, kind) or {}).get("status") == "True"


def set_condition(crd: Object, kind: str, status: str, reason: str, message: str, now: str) -> None:
    """Set a condition. lastTransitionTime changes only if the status changes."""
    wanted = {"type": kind, "status": status, "lastTransitionTime": now, "reason": reason, "message": message}
    known = crd.setdefault("status", {})
    known["conditions"] = conditions = list(known.get("conditions") or [])
    for index, entry in enumerate(conditions):
        if entry["type"] == kind:
            if entry["status"] == status:
                wanted["lastTransitionTime"] = entry["lastTransitionTime"]
            conditions[index] = wanted
            return
    conditions.append(wanted)


class CrdStrategy(BuiltinStrategy):
    """The rules of CustomResourceDefinition."""

    has_generation = True
    terminates = True

    def default(self, obj: Object) -> None:
        """Derive missing names, and set the conversion strategy None if there is no conversion."""
        spec = obj.get("spec")
        if not isinstance(spec, dict):
            return
        names = spec.get("names")
        if isinstance(names, dict) and names.get("kind"):
            names["singular"] = names.get("singular") or names["kind"].lower()
            names["listKind"] = names.get("listKind") or names["kind"] + "List"
        if spec.get("conversion") is None:
            spec["conversion"] = {"strategy": "None"}
        if (service := dig(spec, "conversion.webhook.clientConfig.service")) is not None:
            put_default(service, "port", 443)
        if "status" in obj and not obj["status"].get("storedVersions"):
            obj["status"]["storedVersions"] = storage_versions(obj)[:1]

    def to_storage(self, obj: Object, version: str) -> Object:
        """Return the object unchanged, including empty lists."""
        return obj

    def prepare_create(self, obj: Object, ctx: StrategyContext) -> None:
        """Set the initial status, which contains the storage version."""
        obj["status"] = {"conditions": None, "acceptedNames": {"plural": "", "kind": ""},
                         "storedVersions": storage_versions(obj)[:1]}

    def prepare_update(self, new: Object, old: Object, subresource: str, ctx: StrategyContext) -> None:
        """Add a new storage version to status.storedVersions. A write to /status may change everything except the spec.
        """
        if subresource == "status":
            self.keep("spec", new, old)
            return
        super().prepare_update(new, old, subresource, ctx)
        if "status" in new:
            stored = list(new["status"].get("storedVersions") or ())
            new["status"] = {**new["status"], "storedVersions": stored + [name for name in storage_versions(new)[:1]
                                                                          if name not in stored]}

    def reset(self, subresource: str) -> ResetFields:
        """The fields that a write ignores: status on the main resource, only spec on /status (see `prepare_update`)."""
        return ResetFields(drop=(("spec",),)) if subresource == "status" else super().reset(subresource)

    def validate_create(self, obj: Object, ctx: StrategyContext) -> list[Cause]:
        return create_causes(obj)

    def validate_update(self, new: Object, old: Object, subresource: str, ctx: StrategyContext) -> list[Cause]:
        """Validate as on create; the type's group, scope and names cannot change. On /status, check only the names."""
        if subresource:
            return name_causes(dig(new, "status.acceptedNames") or {}, "status.acceptedNames")
        return update_causes(new, old, established=is_true(old, "Established"))

    def warnings(self, obj: Object, old: Object | None) -> list[str]:
        """Warn about each schema format that the server does not know and therefore does not check."""
        found = {name: None for version in dig(obj, "spec.versions") or ()
                 for name in unknown_formats(dig(version, "schema.openAPIV3Schema") or {})}
        return [f'unrecognized format "{name}"' for name in found]

    def holds_deletion(self, obj: Object) -> bool:
        """True until the CRD is terminating: the first delete only adds the cleanup finalizer."""
        return "deletionTimestamp" not in obj["metadata"]

    def prepare_delete(self, obj: Object, policy: str, ctx: StrategyContext) -> None:
        """Add the cleanup finalizer, and set the condition Terminating."""
        meta = obj["metadata"]
        if CLEANUP not in (meta.get("finalizers") or ()):
            meta["finalizers"] = [*(meta.get("finalizers") or ()), CLEANUP]
        set_condition(obj, "Terminating", "True", "InstanceDeletionPending",
                      "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon",
                      format_time(ctx.now))
