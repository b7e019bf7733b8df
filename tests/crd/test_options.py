"""What a class says of its definition besides its types, the rules it declares, and versions put together."""
from __future__ import annotations

import subprocess
import sys
from typing import Annotated, Any

import msgspec
import pytest
from msgspec import Meta

from kubectl_runtime.crd.customresource import CustomResource, merge_crds
from kubectl_runtime.crd.marks import Rule, ScaleSubresource, rules


@rules(Rule("self.title != 'forbidden'", reason="FieldValueForbidden", field_path=".title", message="not this one"))
class DocumentSpec(msgspec.Struct, rename="camel"):
    title: Annotated[str, Rule("self == oldSelf", message="title is immutable")]
    pages: Annotated[int, Meta(ge=1), Rule("oldSelf.hasValue() ? self >= oldSelf.value() : true",
                                           optional_old_self=True, message="pages only grow")] = 1


class DocumentStatus(msgspec.Struct, rename="camel"):
    pages: int = 0


class Document(CustomResource, group="demo.example.com", version="v1", kind="Document", short_names=("doc",),
               scale=ScaleSubresource(".spec.pages", ".status.pages"), selectable_fields=(".spec.title",),
               deprecated="use v2", doc="A text.", annotations={"a": "b"}, labels={"app": "docs"}, storage=False,
               rules=(Rule("self.metadata.name.size() < 5", message="name is too long"),)):
    spec: DocumentSpec
    status: DocumentStatus | None = None


class DocumentV2(CustomResource, group="demo.example.com", version="v2", kind="Document", short_names=("doc",)):
    spec: DocumentSpec


class Late(CustomResource, group="demo.example.com", version="v1", kind="Late"):
    spec: LateSpec


class LateSpec(msgspec.Struct):
    size: int


def told(obj: CustomResource, old: CustomResource | None = None) -> list[tuple[str, str]]:
    return [(cause.field, cause.message.partition(": ")[2]) for cause in obj.violations(old)]


def test_every_option_is_in_the_definition() -> None:
    crd = Document.crd()
    assert crd["metadata"] == {"name": "documents.demo.example.com", "annotations": {"a": "b"},
                               "labels": {"app": "docs"}}
    [version] = crd["spec"]["versions"]
    schema = version.pop("schema")["openAPIV3Schema"]
    assert version == {
        "name": "v1", "served": True, "storage": False, "deprecated": True, "deprecationWarning": "use v2",
        "subresources": {"status": {},
                         "scale": {"specReplicasPath": ".spec.pages", "statusReplicasPath": ".status.pages"}},
        "selectableFields": [{"jsonPath": ".spec.title"}]}
    assert schema["description"] == "A text."
    assert schema["x-kubernetes-validations"] == [
        {"rule": "self.metadata.name.size() < 5", "message": "name is too long"}]
    spec = schema["properties"]["spec"]
    assert spec["x-kubernetes-validations"] == [{"rule": "self.title != 'forbidden'", "message": "not this one",
                                                 "reason": "FieldValueForbidden", "fieldPath": ".title"}]
    assert spec["properties"]["title"]["x-kubernetes-validations"][0]["rule"] == "self == oldSelf"


def test_new_makes_an_object_with_the_labels_and_annotations_of_the_class() -> None:
    made = Document.new("a", DocumentSpec("t"), namespace="n")
    assert made.to_dict() == {
        "apiVersion": "demo.example.com/v1", "kind": "Document", "spec": {"title": "t", "pages": 1},
        "metadata": {"name": "a", "namespace": "n", "labels": {"app": "docs"}, "annotations": {"a": "b"}}}


def test_an_object_is_validated_without_a_server() -> None:
    assert told(Document.new("a", DocumentSpec("t"))) == []
    assert told(Document.new("too-long", DocumentSpec("forbidden"))) == [
        ("", "name is too long"), ("spec.title", "not this one")]
    assert [field for field, _ in told(Document.new("a", DocumentSpec("t", pages=0)))] == ["spec.pages"]


def test_an_update_is_validated_without_a_server() -> None:
    old = Document.new("a", DocumentSpec("t", pages=3))
    assert told(Document.new("a", DocumentSpec("t", pages=4)), old) == []
    assert told(Document.new("a", DocumentSpec("u", pages=2)), old) == [
        ("spec.title", '"u": title is immutable'), ("spec.pages", "2: pages only grow")]


@pytest.mark.parametrize(("keyword", "near"), [("shortnames", "short_names"), ("printer_column", "printer_columns"),
                                               ("selectable_field", "selectable_fields"), ("scoped", "scope"),
                                               ("knd", "kind"), ("catgories", "categories")])
def test_a_misspelt_keyword_is_named_with_the_nearest_right_one(keyword: str, near: str) -> None:
    with pytest.raises(TypeError, match=rf"no keyword {keyword}=; did you mean {near}=\?"):
        type("Wrong", (CustomResource,), {}, group="g.example.com", version="v1", **{keyword: "x"})


