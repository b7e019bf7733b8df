"""What classes and functions declare, also where a name in it does not exist yet.

Up to Python 3.13 an annotation is a value, or text under `from __future__ import annotations`. From 3.14 on it is
evaluated when somebody asks for it, which raises NameError for a name that comes later in the module or exists for type
checkers only. Asked as here, such an annotation is a `ForwardRef`, which `typing.get_type_hints` resolves later.
"""
from __future__ import annotations

import inspect
import sys
from typing import Any

_FORMAT: dict[str, Any] = {}
_SIGNATURE_FORMAT: dict[str, Any] = {}
if sys.version_info >= (3, 14):
    from annotationlib import Format

    _FORMAT = {"format": Format.FORWARDREF}
    _SIGNATURE_FORMAT = {"annotation_format": Format.FORWARDREF}


def annotations_of(cls: type) -> dict[str, Any]:
    """Name -> annotation, of the class itself and not of its bases: a type, text, or a `ForwardRef`. A new dict."""
    return inspect.get_annotations(cls, **_FORMAT)


def signature_of(function: Any) -> inspect.Signature:
    """The parameters of something that can be called. Raises TypeError for what cannot, ValueError when Python does not
    know them (some built-in functions)."""
    return inspect.signature(function, **_SIGNATURE_FORMAT)
