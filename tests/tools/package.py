#!/usr/bin/env python3
"""Builds the package as it is released, and uses it as whoever installs it does:

    tox run -e package              wheel and source archive stay in .tox/package/dist

1. Both are built, the wheel from the unpacked source archive, so that nothing is missing there.
2. `twine check --strict`: PyPI will take and show them.
3. Data files are in both, `py.typed` among them, and neither tests nor tools.
4. In an empty environment with nothing but the wheel: each public name can be imported, the command answers, the
   example in the repository plays its demo, and without the extras nothing of them is there.
5. A program of a user is type-checked against the installed package.
"""
from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
AT_THE_ROOT = {"CHANGELOG.md", "LICENSE", "MANIFEST.in", "PKG-INFO", "README.md", "pyproject.toml", "setup.cfg"}
"""Of the source archive."""
NAMES = """
import importlib.util
import kubectl_runtime
from kubectl_runtime.facade import TOPICS
for module in (kubectl_runtime, *(importlib.import_module(f"kubectl_runtime.{topic}") for topic in TOPICS)):
    missing = [name for name in module.__all__ if getattr(module, name) is None]
    assert not missing, missing
extras = [name for name in ("cryptography", "cel_expr_python", "pytest") if importlib.util.find_spec(name)]
assert not extras, f"an empty environment has {extras}"
assert "site-packages" in kubectl_runtime.__file__, kubectl_runtime.__file__
print(kubectl_runtime.__version__)
"""


def run(*command: str | Path, cwd: Path) -> str:
    """What it prints; ends the program where it fails."""
    print("$", *command, flush=True)
    done = subprocess.run([str(part) for part in command], cwd=cwd, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          text=True, check=False)
    if done.returncode:
        sys.exit(f"{done.stdout}\nended with {done.returncode}")
    return done.stdout


def built(place: Path) -> tuple[Path, Path]:
    """The wheel and the source archive."""
    run(sys.executable, "-m", "build", "--outdir", place / "dist", ROOT, cwd=place)
    run(sys.executable, "-m", "twine", "check", "--strict", *sorted((place / "dist").iterdir()), cwd=place)
    (wheel,), (archive,) = (place / "dist").glob("*.whl"), (place / "dist").glob("*.tar.gz")
    return wheel, archive


def check_contents(wheel: Path, archive: Path) -> None:
    """Everything in the package's folders is in both, `py.typed` and data included, and nothing else but what describes
    it and how to build it."""
    names = zipfile.ZipFile(wheel).namelist()
    files = {path.relative_to(ROOT).as_posix() for path in (ROOT / "kubectl_runtime").rglob("*")
             if path.is_file() and "__pycache__" not in path.parts}
    if missing := sorted({"kubectl_runtime/py.typed", *files} - set(names)):
        sys.exit(f"the wheel lacks {missing}: a file that is no module has to be named in setup.cfg, package_data")
    foreign = [name for name in names if not name.startswith(("kubectl_runtime/", "kubectl_runtime-"))]
    if foreign:
        sys.exit(f"the wheel has {foreign}")
    with tarfile.open(archive) as opened:
        packed = {member.name.partition("/")[2] for member in opened.getmembers() if member.isfile()}
    if missing := sorted({*files, *AT_THE_ROOT} - packed):
        sys.exit(f"the source archive lacks {missing}")
    if foreign := sorted(name for name in packed - AT_THE_ROOT
                         if not name.startswith(("kubectl_runtime/", "kubectl_runtime.egg-info/"))):
        sys.exit(f"the source archive has {foreign}: MANIFEST.in says what is left out")


def check_use(wheel: Path, place: Path) -> None:
    environment = place / "empty"
    venv.create(environment, clear=True, with_pip=True)
    programs = environment / ("Scripts" if sys.platform == "win32" else "bin")
    run(programs / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", wheel, cwd=place)
    version = run(programs / "python", "-I", "-c", NAMES, cwd=place).strip()
    assert wheel.name.startswith(f"kubectl_runtime-{version}-"), (wheel.name, version)
    assert version in run(programs / "kubectl-runtime", "--version", cwd=place)
    assert "top" in run(programs / "kubectl_complete-runtime", "t", cwd=place)
    examples = place / "examples"
    shutil.copytree(ROOT / "examples", examples, dirs_exist_ok=True)
    run(programs / "python", "configmapgen_controller.py", "--demo", cwd=examples)
    run(sys.executable, "-m", "mypy", "--strict", "--python-executable", programs / "python",
        "configmapgen_controller.py", cwd=examples)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, help="an empty folder, or one of an earlier run, which is emptied")
    place = parser.parse_args().folder.resolve()
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    wheel, archive = built(place)
    check_contents(wheel, archive)
    check_use(wheel, place)
    print(f"{wheel.name} is good")
    return 0


if __name__ == "__main__":
    sys.exit(main())