@pytest.mark.parametrize(("options", "problem"), [
    ({"short_names": "doc"}, r"write short_names=\('doc',\)"), ({"selectable_fields": (".spec.none",)}, ".spec.none"),
    ({"scale": ScaleSubresource(".spec.size", ".status.size")}, "scale= needs a status"),
    ({"schema": {"type": "object"}, "rules": (Rule("true"),)}, "rules= cannot be combined with schema="),
    ({"schema": {"type": "string"}}, "must be object at the root"), ({"group": "plain"}, "a dot in it")])
def test_what_the_server_would_refuse_is_refused_when_the_class_is_made(options: Any, problem: str) -> None:
    with pytest.raises(TypeError, match=problem):
        type("Wrong", (CustomResource,), {"__annotations__": {"spec": LateSpec}},
             **{"group": "g.example.com", "version": "v1", "kind": "Wrong", **options})


@pytest.mark.parametrize("hint", [Annotated[str, Meta(pattern="^(?=a)")],
                                  Annotated[int, Meta(extra_json_schema={"type": ""})],
                                  Annotated[str, Meta(extra_json_schema={"anyOf": [{"type": "string"}]})]])
def test_a_field_that_is_not_structural_is_refused_with_its_path(hint: Any) -> None:
    spec = msgspec.defstruct("Spec", [("x", hint)])
    with pytest.raises(TypeError, match=r"class Wrong: the API server would refuse its schema: properties\[spec\]"):
        type("Wrong", (CustomResource,), {"__annotations__": {"spec": spec}}, group="g.example.com", version="v1",
             kind="Wrong")


def test_types_that_are_defined_later_are_looked_at_when_the_definition_is_made() -> None:
    assert Late.crd()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["required"] == ["size"]


def test_a_rule_that_does_not_compile_is_refused_with_its_place() -> None:
    class Wrong(CustomResource, group="g.example.com", version="v1", kind="Wrong", rules=(Rule("self.none == 1"),)):
        spec: LateSpec

    with pytest.raises(TypeError, match=r"x-kubernetes-validations\[0\].rule: .*undefined field 'none'"):
        Wrong.crd()


def test_versions_are_merged_with_the_stored_one_first() -> None:
    merged = merge_crds([Document.crd(), DocumentV2.crd()], "v2")
    assert [(version["name"], version["storage"]) for version in merged["spec"]["versions"]] == [
        ("v2", True), ("v1", False)]
    assert merged["metadata"] == {"name": "documents.demo.example.com"}
    assert merge_crds([Document.crd(), DocumentV2.crd()], "v1")["metadata"]["labels"] == {"app": "docs"}


@pytest.mark.parametrize(("crds", "stored", "problem"), [
    ([], "v1", "no definitions were given"), ([Document.crd()], "v3", "no definition has the stored version v3"),
    ([Document.crd(), Document.crd()], "v1", "two definitions have version v1"),
    ([merge_crds([Document.crd(), DocumentV2.crd()], "v1")], "v1", "has 2 versions"),
    ([Document.crd(), {**DocumentV2.crd(), "spec": {**DocumentV2.crd()["spec"], "scope": "Cluster"}}], "v1",
     "spec.scope is 'Cluster' in v2, but 'Namespaced' in v1")])
def test_what_does_not_fit_together_is_not_merged(crds: list[dict[str, Any]], stored: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        merge_crds(crds, stored)


class SparseSpec(msgspec.Struct, omit_defaults=True):
    low: int = 1
    high: int = 10


class Sparse(CustomResource, group="demo.example.com", version="v1", kind="Sparse",
             rules=(Rule("self.spec.low <= self.spec.high", message="low is above high"),)):
    spec: SparseSpec


def test_an_object_is_validated_with_the_defaults_that_the_server_would_fill_in() -> None:
    assert "high" not in Sparse.new("a", SparseSpec(low=3)).to_dict()["spec"]
    assert told(Sparse.new("a", SparseSpec(low=3))) == []
    assert told(Sparse.new("a", SparseSpec(low=11))) == [("", "low is above high")]
    unknown = Sparse.from_dict({"metadata": {"name": "a"}, "spec": {"low": 3, "other": 1}})
    assert told(unknown, unknown) == []


USE = """
import sys
from typing import Annotated

import msgspec

from kubectl_runtime import CustomResource
from kubectl_runtime.crd.marks import Rule

class Spec(msgspec.Struct):
    size: {size}

class Box(CustomResource, group="demo.example.com", version="v1", kind="Box"):
    spec: Spec

made = [name for name in sys.modules if name.startswith("kubectl_runtime.schema.cel")]
Box.crd()
told = [cause.text() for cause in Box.new("a", Spec(-1)).violations()]
print(made, "kubectl_runtime.schema.cel" in sys.modules, told)
"""


@pytest.mark.parametrize(("size", "used", "told"), [
    ("int", False, []), ("Annotated[int, Rule('self > 0', message='too small')]", True, ["too small"])])
def test_only_a_kind_with_rules_pays_for_what_knows_cel(size: str, used: bool, told: list[str]) -> None:
    if used:
        pytest.importorskip("cel_expr_python", reason="it evaluates a rule in CEL in a process of its own")
    done = subprocess.run([sys.executable, "-c", USE.replace("{size}", size)], capture_output=True, text=True,
                          timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    seen = done.stdout.strip()
    assert seen.startswith(f"[] {used} ")
    assert all(text in seen for text in told)
    assert seen.endswith("[]") is not used
