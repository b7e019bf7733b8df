r"""`CustomResource`: a resource class of your own kind, which also makes its CustomResourceDefinition.

    class Generator(CustomResource, group="demo.example.com", version="v1", kind="Generator", short_names=("gen",),
                    printer_columns=(PrinterColumn("Age", ".metadata.creationTimestamp", type="date"),)):
        \"\"\"What it is for: the description in the schema.\"\"\"
        spec: GeneratorSpec
        status: GeneratorStatus | None = None       # its presence turns the status subresource on

    Generator.crd()                                  the definition, as a dict to create or apply
    Generator.new("name", GeneratorSpec(...))        an object, with the labels and annotations of the class
    generator.violations(old)                        what the server would refuse, rules included, without a server

If the API server would refuse the schema, creating the class raises an error that names the field and the remedy. Types
that are defined further down in the module are checked by `crd()`, which also compiles rules if the extra `cel` is
installed.

`merge_crds` combines several versions of one kind into one definition; `definitions_of` does so for any set of classes.

`Validator` validates an object against a definition, rules included, without a server. As on the server, unknown fields
are dropped and defaults filled in first:

    Validator.of(definition).violations(content, old)       for a third-party kind
    widget.violations(old)                                  the same for your own class
"""
from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import TYPE_CHECKING, Any, ClassVar, Self

from kubectl_runtime.core.base.errors import RequestError
from kubectl_runtime.core.codec.jsonbytes import json_copy
from kubectl_runtime.core.codec.views import MISSING
from kubectl_runtime.core.meta.gvk import Scope
from kubectl_runtime.core.objects.declare import attributes_of, hints_of
from kubectl_runtime.core.objects.resource import Resource
from kubectl_runtime.crd.marks import (
    OPTIONS,
    CrdOptions,
    PrinterColumn,
    Rule,
    ScaleSubresource,
    check_keywords,
    options_of,
)
from kubectl_runtime.crd.parts import Style
from kubectl_runtime.crd.schema import Within, object_schema
from kubectl_runtime.schema.structural import (
    apply_defaults,
    declares_rules,
    prune,
    resolve_field,
    schema_definition_causes,
)
from kubectl_runtime.schema.validation import NOTHING, Cause, schema_causes

if TYPE_CHECKING:
    from kubectl_runtime.schema.rules import Rules

class Validator:
    """The schema of one version of a kind, ready to check objects. Thread-safe; create it once and use it repeatedly.

    >>> class Small(Struct):
    ...     size: Annotated[int, Rule("self < 3", message="too large")]
    >>> class Box(CustomResource, group="example.com", version="v1", kind="Box"):
    ...     spec: Small
    >>> [problem.field for problem in Box(name="a", spec=Small(5)).violations()]
    ['spec.size']
    """

    def __init__(self, schema: Mapping[str, Any]) -> None:
        """`schema`: an openAPIV3Schema; do not change it afterwards. Rules are compiled on first use."""
        self._schema = dict(schema)

    @classmethod
    def of(cls, definition: Mapping[str, Any], version: str | None = None) -> Validator:
        """Make the Validator of a CustomResourceDefinition's version, by default the stored version. Raises
        RequestError if the version does not exist or has no schema."""
        versions = definition["spec"]["versions"]
        for found in versions:
            schema = (found.get("schema") or {}).get("openAPIV3Schema")
            if schema and (found["name"] == version if version else found.get("storage")):
                return cls(schema)
        raise RequestError(f"{definition['metadata']['name']} has no schema for {version or 'the stored version'}; its "
                           f"versions: {', '.join(found['name'] for found in versions)}")

    def violations(self, new: Mapping[str, Any], old: Mapping[str, Any] | None = None) -> list[Cause]:
        """Return the errors of the object `new`, field by field. With `old`, the errors of the update from `old` to
        `new` are included. The arguments are not changed. Raises MissingExtra if the schema has rules and the extra
        `cel` is not installed."""
        now, before = self._as_stored(new), NOTHING if old is None else self._as_stored(old)
        found = schema_causes(now, self._schema, before)
        if self._rules is None:
            return found
        from kubectl_runtime.schema.rules import checked_after

        return checked_after(found, self._rules, now, before)

    def rule_causes(self) -> list[Cause]:
        """The errors in the rules themselves. Without the extra `cel`, rules are not compiled, so only errors outside
        of their expressions are found."""
        if not declares_rules(self._schema):
            return []
        # Importing the CEL modules takes half of this package's import time, and most kinds have no rules.
        from kubectl_runtime.schema.cel import MISSING_EXTRA
        from kubectl_runtime.schema.rules import rule_definition_causes

        return [cause for cause in rule_definition_causes(self._schema) if MISSING_EXTRA not in cause.message]

    @functools.cached_property
    def _rules(self) -> Rules | None:
        if not declares_rules(self._schema):
            return None
        from kubectl_runtime.schema.rules import rules_of

        return rules_of(self._schema)

    def _as_stored(self, content: Mapping[str, Any]) -> dict[str, Any]:
        found: dict[str, Any] = json_copy(dict(content))
        prune(found, self._schema)
        apply_defaults(found, self._schema)
        return found


