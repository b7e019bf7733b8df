"""The generators of the package's data: what they make of a small input; that they read only what is pinned."""

from __future__ import annotations

import configparser
import gzip
import subprocess
from pathlib import Path

import pytest

from tests.tools.generators import definitions, gotypes, inputs, outputs

POD = '''
package v1

import (
    metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
    "k8s.io/apimachinery/pkg/util/intstr"
)

/* type Gone struct { } */
type Phase string

// Pod is a group of containers.
type Pod struct {
    metav1.TypeMeta `json:",inline"`
    metav1.ObjectMeta `json:"metadata,omitempty" protobuf:"bytes,1,opt,name=metadata"`
    Spec PodSpec `json:"spec,omitempty" protobuf:"bytes,2,opt,name=spec"`
    // Ignored is not written.
    Ignored string `json:"-"`
}

type PodSpec struct {
    Shared `json:",inline" protobuf:"bytes,9,opt,name=shared"`
    // +default=ref(Few)
    Replicas *int32 `json:"replicas,omitempty" protobuf:"varint,1,opt,name=replicas"`
    // Phase says how far it is.
    // +default="New"
    Phase Phase `json:"phase" protobuf:"bytes,2,opt,name=phase"`
    Limits map[string][]byte `json:"limits,omitempty" protobuf:"bytes,3,rep,name=limits"`
    Ports []intstr.IntOrString `json:"ports,omitempty" protobuf:"bytes,4,rep,name=ports"`
}

// Shared is inlined.
// +structType=atomic
type Shared struct {
    // +optional
    // +default=true
    // TODO: more
    On bool `json:"on,omitempty" protobuf:"varint,5,opt,name=on"`
}

type PodList struct {
    metav1.TypeMeta `json:",inline"`
}
'''
META = '''
package v1

type TypeMeta struct {
    Kind string `json:"kind,omitempty" protobuf:"bytes,1,opt,name=kind"`
}

type ObjectMeta struct {
    Name string `json:"name,omitempty" protobuf:"bytes,1,opt,name=name"`
}
'''


def go_sources(folder: Path) -> Path:
    for path, text in (("api/core/v1/types.go", POD), ("apimachinery/pkg/apis/meta/v1/types.go", META)):
        (folder / path).parent.mkdir(parents=True)
        (folder / path).write_text(text)
    (folder / "api/core/v1/types_test.go").write_text("type Pod struct {\n}\n")
    return folder


def test_markers_are_defaults_and_atomic_structs_with_what_is_inlined(tmp_path):
    defaults, atomic = gotypes.markers(go_sources(tmp_path))
    assert defaults == {"io.k8s.api.core.v1.PodSpec": {"on": True, "phase": "New"},
                        "io.k8s.api.core.v1.Shared": {"on": True}}
    assert atomic == {"io.k8s.api.core.v1.PodSpec", "io.k8s.api.core.v1.Shared"}


def test_go_declarations_become_flags_types_and_numbers(tmp_path):
    assert gotypes.declarations(go_sources(tmp_path)) == {
        "core.v1.Pod": {"kind": "string@1", "metadata": "!.meta.v1.ObjectMeta@1", "spec": "!.core.v1.PodSpec@2"},
        "core.v1.PodSpec": {
            "on": "bool@9.5", "replicas": "*int32@1", "phase": "!string:v1.Phase@2", "limits": "{string}bytes@3",
            "ports": "[]IntOrString@4"},
        "meta.v1.ObjectMeta": {"name": "string@1"},
    }


