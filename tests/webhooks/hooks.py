"""The webhooks of these tests."""
from __future__ import annotations

from typing import Any

import msgspec

from kubectl_runtime import Conversion, DynamicObject, Resource
from kubectl_runtime.resources import Deployment, Namespace
from kubectl_runtime.webhooks import Admission, AdmissionRequest, Application, Denied, application


class Container(msgspec.Struct):
    name: str
    image: str = ""


class PodSpec(msgspec.Struct):
    containers: list[Container] = []
    priority: int = 0


class Pod(Resource, version="v1", kind="Pod"):
    """Declares little of what there is."""

    spec: PodSpec


class Quota(Admission[Pod], operations=("CREATE", "UPDATE", "DELETE")):
    """At most two containers, of images with a tag; each is taken from the mirror."""

    def validate(self, request: AdmissionRequest[Pod]) -> None:
        if request.operation == "DELETE":
            if request.object.labels.get("protected") and not request.dry_run:
                raise Denied("it is protected", code=409)
            return
        spec = request.object.spec
        if len(spec.containers) > 2:
            raise Denied(f"{len(spec.containers)} containers; at most 2 are allowed")
        old = request.old
        if old is not None and old.spec.priority > spec.priority:
            request.warn("the priority goes down")
        for container in spec.containers:
            if ":" not in container.image:
                request.warn(f"{container.name}: an image without a tag")
        request.audit("containers", str(len(spec.containers)))

    def mutate(self, request: AdmissionRequest[Pod]) -> Pod | None:
        wanted = [one for one in request.object.spec.containers if not one.image.startswith("mirror/")]
        for container in wanted:
            container.image = f"mirror/{container.image}"
        return request.object if wanted else None


class OnlyAdmins(Admission[Namespace], operations=("DELETE",)):
    def validate(self, request: AdmissionRequest[Namespace]) -> None:
        if "kubeadm:cluster-admins" not in request.user.groups:
            raise Denied(f"{request.user.username} is no administrator")


class Labels(Admission[DynamicObject], name="labels.shop.example.com"):
    """Any kind: has to have a label, and gets it."""

    def validate(self, request: AdmissionRequest[DynamicObject]) -> None:
        if "team" not in request.object.labels:
            raise Denied("the label team is missing", code=422)

    def mutate(self, request: AdmissionRequest[DynamicObject]) -> DynamicObject | None:
        obj = request.object
        if "team" in obj.labels:
            return None
        obj.metadata.labels = {**obj.labels, "team": request.user.username.partition(":")[0]}
        return obj


class Scales(Admission[Deployment], subresources=("scale", "status")):
    def validate(self, request: AdmissionRequest[Deployment]) -> None:
        if request.sub_resource == "scale":
            scale = request.review.object(Scale)
            if scale is not None and scale.spec.replicas > 5:
                raise Denied("at most 5 replicas")
        elif request.sub_resource == "" and request.object["spec"].get("replicas", 1) > 5:
            raise Denied("at most 5 replicas")


class ScaleSpec(msgspec.Struct):
    replicas: int = 0


class Scale(Resource, group="autoscaling", version="v1", kind="Scale"):
    spec: ScaleSpec


class Broken(Admission[Pod]):
    """Full of defects."""

    def validate(self, request: AdmissionRequest[Pod]) -> None:
        if request.name == "unicode":
            raise Denied("half a character: \ud800")
        if request.name == "text":
            request.audit("number", 5)  # type: ignore[arg-type]
        request.warn("about to fail")
        raise {"ValueError": ValueError("secret=hunter2"), "SystemExit": SystemExit(3)}.get(
            request.name, RuntimeError("oh"))

    def mutate(self, request: AdmissionRequest[Pod]) -> Any:
        answers = {"dict": {"spec": {}}, "made": Pod(name="made", spec=PodSpec()), "deleted": request.object}
        if request.name == "forgotten":
            request.object.metadata.labels = {"changed": "yes"}
        return answers.get(request.name)


def to_v2(content: dict[str, Any]) -> dict[str, Any]:
    spec = dict(content["spec"])
    return {**content, "spec": {**spec, "color": {"name": spec.pop("color")}} if "color" in spec else spec}


def to_v1(content: dict[str, Any]) -> dict[str, Any]:
    if content["metadata"]["name"] == "bug":
        raise KeyError("color")
    spec = dict(content["spec"])
    return {**content, "spec": {**spec, "color": spec["color"]["name"]} if "color" in spec else spec}


def everything() -> Application:
    return application({"/quota": Quota(), "/namespaces": OnlyAdmins(), "/labels": Labels(), "/scales": Scales(),
                        "/broken": Broken(),
                        "/convert": Conversion({("v1", "v2"): to_v2, ("v2", "v1"): to_v1})})