class CustomResource(Resource):
    """The base class of your own kinds: the class is the CustomResourceDefinition, and its instances are the objects.

    Class keywords are those of `Resource` (group, version, kind, …) and of `CrdOptions` (scale, printer_columns, rules,
    …). The group must be a name of your own that contains a dot, as the API requires. A field `status` turns on the
    status subresource. Creating the class raises TypeError for an invalid group, for an unknown keyword (with the
    nearest valid one), and for types without a structural schema.

    >>> class BackupSpec(Struct):
    ...     schedule: str
    ...     keep: Annotated[int, Rule("self > 0")] = 3
    >>> class Backup(CustomResource, group="example.com", version="v1", kind="Backup"):
    ...     spec: BackupSpec
    >>> Backup.crd()["metadata"]["name"]
    'backups.example.com'
    >>> Backup(name="nightly", spec=BackupSpec("0 3 * * *")).spec.keep
    3
    """

    crd_options: ClassVar[CrdOptions] = CrdOptions()

    if TYPE_CHECKING:  # so that type checkers know each class keyword

        def __init_subclass__(
                cls, *, group: str | None = None, version: str | None = None, kind: str | None = None,
                plural: str | None = None, scope: Scope | None = None, singular: str | None = None,
                short_names: tuple[str, ...] | list[str] = (), categories: tuple[str, ...] | list[str] = (),
                printer_columns: tuple[PrinterColumn, ...] | list[PrinterColumn] = (),
                selectable_fields: tuple[str, ...] | list[str] = (), scale: ScaleSubresource | None = None,
                served: bool = True, storage: bool = True, deprecated: bool | str = False, doc: str | None = None,
                annotations: Mapping[str, str] | None = None, labels: Mapping[str, str] | None = None,
                rules: tuple[Rule, ...] | list[Rule] = (), schema: Mapping[str, Any] | None = None,
                describe_parts: bool = False, embedded_metadata: bool = True) -> None: ...
    else:

        def __init_subclass__(cls, **given):
            check_keywords(cls, given)
            own = {name: given.pop(name) for name in OPTIONS if name in given}
            super().__init_subclass__(**given)
            if own:
                cls.crd_options = options_of(cls, own)
            if "api_resource" not in cls.__dict__:
                return
            if "." not in cls.api_resource.group:
                raise TypeError(f"class {cls.__name__}: a custom resource needs a group= with a dot in it, "
                                "such as 'example.com'")
            try:
                cls._version()
            except TypeError as error:
                # A NameError passes: the type may be defined further down in the module, and `crd()` checks it later.
                if not isinstance(error.__context__, NameError):
                    raise

    @classmethod
    def new(cls, name: str, spec: Any, *, namespace: str | None = None) -> Self:
        """Make an object of this kind, with the labels and annotations that the class declares. Nothing is sent."""
        options = cls.crd_options
        made: Any = cls
        created: Self = made(name=name, namespace=namespace, labels=options.labels or None,
                             annotations=options.annotations or None, spec=spec)
        return created

    def violations(self, old: CustomResource | None = None) -> list[Cause]:
        """Return the errors that the API server would find in this object by its schema and rules, field by field.

        With `old`, the errors of the update from `old` to this object are included. The list is empty for a valid
        object. As on the server, unknown fields are dropped and defaults are filled in first. Does not block. Raises
        MissingExtra if the class has rules and the extra `cel` is not installed, and TypeError for a rule that does
        not compile.
        """
        cls: Any = type(self)
        return _validator(cls).violations(self.to_dict(), None if old is None else old.to_dict())

    @classmethod
    def crd_name(cls) -> str:
        """The name of the definition: `plural.group`."""
        return cls.api_resource.full_name

    @classmethod
    def crd(cls) -> dict[str, Any]:
        """Return the CustomResourceDefinition as a new dict, with a structural schema made from the declared types.

        Raises TypeError, naming class and field, for a type without a schema, and for a rule that does not compile.
        """
        if not hasattr(cls, "api_resource"):
            name = cls.__name__
            raise TypeError(f"class {name} is bound to no kind: give it group=, version= and kind=, as in class "
                            f'{name}(CustomResource, group="example.com", version="v1", kind="{name}")')
        resource, version = cls.api_resource, cls._version()
        _refuse(cls, Validator(version["schema"]["openAPIV3Schema"]).rule_causes())
        options = {"annotations": dict(cls.crd_options.annotations), "labels": dict(cls.crd_options.labels)}
        return {
            "apiVersion": "apiextensions.k8s.io/v1",
            "kind": "CustomResourceDefinition",
            "metadata": {"name": cls.crd_name(), **{key: value for key, value in options.items() if value}},
            "spec": {"group": resource.group, "scope": resource.scope.value, "names": cls._names(),
                     "versions": [json_copy(version)]},
        }

    @classmethod
    def _names(cls) -> dict[str, Any]:
        resource, options = cls.api_resource, cls.crd_options
        lists = {"shortNames": list(options.short_names), "categories": list(options.categories)}
        return {"kind": resource.kind, "listKind": f"{resource.kind}List", "plural": resource.plural,
                "singular": options.singular or resource.kind.lower(),
                **{key: value for key, value in lists.items() if value}}

    @classmethod
    def _version(cls) -> dict[str, Any]:
        options, schema = cls.crd_options, cls._schema()
        _refuse(cls, schema_definition_causes(schema))
        for path in options.selectable_fields:
            if problem := resolve_field(path, schema)[1]:
                raise TypeError(f"class {cls.__name__}: selectable_fields= names {path!r}: {problem}")
        subresources: dict[str, Any] = {"status": {}} if "status" in attributes_of(cls) else {}
        if options.scale is not None:
            if not subresources:
                raise TypeError(f"class {cls.__name__}: scale= needs a status; add a field "
                                "status: MyStatus | None = None")
            subresources["scale"] = options.scale.to_dict()
        return {"name": cls.api_resource.version, "served": options.served, "storage": options.storage,
                "schema": {"openAPIV3Schema": schema}, **({"subresources": subresources} if subresources else {}),
                **options.version_parts()}

    @classmethod
    def _schema(cls) -> dict[str, Any]:
        """The root schema. The server adds apiVersion, kind and metadata. The status is set later, so it is never
        required."""
        options = cls.crd_options
        if options.schema is not None:
            return dict(options.schema)
        hints = hints_of(cls)
        found = [(attribute.key, hints[name], attribute.default) for name, attribute in attributes_of(cls).items()]
        fields = [(key, hint, None if key == "status" and default is MISSING else default)
                  for key, hint, default in found]
        style = Style(descriptions=options.describe_parts, metadata=options.embedded_metadata)
        schema = object_schema(cls, fields, Within(style=style))
        if options.doc:
            schema["description"] = options.doc
        if options.rules:
            schema["x-kubernetes-validations"] = [rule.to_dict() for rule in options.rules]
        return schema