def test_definitions_lose_what_was_added_for_validating_manifests():
    source = {
        "io.k8s.b.Thing": {
            "description": "A thing.", "type": ["object", "null"], "required": ["kind"],
            "properties": {
                "kind": {"type": "string", "enum": ["Thing"], "description": "Its kind."},
                "spec": {"$ref": "#/$defs/io.k8s.a.Spec"},
                "sizes": {"type": ["array", "null"], "items": {"type": ["integer", "null"], "format": "int32"}}},
            "x-kubernetes-group-version-kind": [{"group": "", "kind": "Thing", "version": "v1"}]},
        "io.k8s.a.Spec": {"type": "object", "additionalProperties": {"type": ["string", "null"]}},
        "io.k8s.apimachinery.pkg.api.resource.Quantity": {"oneOf": [{"type": "string"}, {"type": "number"}]},
        "io.k8s.api.core.v1.ServicePort": {"type": "object", "properties": {"protocol": {"type": "string"}}},
    }
    found, texts = definitions.documents(source)
    assert list(found) == list(texts) == sorted(source)
    assert found == {
        "io.k8s.a.Spec": {"type": "object", "additionalProperties": {"type": "string"}},
        "io.k8s.api.core.v1.ServicePort": {
            "type": "object", "properties": {"protocol": {"type": "string", "default": "TCP"}}},
        "io.k8s.apimachinery.pkg.api.resource.Quantity": {"type": "string"},
        "io.k8s.b.Thing": {
            "type": "object", "required": ["kind"],
            "properties": {"kind": {"type": "string"}, "spec": {"$ref": "io.k8s.a.Spec"},
                           "sizes": {"type": "array", "items": {"type": "integer", "format": "int32"}}},
            "x-kubernetes-group-version-kind": [{"group": "", "kind": "Thing", "version": "v1"}]},
    }
    assert texts["io.k8s.b.Thing"] == {"": "A thing.", "kind": "Its kind."}


def test_the_same_documents_make_the_same_bytes(monkeypatch):
    before = outputs.packed(({"a": "é"}, {}))
    monkeypatch.setattr("time.time", lambda: 2_000_000_000.0)
    assert outputs.packed(({"a": "é"}, {})) == before
    assert gzip.decompress(before).decode() == '{"a":"é"}\n{}'


def test_only_what_a_file_unpacks_to_counts(tmp_path):
    content, path = outputs.packed(({"a": 1},)), tmp_path / "a.json.gz"
    assert outputs.differs(path, content)
    path.write_bytes(gzip.compress(b'{"a":1}', compresslevel=1))
    assert not outputs.differs(path, content)
    path.write_bytes(gzip.compress(b'{"a":2}'))
    assert outputs.differs(path, content)


def test_the_generated_files_are_where_the_package_reads_them():
    assert outputs.DEFINITIONS.exists()
    assert outputs.TYPES.exists()


def test_tox_installs_the_pinned_package():
    tox = configparser.ConfigParser(interpolation=None)
    tox.read(Path(__file__).parents[2] / "tox.ini")
    assert tox["testenv:generate"]["deps"].split() == [f"{inputs.SCHEMAS_PACKAGE}=={inputs.SCHEMAS_VERSION}"]


def test_another_release_of_the_package_is_refused(monkeypatch):
    monkeypatch.setattr(inputs.metadata, "version", lambda name: "1.37.0")
    with pytest.raises(inputs.InputError, match=r"kubernetes-validate==1\.36\.0 is needed, installed is 1\.37\.0"):
        inputs.schemas()


def commit(folder: Path) -> str:
    """The commit of a new repository with one file."""
    who = ("-c", "user.name=a", "-c", "user.email=a@example.com")
    folder.mkdir()
    (folder / "types.go").write_text("package v1\n")
    for arguments in (("init", "-q"), ("add", "."), (*who, "commit", "-q", "-m", "one")):
        subprocess.run(["git", *arguments], cwd=folder, check=True)
    return inputs.git(folder, "rev-parse", "HEAD")


def test_a_checkout_is_taken_only_clean_and_at_its_commit(tmp_path):
    repository = tmp_path / "api"
    head = commit(repository)
    inputs.verify(repository, head)
    with pytest.raises(inputs.InputError, match=f"is at {head}, the pinned commit is 0000"):
        inputs.verify(repository, "0" * 40)
    (repository / "types.go").write_text("package v2\n")
    with pytest.raises(inputs.InputError, match=r"has changes:\n.*types\.go"):
        inputs.verify(repository, head)


def test_a_folder_inside_another_repository_is_no_checkout(tmp_path):
    head = commit(tmp_path / "outer")
    (tmp_path / "outer/api").mkdir()
    with pytest.raises(inputs.InputError, match="not a git checkout"):
        inputs.verify(tmp_path / "outer/api", head)


def test_what_git_says_is_told(tmp_path):
    with pytest.raises(inputs.InputError, match=r"git rev-parse HEAD: .*not a git repository"):
        inputs.git(tmp_path, "rev-parse", "HEAD")
