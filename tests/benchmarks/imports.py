"""What importing costs: seconds of processor time, the least of several new interpreters. Prints one JSON line.

    python tests/benchmarks/imports.py [RUNS]      default 7

Budget: 0.08 s for `import kubectl_runtime`, 0.20 s with a client made.
"""
from __future__ import annotations

import json
import subprocess
import sys

TIMED = "import time; begin = time.process_time(); {}; print(time.process_time() - begin)"
CASES = {
    "facade_s": "import kubectl_runtime",
    "client_s": "from kubectl_runtime import Api, Client, Config; Client(Config(cluster_url='http://127.0.0.1:1'))",
    "controller_s": "from kubectl_runtime import Api, Client, Config, Controller",
}


def least(code: str, runs: int) -> float:
    command = [sys.executable, "-c", TIMED.format(code)]
    return min(float(subprocess.run(command, capture_output=True, text=True, check=True).stdout) for _ in range(runs))


def main(runs: int = 7) -> None:
    print(json.dumps({"benchmark": "imports", **{name: round(least(code, runs), 3) for name, code in CASES.items()}}))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