def _refuse(cls: type, causes: list[Cause]) -> None:
    if causes:
        told = "; ".join(cause.text().removeprefix(".") for cause in causes)
        raise TypeError(f"class {cls.__name__}: the API server would refuse its schema: {told}")


@functools.cache
def _validator(cls: Any) -> Validator:
    made = Validator(cls._schema())
    _refuse(cls, made.rule_causes())
    return made


def merge_crds(crds: Iterable[dict[str, Any]], stored: str) -> dict[str, Any]:
    """Combine definitions into one definition with all versions; `stored` names the stored version, which comes first.

    Each definition, for example from `CustomResource.crd()`, must have exactly one version, and all must have the same
    group, scope and names. The metadata is copied from the definition of the stored version. The arguments are not
    changed. Raises ValueError for definitions that cannot be combined.

    >>> class Size(Struct):
    ...     size: int
    >>> class WidgetV1(CustomResource, group="example.com", version="v1", kind="Widget", storage=False):
    ...     spec: Size
    >>> class Widget(CustomResource, group="example.com", version="v2", kind="Widget"):
    ...     spec: Size
    >>> merged = merge_crds([WidgetV1.crd(), Widget.crd()], stored="v2")
    >>> [version["name"] for version in merged["spec"]["versions"]]
    ['v2', 'v1']
    """
    found = list(crds)
    if not found:
        raise ValueError("merge_crds: no definitions were given")
    versions = {}
    for crd in found:
        [*own] = crd["spec"]["versions"]
        if len(own) != 1:
            raise ValueError(f"merge_crds: {crd['metadata']['name']} has {len(own)} versions; give definitions of one "
                             "version each")
        if own[0]["name"] in versions:
            raise ValueError(f"merge_crds: two definitions have version {own[0]['name']}")
        versions[own[0]["name"]] = crd
    if stored not in versions:
        raise ValueError(f"merge_crds: no definition has the stored version {stored}; the versions are "
                         f"{', '.join(versions)}")
    root = versions[stored]
    for version, crd in versions.items():
        for part in ("group", "scope", "names"):
            if crd["spec"][part] != root["spec"][part]:
                raise ValueError(f"merge_crds: spec.{part} is {crd['spec'][part]!r} in {version}, but "
                                 f"{root['spec'][part]!r} in {stored}; it must be the same in all versions")
    ordered = [stored, *(version for version in versions if version != stored)]
    merged = [{**versions[version]["spec"]["versions"][0], "storage": version == stored} for version in ordered]
    return {**root, "spec": {**root["spec"], "versions": merged}}


def definitions_of(kinds: Iterable[type[CustomResource]]) -> list[dict[str, Any]]:
    """Return the definitions of classes, sorted by name: one definition per kind, with the versions of all its classes.
    The class with `storage=True` defines the stored version.

    Raises ValueError if a kind has several classes and not exactly one version with `storage=True`. Also raises the
    errors of `merge_crds` and `CustomResource.crd`.
    """
    found = []
    for name, group in groupby(sorted(kinds, key=lambda kind: kind.crd_name()), key=lambda kind: kind.crd_name()):
        versions = list(group)
        if len(versions) == 1:
            found.append(versions[0].crd())
            continue
        stored = [kind.api_resource.version for kind in versions if kind.crd_options.storage]
        if len(set(stored)) != 1:
            raise ValueError(f"{', '.join(kind.__name__ for kind in versions)} are versions of {name}: one must be "
                             "the stored version, and the others need storage=False")
        found.append(merge_crds([kind.crd() for kind in versions], stored[0]))
    return found
