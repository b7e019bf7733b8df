"""`python -m kubectl_runtime` is the `kubectl-runtime` command."""
from __future__ import annotations

import sys

from kubectl_runtime.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
