"""Settings of the whole suite."""

from __future__ import annotations

import gc
import importlib.util
import logging
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from importlib.abc import MetaPathFinder
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from tests.thoroughness import examples

# How long an example takes says more of the machine than of the code: a busy one fails no test.
settings.register_profile("whole-suite", deadline=None, max_examples=examples(100))
settings.load_profile("whole-suite")


# A shell starts its background jobs with SIGINT ignored, and every program that a test starts would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


if os.environ.get("COMPRESS_ALL") == "1":  # embedded servers then compress each answer to a client that accepts gzip
    from kubectl_runtime.apiserver import encoding

    encoding.COMPRESS_ABOVE = 0


class _AskedForCel(MetaPathFinder):
    """Notes that somebody wants cel-expr-python, which is not there: it has no wheel for a Python without the GIL."""

    def __init__(self) -> None:
        self.asked = False
        self.failures: list[BaseException] = []
        """What came of it: a fixture of several tests raises it in each."""

    def find_spec(self, fullname: str, path: object, target: object = None) -> None:
        self.asked |= fullname.partition(".")[0] == "cel_expr_python"


_cel = _AskedForCel()
if importlib.util.find_spec("cel_expr_python") is None:
    sys.meta_path.append(_cel)


PROXY_KIND = os.environ.get("KUBE_TEST_PROXY")
_LEVELS = pytest.StashKey[dict[str, int]]()


def _levels(package: str = "kubectl_runtime") -> dict[str, int]:
    """Those of a package's loggers that have one."""
    return {name: logger.level for name, logger in [*logging.root.manager.loggerDict.items()]
            if name.startswith(package) and isinstance(logger, logging.Logger) and logger.level}


def _set_levels(found: dict[str, int], wanted: dict[str, int]) -> None:
    for name in found.keys() | wanted.keys():
        logging.getLogger(name).setLevel(wanted.get(name, logging.NOTSET))


@pytest.fixture
def logs_as_before() -> Iterator[None]:
    """Puts levels and the root's handlers back, for tests of what sets up logs."""
    root, levels = logging.getLogger(), _levels("")
    handlers, level = list(root.handlers), root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    _set_levels(_levels(""), levels)


def pytest_collection_finish() -> None:
    """What is there by now, the tests themselves above all, stays to the end: 400 MiB that no collection of a test has
    to look through, which takes half a second."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Iterator[None]:
    _cel.asked = False
    item.stash[_LEVELS] = _levels()
    if PROXY_KIND and (direct := item.get_closest_marker("direct")):
        pytest.skip(f"about a connection without a proxy: {direct.args[0]}")
    yield from _skipped_where_rules_cannot_be_evaluated()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Iterator[None]:
    """What a test does to the levels of logs, it undoes: in whichever order tests run, the next one finds them as they
    are."""
    yield
    before, after = item.stash[_LEVELS], _levels()
    _set_levels(after, before)
    assert after == before, "it leaves other levels of logs than it found"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Iterator[None]:
    yield from _skipped_where_rules_cannot_be_evaluated()


def _skipped_where_rules_cannot_be_evaluated() -> Iterator[None]:
    try:
        yield
    except (Exception, pytest.fail.Exception) as error:
        if _cel.asked or any(error is known for known in _cel.failures):
            _cel.failures.append(error)
            pytest.skip("it evaluates rules in CEL, and cel-expr-python is not installed")
        raise


@pytest.fixture(scope="session", autouse=True)
def _types_are_checked_from_one_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    """What programs of the tests share, the library above all, is analysed once a session."""
    os.environ["MYPY_CACHE_DIR"] = str(tmp_path_factory.getbasetemp() / "mypy")


@pytest.fixture(scope="session", autouse=True)
def _programs_compile_what_they_import_once(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Where nothing may be written beside the sources, each program would compile the library and its packages anew.

    The cache is that of the session, and one for all processes of xdist: a file of it is written whole or not at all.
    """
    if os.environ.pop("PYTHONDONTWRITEBYTECODE", None):
        base = tmp_path_factory.getbasetemp()
        shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
        os.environ["PYTHONPYCACHEPREFIX"] = str(shared / "bytecode")


_OF_WAYS = re.compile(r"wire/test_(deadlines|proxies)\.py")
"""Tests that are about the way to a server, and choose it themselves."""


@pytest.fixture(scope="session", autouse=True)
def _everything_goes_through_a_proxy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """With KUBE_TEST_PROXY=http, https or socks5 each client of the suite that has no proxy reaches its server, over
    real sockets, through one of that kind, whose threads, files and sockets are those of another process. Programs that
    tests start are on their own.

    Tests marked `direct` are skipped then: what they say of the server, they would find at the proxy instead."""
    if not PROXY_KIND:
        yield
        return
    from kubectl_runtime.client.wire.carrier import ApiAdapter

    made, trusted = ApiAdapter.__init__, tmp_path_factory.mktemp("proxy") / "ca.pem"
    command = [sys.executable, "-m", "tests.client.proxies", PROXY_KIND, str(trusted)]
    with subprocess.Popen(command, cwd=Path(__file__).parents[1], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          text=True) as proxy, pytest.MonkeyPatch.context() as patch:
        url = proxy.stdout.readline().strip() if proxy.stdout else ""
        assert url
        if PROXY_KIND == "https":
            os.environ["SSL_CERT_FILE"] = str(trusted)

        def through_it(adapter: ApiAdapter, base_url: str, **options: Any) -> None:
            if not _OF_WAYS.search(os.environ.get("PYTEST_CURRENT_TEST", "")):
                options["proxy"] = options.get("proxy") or url
            made(adapter, base_url, **options)

        patch.setattr(ApiAdapter, "__init__", through_it)
        yield
