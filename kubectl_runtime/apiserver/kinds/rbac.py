"""Roles and bindings. Their names only have to fit into a path; escalation is checked by access, not here."""

from __future__ import annotations

from kubectl_runtime.apiserver import errors
from kubectl_runtime.apiserver.errors import Cause
from kubectl_runtime.apiserver.kinds.base import BuiltinStrategy, selector_causes
from kubectl_runtime.apiserver.objectmeta.names import dns_subdomain_errors, path_segment_errors
from kubectl_runtime.apiserver.strategy import Object, StrategyContext

GROUP = "rbac.authorization.k8s.io"
_SUBJECT_GROUPS = {"ServiceAccount": "", "User": GROUP, "Group": GROUP}


class RoleStrategy(BuiltinStrategy):
    """Roles and ClusterRoles."""

    namespaced = True

    def validate_name(self, name: str, *, prefix: bool = False) -> list[str]:
        """A path segment: ``system:node`` will do."""
        return path_segment_errors(name, prefix=prefix)

    def validate_create(self, obj: Object, ctx: StrategyContext) -> list[Cause]:
        """Each rule has verbs and either resources or, in a ClusterRole, URLs."""
        causes = []
        for index, rule in enumerate(obj.get("rules") or ()):
            path = f"rules[{index}]"
            if not rule.get("verbs"):
                causes.append(errors.required(f"{path}.verbs", "verbs must contain at least one value"))
            if rule.get("nonResourceURLs"):
                if self.namespaced:
                    causes.append(errors.invalid_value(f"{path}.nonResourceURLs", rule["nonResourceURLs"],
                                                       "namespaced rules cannot apply to non-resource URLs"))
                if rule.get("apiGroups") or rule.get("resources") or rule.get("resourceNames"):
                    causes.append(errors.invalid_value(
                        f"{path}.nonResourceURLs", rule["nonResourceURLs"],
                        "rules cannot apply to both regular resources and non-resource URLs"))
                continue
            if not rule.get("apiGroups"):
                causes.append(errors.required(f"{path}.apiGroups", "resource rules must supply at least one api group"))
            if not rule.get("resources"):
                causes.append(errors.required(f"{path}.resources", "resource rules must supply at least one resource"))
        return causes

    def validate_update(self, new: Object, old: Object, subresource: str, ctx: StrategyContext) -> list[Cause]:
        """As at creation."""
        return self.validate_create(new, ctx)


class ClusterRoleStrategy(RoleStrategy):
    """ClusterRoles."""

    namespaced = False

    def validate_create(self, obj: Object, ctx: StrategyContext) -> list[Cause]:
        """An aggregation says of what; its selectors are well-formed."""
        causes = super().validate_create(obj, ctx)
        rule = obj.get("aggregationRule")
        if rule is None:
            return causes
        selectors, path = rule.get("clusterRoleSelectors") or (), "aggregationRule.clusterRoleSelectors"
        if not selectors:
            causes.append(errors.required(path, "at least one clusterRoleSelector required if aggregationRule is "
                                          "non-nil"))
        for index, selector in enumerate(selectors):
            at = f"{path}[{index}]"
            if wrong := selector_causes(selector, at):
                causes += [*wrong, errors.invalid_value(at, None, "invalid label selector.")]
        return causes


class BindingStrategy(BuiltinStrategy):
    """RoleBindings and ClusterRoleBindings: the role is fixed, the subjects are not."""

    role_kinds: tuple[str, ...] = ("Role", "ClusterRole")
    namespaced = True

    def default(self, obj: Object) -> None:
        """API groups of the role and of subjects that are no ServiceAccounts."""
        role = obj.setdefault("roleRef", {})
        if not role.get("apiGroup"):
            role["apiGroup"] = GROUP
        for subject in obj.get("subjects") or ():
            if not subject.get("apiGroup") and subject.get("kind") in ("User", "Group"):
                subject["apiGroup"] = GROUP

    def validate_name(self, name: str, *, prefix: bool = False) -> list[str]:
        """A path segment."""
        return path_segment_errors(name, prefix=prefix)

    def validate_create(self, obj: Object, ctx: StrategyContext) -> list[Cause]:
        """The role's kind and name; kinds and names of the subjects."""
        role = obj["roleRef"]
        causes = []
        if role["apiGroup"] != GROUP:
            causes.append(errors.not_supported("roleRef.apiGroup", role["apiGroup"], [GROUP]))
        if role.get("kind") not in self.role_kinds:
            causes.append(errors.not_supported("roleRef.kind", role.get("kind", ""), self.role_kinds))
        if not role.get("name"):
            causes.append(errors.required("roleRef.name"))
        causes += [errors.invalid_value("roleRef.name", role["name"], why)
                   for why in path_segment_errors(role.get("name", ""))]
        for index, subject in enumerate(obj.get("subjects") or ()):
            causes += self._subject_causes(subject, f"subjects[{index}]")
        return causes

    def _subject_causes(self, subject: Object, path: str) -> list[Cause]:
        name, kind, group = (subject.get(key) or "" for key in ("name", "kind", "apiGroup"))
        causes = [] if name else [errors.required(f"{path}.name")]
        if kind not in _SUBJECT_GROUPS:
            return [*causes, errors.not_supported(f"{path}.kind", kind, _SUBJECT_GROUPS)]
        if kind == "ServiceAccount":
            if name:
                causes += [errors.invalid_value(f"{path}.name", name, why) for why in dns_subdomain_errors(name)]
            if not subject.get("namespace") and not self.namespaced:
                causes.append(errors.required(f"{path}.namespace"))
        if group != _SUBJECT_GROUPS[kind]:
            causes.append(errors.not_supported(f"{path}.apiGroup", group, [_SUBJECT_GROUPS[kind]]))
        return causes

    def validate_update(self, new: Object, old: Object, subresource: str, ctx: StrategyContext) -> list[Cause]:
        """As at creation; the role stays."""
        causes = [] if new["roleRef"] == old["roleRef"] else [
            errors.invalid_value("roleRef", _go_role_ref(new["roleRef"]), "cannot change roleRef")]
        return causes + self.validate_create(new, ctx)


def _go_role_ref(role: Object) -> Object:
    """A roleRef as the real server prints its internal type."""
    return {"APIGroup": role["apiGroup"], "Kind": role.get("kind", ""), "Name": role.get("name", "")}


class ClusterBindingStrategy(BindingStrategy):
    """ClusterRoleBindings."""

    role_kinds = ("ClusterRole",)
    namespaced = False
