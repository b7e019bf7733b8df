"""DaemonSets."""

from __future__ import annotations

from kubectl_runtime.apiserver import errors
from kubectl_runtime.apiserver.errors import Cause
from kubectl_runtime.apiserver.kinds.apps.workloads import WorkloadStrategy
from kubectl_runtime.apiserver.kinds.base import amount_of, amount_or_percent_causes, non_negative, put_default
from kubectl_runtime.apiserver.strategy import Object, StrategyContext

TEMPLATE_GENERATION = "deprecated.daemonset.template.generation"


class DaemonSetStrategy(WorkloadStrategy):
    """DaemonSets: no replicas, no scale."""

    names_hosts = False
    selector_required = False  # its lack shows in the template, which nothing matches
    broken_selector = None
    counted = ()
    pods_of = "DaemonSet"
    empty_selector = "empty selector is invalid for daemonset"

    def default(self, obj: Object) -> None:
        """A rolling update, one node at a time; the annotation in which a former field lives on."""
        super().default(obj)
        annotations = obj["metadata"].get("annotations") or {}
        obj["metadata"]["annotations"] = {**annotations, TEMPLATE_GENERATION: annotations.get(TEMPLATE_GENERATION, "0")}
        spec = obj["spec"]
        update = spec.setdefault("updateStrategy", {})
        put_default(update, "type", "RollingUpdate")
        if update["type"] == "RollingUpdate":
            put_default(update, "rollingUpdate", {})
            put_default(update["rollingUpdate"], "maxUnavailable", 1)
        if update.get("rollingUpdate") is not None:
            put_default(update["rollingUpdate"], "maxSurge", 0)
        put_default(spec, "revisionHistoryLimit", 10)

    def prepare_create(self, obj: Object, ctx: StrategyContext) -> None:
        """The first template."""
        super().prepare_create(obj, ctx)
        obj["metadata"]["annotations"][TEMPLATE_GENERATION] = "1"

    def prepare_update(self, new: Object, old: Object, subresource: str, ctx: StrategyContext) -> None:
        """The generation of the template rises with it, whatever the client wrote."""
        super().prepare_update(new, old, subresource, ctx)
        before = int((old["metadata"].get("annotations") or {}).get(TEMPLATE_GENERATION, "0"))
        changed = new["spec"].get("template") != old["spec"].get("template")
        new["metadata"]["annotations"][TEMPLATE_GENERATION] = str(before + changed)

    def own_causes(self, spec: Object) -> list[Cause]:
        """The update strategy."""
        return _update_causes(spec["updateStrategy"], "spec.updateStrategy") + non_negative(
            spec, "revisionHistoryLimit", "spec")

    def scale_paths(self) -> tuple[str, str, str] | None:
        """It has none."""
        return None


def _update_causes(update: Object, path: str) -> list[Cause]:
    kind, rolling = update.get("type"), update.get("rollingUpdate") or {}
    if kind == "OnDelete":
        return []
    if kind != "RollingUpdate":
        return [errors.not_supported(path, {"Type": kind, "RollingUpdate": None}, ("RollingUpdate", "OnDelete"))]
    surge, unavailable, at = rolling.get("maxSurge"), rolling.get("maxUnavailable"), f"{path}.rollingUpdate"
    causes = amount_or_percent_causes(unavailable, f"{at}.maxUnavailable", most_all=True)
    causes += amount_or_percent_causes(surge, f"{at}.maxSurge", most_all=True)
    if amount_of(surge) and amount_of(unavailable):
        causes.append(errors.invalid_value(f"{at}.maxSurge", surge, "may not be set when maxUnavailable is non-zero"))
    elif not amount_of(surge) and not amount_of(unavailable):
        causes.append(errors.required(f"{at}.maxUnavailable", "cannot be 0 when maxSurge is 0"))
    return causes
