"""What a Manager takes from around it, where its program says nothing."""
from __future__ import annotations

import inspect
from collections.abc import Iterator

import pytest

from kubectl_runtime import Client, Config, LeaderElection, Manager, RequestError
from kubectl_runtime.manager.manager import ManagerDefaults, manager_defaults
from kubectl_runtime.runtime.observe.debug import DebugPage


@pytest.fixture
def client() -> Iterator[Client]:
    with Client(Config(cluster_url="http://127.0.0.1:1")) as client:
        yield client


def test_what_is_not_said_is_taken_and_what_is_said_is_kept(client: Client) -> None:
    given, own = LeaderElection("given"), LeaderElection("own")
    with manager_defaults(ManagerDefaults(given, "127.0.0.1:9090")):
        assert (Manager(client).leader, Manager(client).serve) == (given, "127.0.0.1:9090")
        assert Manager(client, leader=own).leader is own
        assert Manager(client, serve=":8080").serve == ":8080"  # equal to the default, and said
        assert Manager(client, serve=None).serve is None


def test_they_hold_in_their_block_only(client: Client) -> None:
    with pytest.raises(ZeroDivisionError), manager_defaults(ManagerDefaults(serve=None)):
        assert Manager(client).serve is None
        raise ZeroDivisionError
    assert Manager(client).serve == ":8080"


def test_the_signature_shows_the_default_as_it_is() -> None:
    assert repr(inspect.signature(Manager).parameters["serve"].default) == "':8080'"


def test_a_page_that_is_given_stands_in_only_where_the_program_says_nothing(client: Client) -> None:
    assert Manager(client).debug == DebugPage()
    for given in (None, DebugPage(details=True)):
        with manager_defaults(ManagerDefaults(debug=given)):
            assert Manager(client).debug == given
            assert Manager(client, debug=DebugPage()).debug == DebugPage()  # equal to the default, and said
            assert Manager(client, debug=DebugPage(remote=True)).debug == DebugPage(remote=True)
            assert Manager(client, debug=None).debug is None
    with pytest.raises(RequestError, match="debug=True is not a DebugPage"):
        Manager(client, debug=True)  # type: ignore[arg-type]
