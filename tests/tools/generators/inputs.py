"""What the generators read, pinned: one release of a Python package, one commit of each of four Go repositories.

For another version of Kubernetes change the pins here and that of tox's environment ``generate``, then run it. What the
pins do not name is refused: a generator that reads something else would write something else without a word.
"""

from __future__ import annotations

import json
import subprocess
from importlib import metadata, resources
from pathlib import Path
from typing import Any

KUBERNETES = "1.36.2"
COMMITS = {  # of the tag kubernetes-1.36.2
    "api": "2f4cefdbec4e3c3cd76d15844e90c679419f4dc7",
    "apimachinery": "ae3f98eb01e4bebb7d90db742081949c5c4b1ef7",
    "apiextensions-apiserver": "e4eb159421d265e49845a45cea25d6d559f4d08b",
    "kube-aggregator": "af2b349648d5bbb78b2d42ec95a6b19ae4231401",
}
ORIGIN = "https://github.com/kubernetes/"

SCHEMAS_PACKAGE = "kubernetes-validate"
SCHEMAS_VERSION = "1.36.0"
SCHEMAS_FILE = "kubernetes-json-schema/v1.36.0-local/_definitions.json"


class InputError(Exception):
    """An input is missing or is not the pinned one."""


def schemas() -> dict[str, dict[str, Any]]:
    """The definitions by name, as the package kubernetes-validate holds them.

    Raises InputError if the package is not installed in the pinned version.
    """
    try:
        found = metadata.version(SCHEMAS_PACKAGE)
    except metadata.PackageNotFoundError:
        found = "none"
    if found != SCHEMAS_VERSION:
        raise InputError(f"{SCHEMAS_PACKAGE}=={SCHEMAS_VERSION} is needed, installed is {found}; run tox -e generate")
    text = resources.files("kubernetes_validate").joinpath(SCHEMAS_FILE).read_text(encoding="utf-8")
    definitions: dict[str, dict[str, Any]] = json.loads(text)["$defs"]
    return definitions


def checkouts(folder: Path) -> Path:
    """The folder, with a clean checkout of each Go repository at its commit; what is missing is cloned.

    Raises InputError for a checkout at another commit or with changes, and where git fails.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name, commit in COMMITS.items():
        if not (checkout := folder / name).exists():
            git(folder, "clone", "-q", "--depth", "1", "--branch", f"kubernetes-{KUBERNETES}", ORIGIN + name, name)
        verify(checkout, commit)
    return folder


def verify(checkout: Path, commit: str) -> None:
    """Raises InputError unless a folder is the top of a clean checkout of a commit."""
    if not (checkout / ".git").exists():
        raise InputError(f"{checkout} is not a git checkout; remove it, and it is cloned")
    head = git(checkout, "rev-parse", "HEAD")
    if head != commit:
        raise InputError(f"{checkout} is at {head}, the pinned commit is {commit}; remove it, and that one is cloned")
    if changes := git(checkout, "status", "--porcelain"):
        raise InputError(f"{checkout} has changes:\n{changes}")


def git(folder: Path, *arguments: str) -> str:
    """What a git command that runs in a folder prints. Raises InputError with its message if it fails."""
    done = subprocess.run(["git", "-c", "advice.detachedHead=false", *arguments], cwd=folder, capture_output=True,
                          text=True, check=False)
    if done.returncode:
        raise InputError(f"git {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout.strip()
