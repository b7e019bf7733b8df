"""The walk over the pages of a list."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubectl_runtime import ApiError, ApiResource, DecodeError, ListParams
from kubectl_runtime.client.api.api_base import Page, walk
from kubectl_runtime.core.base.errors import Status
from kubectl_runtime.core.codec.views import Head, Record
from kubectl_runtime.core.meta.metav1 import ListMeta

RESOURCE = ApiResource("", "v1", "ConfigMap", "configmaps")
EXPIRED = ApiError(Status(code=410, reason="Expired", message="token expired"))


def record(name: str) -> Record:
    return Record(Head(name=name, uid=f"uid-{name}"), RESOURCE, b"{}")


class Server:
    """Lists `names` in pages; tokens are positions. `fails(n, params)` may raise for the n-th request."""

    def __init__(self, names: list[str], fails: Callable[[int, ListParams], None] = lambda n, params: None) -> None:
        self.names, self.fails = names, fails
        self.asked: list[tuple[int | None, str | None]] = []

    def fetch(self, params: ListParams) -> Page:
        self.asked.append((params.limit, params.continue_token))
        self.fails(len(self.asked), params)
        begin = int(params.continue_token or 0)
        end = begin + (params.limit or len(self.names))
        token = str(end) if end < len(self.names) else None
        return ListMeta(resource_version="7", continue_token=token), [record(name) for name in self.names[begin:end]]


def names(server: Server, limit: int | None = 2) -> list[str]:
    return [found.name for _, page in walk(server.fetch, ListParams(limit=limit), "list x") for found in page]


def test_continue_alone_says_whether_there_is_more() -> None:
    server = Server(list("abcde"))
    assert names(server) == list("abcde")
    assert server.asked == [(2, None), (2, "2"), (2, "4")]


def test_pages_are_asked_for_one_by_one() -> None:
    server = Server(list("abcde"))
    pages = walk(server.fetch, ListParams(limit=2), "list x")
    next(pages)
    assert len(server.asked) == 1


def test_without_a_limit_pages_have_five_hundred_objects() -> None:
    server = Server(["a"])
    names(server, None)
    assert server.asked == [(500, None)]


def test_an_expired_token_restarts_the_walk_and_gives_no_object_twice() -> None:
    def once(n: int, params: ListParams) -> None:
        if n == 2:
            raise EXPIRED

    server = Server(list("abcde"), once)
    assert names(server) == list("abcde")
    assert server.asked == [(2, None), (2, "2"), (2, None), (2, "2"), (2, "4")]


def test_tokens_that_expire_again_lead_to_one_list_without_pages() -> None:
    def always(n: int, params: ListParams) -> None:
        if params.continue_token:
            raise EXPIRED

    server = Server(list("abcde"), always)
    assert names(server) == list("abcde")
    assert server.asked == [(2, None), (2, "2"), (2, None), (2, "2"), (None, None)]


@pytest.mark.parametrize(("left", "pages"), [
    ("abcde", [["a", "b"], ["c", "d"], ["e"]]),  # nothing changed
    ("ab", [["a", "b"]]),  # the rest was deleted meanwhile
    ("abf", [["a", "b"], ["f"]]),
    ("", [["a", "b"]]),
])
def test_a_restart_yields_no_page_whose_objects_all_came_before(left: str, pages: list[list[str]]) -> None:
    def second(n: int, params: ListParams) -> None:
        if n == 2:
            server.names = list(left)
            raise EXPIRED

    server = Server(list("abcde"), second)
    found = [[record.name for record in page] for _, page in walk(server.fetch, ListParams(limit=2), "list x")]
    assert found == pages


def test_a_list_without_objects_is_one_empty_page() -> None:
    assert [page for _, page in walk(Server([]).fetch, ListParams(limit=2), "list x")] == [[]]


def test_a_410_without_a_token_is_the_callers() -> None:
    def at_once(n: int, params: ListParams) -> None:
        raise EXPIRED

    server = Server(["a"], at_once)
    with pytest.raises(ApiError):
        names(server)
    assert len(server.asked) == 1


def test_other_errors_pass() -> None:
    def second(n: int, params: ListParams) -> None:
        if n == 2:
            raise ApiError(Status(code=500))

    with pytest.raises(ApiError):
        names(Server(list("abc"), second))


@given(st.integers(0, 20), st.integers(1, 20))
def test_a_server_whose_tokens_go_round_is_not_asked_for_ever(before: int, circle: int) -> None:
    asked: list[ListParams] = []

    def round_and_round(params: ListParams) -> Page:
        asked.append(params)
        number = len(asked)
        return ListMeta(continue_token=f"t{number if number <= before else before + (number - before) % circle}"), []

    with pytest.raises(DecodeError, match="same continue tokens"):
        list(walk(round_and_round, ListParams(), "list x"))
    assert len(asked) <= 3 * (before + circle) + 2


@given(count=st.integers(0, 30), limit=st.integers(1, 7), expires=st.sets(st.integers(2, 12)))
def test_every_object_comes_exactly_once_whichever_tokens_expire(count: int, limit: int, expires: set[int]) -> None:
    def some(n: int, params: ListParams) -> None:
        if n in expires and params.continue_token:
            raise EXPIRED

    wanted = [f"n{number}" for number in range(count)]
    assert sorted(names(Server(wanted, some), limit)) == sorted(wanted)
