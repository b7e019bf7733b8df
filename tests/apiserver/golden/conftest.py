"""The embedded servers that the recorded vectors run against."""

from __future__ import annotations

import pytest

from tests.tools.recorder.embedded import GoldenServers


@pytest.fixture(scope="module")
def golden(request, tmp_path_factory):
    """The servers, with all vectors that this run asks for already under way."""
    with GoldenServers(tmp_path_factory.mktemp("golden")) as servers:
        for item in request.session.items:
            params = getattr(getattr(item, "callspec", None), "params", {})
            if "vector" in params and "label" in params:
                servers.submit(params["label"], params["vector"])
        yield servers
