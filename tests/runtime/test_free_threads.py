"""Without the GIL: no module turns it on, and many threads at once break nothing, with the GIL or without."""
from __future__ import annotations

import subprocess
import sys
import sysconfig

import pytest

from tests.soak import thread_stress

EVERYTHING = """
import pkgutil, sys
import kubectl_runtime
from kubectl_runtime.core.base.errors import MissingExtra
for found in pkgutil.walk_packages(kubectl_runtime.__path__, "kubectl_runtime."):
    if not found.name.endswith("__main__"):
        try:
            __import__(found.name)
        except MissingExtra:  # cel-expr-python has no wheel there
            pass
import cryptography.x509, kubernetes.client, opentelemetry.sdk.trace, pydantic, websocket, yaml
assert not sys._is_gil_enabled()
"""


@pytest.mark.skipif(not sysconfig.get_config_var("Py_GIL_DISABLED"), reason="this Python always has the GIL")
def test_no_module_and_no_dependency_turns_the_gil_on() -> None:
    done = subprocess.run([sys.executable, "-W", "error::RuntimeWarning", "-c", EVERYTHING], capture_output=True,
                          text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr


def test_many_threads_at_everything_break_nothing() -> None:
    result = thread_stress.run(2, 1)
    assert result["wrong"] == []
    assert set(result["steps"]) == {"publisher", "queue", "runs of left", "runs of right", "store feeder",
                                    "store reader", "store that comes and goes", "writer"}
    assert min(result["steps"].values()) > 0
