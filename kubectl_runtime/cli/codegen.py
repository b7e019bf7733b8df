"""`kubectl-runtime codegen FILE...`: prints a typed Python module for third-party CustomResourceDefinitions.

    kubectl get crd certificates.cert-manager.io -o yaml | kubectl-runtime codegen - > certificates.py

Objects of other kinds in the files are ignored.
"""
from __future__ import annotations

import argparse
from pathlib import Path

from kubectl_runtime.cli.places import CommandError, print_utf8
from kubectl_runtime.crd.codegen import CodegenError, module_of


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of the command."""
    parser.add_argument("files", nargs="+", metavar="FILE", help="a file or folder with CustomResourceDefinitions; - "
                        "is standard input")
    parser.add_argument("--strict-enums", action="store_true", help="turn string enums into Literals, so that a type "
                        "checker knows their values; an object with another value then fails to decode")
    parser.add_argument("--version", metavar="VERSION", help="the version of the kinds (default: the stored version)")


def run(options: argparse.Namespace) -> int:
    """Print the module and return the exit status. Raises CommandError."""
    print_utf8(_module(options.files, options.version, strict_enums=options.strict_enums))
    return 0


def _module(files: list[str], version: str | None, *, strict_enums: bool) -> str:
    from kubectl_runtime.manifests.documents import read_objects
    from kubectl_runtime.manifests.scalars import ManifestError

    try:
        found = [content for file in files for content, _ in read_objects(file if file == "-" else Path(file))
                 if content.get("kind") == "CustomResourceDefinition"]
        return module_of(found, version, strict_enums=strict_enums)
    except (OSError, ManifestError) as error:
        raise CommandError(str(error)) from None
    except CodegenError as error:
        raise CommandError(f"{', '.join(files)}: {error}") from None
