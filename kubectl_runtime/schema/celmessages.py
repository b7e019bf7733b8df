"""The types of a schema as protobuf messages, which is how the CEL implementation learns the fields of objects.

Part of cel.py, and with it the only module that imports protobuf, when the first rule is met.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

from kubectl_runtime.schema.cellibrary import OPAQUE
from kubectl_runtime.schema.celtypes import ListOf, MapOf, Message, Type

_MESSAGES = {"timestamp": ".google.protobuf.Timestamp", "duration": ".google.protobuf.Duration",
             "dyn": ".google.protobuf.Value"}
_NUMBERS = {"double": 1, "int": 3, "bool": 8, "string": 9, "bytes": 12}
_MESSAGE, _OPTIONAL, _REPEATED = 11, 1, 3
_RESERVED_NUMBERS = range(19000, 20000)  # protobuf keeps these field numbers for itself


def pool_of(types: Iterable[tuple[str, Message]]) -> Any:
    """A descriptor pool of messages, with those of the library; proto2, where names may differ by an underscore."""
    from google.protobuf import (
        descriptor_pb2,
        descriptor_pool,
        duration_pb2,
        struct_pb2,
        timestamp_pb2,
        wrappers_pb2,
    )
    pool = descriptor_pool.DescriptorPool()
    for known in (struct_pb2, timestamp_pb2, duration_pb2, wrappers_pb2):
        pool.AddSerializedFile(known.DESCRIPTOR.serialized_pb)
    file = descriptor_pb2.FileDescriptorProto(name="kubernetes.proto", package="kubernetes", syntax="proto2")
    file.dependency.extend(["google/protobuf/struct.proto", "google/protobuf/timestamp.proto",
                            "google/protobuf/duration.proto"])
    for name in OPAQUE:
        file.message_type.add(name=name).field.add(name="value", number=1, type=9, label=_OPTIONAL)
    for name, message in types:
        _fill(file.message_type.add(name=name), message, f".kubernetes.{name}")
    pool.AddSerializedFile(file.SerializeToString())
    return pool


def _fill(target: Any, message: Message, path: str) -> None:
    for number, (name, declared) in enumerate(message.fields.items(), 1):
        field = target.field.add(name=name, number=number + (1000 if number >= 19000 else 0), label=_OPTIONAL)
        if isinstance(declared, ListOf):
            field.label = _REPEATED
            _set_type(field, declared.element, target, path, f"Item{number}")
        elif isinstance(declared, MapOf):
            _set_map(field, declared, target, path)
        else:
            _set_type(field, declared, target, path, f"Object{number}")


def _set_type(field: Any, declared: Type, target: Any, path: str, name: str) -> None:
    """Lists of lists and the like have no field of their own in messages: inside an object they are not typed."""
    if isinstance(declared, Message):
        _fill(target.nested_type.add(name=name), declared, f"{path}.{name}")
        field.type, field.type_name = _MESSAGE, f"{path}.{name}"
    elif isinstance(declared, str) and declared in _NUMBERS:
        field.type = _NUMBERS[declared]
    else:
        field.type, field.type_name = _MESSAGE, _MESSAGES.get(str(declared), _MESSAGES["dyn"])


def _set_map(field: Any, declared: MapOf, target: Any, path: str) -> None:
    name = "".join(part[:1].upper() + part[1:] for part in field.name.split("_")) + "Entry"
    if any(known.name == name for known in target.nested_type):
        field.type, field.type_name = _MESSAGE, ".google.protobuf.Struct"
        return
    entry = target.nested_type.add(name=name)
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, type=9, label=_OPTIONAL)
    _set_type(entry.field.add(name="value", number=2, label=_OPTIONAL), declared.element, target, path,
              f"Value{field.number}")
    field.label, field.type, field.type_name = _REPEATED, _MESSAGE, f"{path}.{name}"


def _number(index: int) -> int:
    return index + len(_RESERVED_NUMBERS) if index >= _RESERVED_NUMBERS.start else index


def opaque_classes(pool: Any) -> dict[str, Any]:
    """The message class of each of Kubernetes' opaque types, by name."""
    from google.protobuf import message_factory
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"kubernetes.{name}")) for name in OPAQUE}


def timestamp(moment: datetime) -> Any:
    """A moment as rules take it."""
    from google.protobuf.timestamp_pb2 import Timestamp
    found = Timestamp()
    found.FromDatetime(moment)
    return found


def duration(amount: timedelta) -> Any:
    """An amount of time as rules take it."""
    from google.protobuf.duration_pb2 import Duration
    found = Duration()
    found.FromTimedelta(amount)
    return found
