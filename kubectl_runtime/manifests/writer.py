"""Values to YAML that reads back as it was, both by Go's rules (kubectl, the API server) and by YAML 1.1's (PyYAML).

Where either would take a text for something else, it stands in double quotes; texts of several lines are blocks.
Nothing is written as a reference to another part.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import yaml

from kubectl_runtime.manifests.scalars import TEXT, resolve

_BASE: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


class _Dumper(_BASE):  # type: ignore[misc]
    def represent_text(self, text: str) -> Any:
        plain = self.resolve(yaml.ScalarNode, text, (True, False)) == TEXT and isinstance(resolve(text), str)
        style = "|" if "\n" in text else None if plain else '"'
        return self.represent_scalar(TEXT, text, style)

    def ignore_aliases(self, _data: Any) -> bool:
        return True


_Dumper.add_representer(str, _Dumper.represent_text)


def to_yaml(value: Any, *, sort_keys: bool = True) -> str:
    """One JSON value as a YAML document, with long lines folded. Without `sort_keys`, keys stay in their order. Raises
    yaml.YAMLError for anything that is not a JSON value."""
    return documents_to_yaml([value], sort_keys=sort_keys)


def documents_to_yaml(values: Iterable[Any], *, sort_keys: bool = True, width: int = 80) -> str:
    """JSON values as YAML documents, parted by lines of ``---`` if there are several; lines are folded at `width`
    characters where YAML allows it. The rest as `to_yaml`."""
    text: str = yaml.dump_all(values, Dumper=_Dumper, sort_keys=sort_keys, allow_unicode=True,
                              default_flow_style=False, width=width)
    return text
