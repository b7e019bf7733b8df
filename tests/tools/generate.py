#!/usr/bin/env python3
"""Writes the data files of the package anew from their pinned inputs (generators/inputs.py):

    tox run -e generate

That installs kubernetes-validate, clones the Go repositories into .tox/sources where they are not there yet, and
replaces the files whose content has changed. With --check nothing is written, and the exit status is 1 if a file
would be.
"""

from __future__ import annotations

import argparse
import gzip
import sys
from pathlib import Path

from tests.tools.generators import definitions, gotypes, inputs, outputs


def main() -> int:
    """Run the generators."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sources", type=Path, default=Path(".tox/sources"),
                        help="folder of the Go checkouts (.tox/sources); those that are missing are cloned into it")
    parser.add_argument("--check", action="store_true", help="only tell which files would change")
    args = parser.parse_args()
    try:
        contents = {
            outputs.DEFINITIONS: outputs.packed(definitions.documents(inputs.schemas())),
            outputs.TYPES: outputs.packed((gotypes.declarations(inputs.checkouts(args.sources)),)),
        }
    except inputs.InputError as error:
        print(error, file=sys.stderr)
        return 2
    changed = False
    for path, content in contents.items():
        differs = outputs.differs(path, content)
        changed |= differs
        if differs and not args.check:
            path.write_bytes(content)
        state = "unchanged" if not differs else "differs" if args.check else "written"
        print(f"{path}: {state}, {len(gzip.decompress(content))} bytes unpacked")
    return 1 if changed and args.check else 0


if __name__ == "__main__":
    sys.exit(main())
