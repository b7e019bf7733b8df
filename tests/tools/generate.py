#!/usr/bin/env python3
"""Writes the generated files of the package, data and resource classes, from pinned inputs (generators/inputs.py):

    tox run -e generate

This installs kubernetes-validate, clones missing Go repositories into .tox/sources, and replaces the files whose
content has changed. With --check nothing is written, and the exit status is 1 if a file would change. With --classes
only the resource classes are written, from the package's data files instead of the inputs.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from kubectl_runtime.apiserver.kinds.catalog import builtin_types
from kubectl_runtime.crd.parts import ATOMIC, GO_DEFAULTS
from kubectl_runtime.schema.definitions import definitions as definitions_of_the_package
from tests.tools.generators import definitions, gotypes, inputs, outputs, resourceclasses, resourcedata, resourcetext


def parts_differ(sources: Path) -> set[str]:
    """The definitions whose markers in the Go sources differ from the tables in kubectl_runtime/crd/parts.py."""
    defaults, atomic = gotypes.markers(sources)
    known = definitions_of_the_package()
    marked = {name for name, node in known.items() if node.get("x-kubernetes-map-type") == "atomic"}
    return {name for name in known if defaults.get(name) != GO_DEFAULTS.get(name)} | (
        (atomic & known.keys()) - marked) ^ (ATOMIC - marked)


def main() -> int:
    """Run the generators."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sources", type=Path, default=Path(".tox/sources"),
                        help="folder of the Go checkouts (.tox/sources); those that are missing are cloned into it")
    parser.add_argument("--check", action="store_true", help="only report which files would change")
    parser.add_argument("--classes", action="store_true", help="only the resource classes, from the package's data")
    args = parser.parse_args()
    contents: dict[Path, bytes] = {}
    try:
        if args.classes:
            schemas, types = resourcedata.schemas(), resourcedata.types()
        else:
            schemas = definitions.documents(inputs.schemas())
            types = gotypes.declarations(inputs.checkouts(args.sources))
            if differing := parts_differ(args.sources):
                print("GO_DEFAULTS and ATOMIC in kubectl_runtime/crd/parts.py differ from the Go markers of:",
                      *sorted(differing), file=sys.stderr)
                return 1
            contents = {outputs.DEFINITIONS: outputs.packed(schemas), outputs.TYPES: outputs.packed((types,))}
    except inputs.InputError as error:
        print(error, file=sys.stderr)
        return 2
    for name, text in resourcetext.modules(resourceclasses.Classes(schemas, types, builtin_types())).items():
        contents[outputs.module(name)] = text.encode()
    changed = False
    for path, content in contents.items():
        differs = outputs.differs(path, content)
        changed |= differs
        if differs and not args.check:
            path.write_bytes(content)
        state = "unchanged" if not differs else "differs" if args.check else "written"
        print(f"{path}: {state}, {len(outputs.unpacked(content))} bytes unpacked")
    return 1 if changed and args.check else 0


if __name__ == "__main__":
    sys.exit(main())
