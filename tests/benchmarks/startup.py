"""What a client from a kubeconfig costs in a new process: seconds of processor time and MiB, the least of several runs.
Prints one JSON line.

    python tests/benchmarks/startup.py [RUNS]      default 7

Each kubeconfig is tried: with a token, a client certificate (where cryptography can make one), an exec plugin. `*_s` is
the whole process, the interpreter's own start included, and no call; `*_mib` what the process has beyond a bare
interpreter. Budget: 0.20 s and 40 MiB.
"""
from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

CODE = """
import time

def memory():  # of this process alone: getrusage's peak begins with that of the parent
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) / 1024

before = memory()
from kubectl_runtime import Client
client = Client.try_default()
import sys
print(time.process_time(), memory() - before, *{"kubernetes", "requests", "urllib3"} & set(sys.modules))
"""
EXEC = {"apiVersion": "client.authentication.k8s.io/v1", "command": "/bin/true", "interactiveMode": "Never"}


def users() -> dict[str, dict[str, object]]:
    found: dict[str, dict[str, object]] = {"token": {"token": "t"}, "exec": {"exec": EXEC}}
    try:
        from kubectl_runtime.certificates.authority import Authority

        own = Authority().client("jane")
    except ImportError:
        return found
    encoded = {"client-certificate-data": own.certificate, "client-key-data": own.key}
    return {**found, "certificate": {key: base64.b64encode(value).decode() for key, value in encoded.items()}}


def kubeconfig(user: dict[str, object]) -> str:
    # As kubectl writes it: YAML, not JSON, which would be read without a YAML parser.
    lines = [f"      {key}: {json.dumps(value)}" for key, value in user.items()]
    return "\n".join((
        "apiVersion: v1", "kind: Config", "current-context: c",
        "contexts:", "- name: c", "  context:", "    cluster: k", "    user: u",
        "clusters:", "- name: k", "  cluster:", "    server: https://127.0.0.1:1",
        "users:", "- name: u", "  user:", *lines)) + "\n"


def measured(path: Path, runs: int) -> tuple[float, float]:
    environ = {**os.environ, "KUBECONFIG": str(path), "PYTHONDONTWRITEBYTECODE": ""}  # as installed: compiled once
    lines = [subprocess.run([sys.executable, "-c", CODE], capture_output=True, text=True, check=True,
                            env=environ).stdout.split() for _ in range(runs)]
    assert all(len(line) == 2 for line in lines), f"imported before the first call: {lines[0][2:]}"
    return min(float(line[0]) for line in lines), min(float(line[1]) for line in lines)


def main(runs: int = 7) -> None:
    figures: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, user in users().items():
            path = Path(folder, name)
            path.write_text(kubeconfig(user))
            cpu, memory = measured(path, runs)
            figures |= {f"{name}_s": round(cpu, 3), f"{name}_mib": round(memory, 1)}
    print(json.dumps({"benchmark": "startup", **figures}))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
