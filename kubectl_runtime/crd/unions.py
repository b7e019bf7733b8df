"""Unions of tagged Structs as one structural object: all properties side by side, one branch per tag.

A branch names its tag and what it requires. The defaults of the members' fields are left to the reader: the server
would fill the default of one member into an object of another.
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

Schema = dict[str, Any]


def is_tagged(cls: Any) -> bool:
    """Whether a class is a Struct with a tag."""
    return isinstance(cls, type) and issubclass(cls, msgspec.Struct) and cls.__struct_config__.tag is not None


def tagged_union(members: Sequence[tuple[Any, Schema]], where: str) -> Schema:
    """The schema of a union of tagged Structs, each given with its own schema (without the tag).

    Raises TypeError where two members declare one key differently, or have their tags in different fields.
    """
    tag_fields = {cls.__struct_config__.tag_field for cls, _ in members}
    if len(tag_fields) > 1:
        raise TypeError(f"{where}: the members of a union must have their tag in one field, not in "
                        f"{', '.join(sorted(tag_fields))}: give them the same tag_field=")
    [tag_field] = tag_fields
    tags = [cls.__struct_config__.tag for cls, _ in members]
    kind = "string" if isinstance(tags[0], str) else "integer"
    properties: dict[str, Any] = {tag_field: {"type": kind, "enum": tags}}
    branches = []
    for cls, schema in members:
        for key, node in schema.get("properties", {}).items():
            shared = {name: value for name, value in node.items() if name != "default"}
            if properties.setdefault(key, shared) != shared:
                raise TypeError(f"{where}: {key} is declared differently by {cls.__name__} and another member of the "
                                "union, which a structural schema cannot say: give one of them another name")
        branches.append({"properties": {tag_field: {"enum": [cls.__struct_config__.tag]}},
                         "required": [tag_field, *schema.get("required", ())]})
    description = "\n\n".join(f"{tag}: {schema['description']}" for tag, (_, schema) in zip(tags, members, strict=True)
                              if schema.get("description"))
    return {"type": "object", **({"description": description} if description else {}), "properties": properties,
            "required": [tag_field], **({"oneOf": branches} if len(branches) > 1 else
                                        {"required": branches[0]["required"]})}
