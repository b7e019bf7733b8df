"""What servers may say of the kinds that they serve, byte by byte: nothing of it breaks what is said well beside it."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any, ClassVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kubectl_runtime import DecodeError
from kubectl_runtime.client.api import discovery as discovery_module
from kubectl_runtime.client.api.discovery import Discovery
from kubectl_runtime.client.server import aggregated, of_version, versions_in
from kubectl_runtime.core.base.errors import DiscoveryError
from kubectl_runtime.core.meta.gvk import GroupVersionKind
from tests.client.wire_server import Peer, Serve, WireServer, answering, says, status
from tests.thoroughness import examples

NOTHING = {"kind": "APIGroupDiscoveryList", "items": []}


def entry(plural: str, **more: Any) -> dict[str, Any]:
    return {"resource": plural, "responseKind": {"kind": plural[:-1].title()}, "scope": "Namespaced", **more}


def group(name: str, *resources: Any, **more: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "versions": [{"version": "v1", "resources": list(resources), **more}]}


WHOLE = {
    "kind": "APIGroupDiscoveryList",
    "items": [group("a.io", entry("as", verbs=["get"], shortNames=["x"], singularResource="a",
                                  subresources=[{"subresource": "status"}]))]}
BROKEN: list[Any] = [
    {}, {"metadata": 5}, {"metadata": {"name": 5}}, {"metadata": {"name": "b.io"}, "versions": {}}, 5, None, "b.io",
    group("b.io", {}), group("b.io", entry("bs"), None), group("b.io", entry("bs", scope="Galaxy")),
    group("b.io", {**entry("bs"), "resource": None}), group("b.io", entry("bs", verbs="get")),
    group("b.io", entry("bs", subresources=[{}])), {"metadata": {"name": "b.io"}, "versions": [{}]}]


class TestAggregated:
    @pytest.mark.parametrize("broken", BROKEN, ids=json.dumps)
    def test_a_group_that_is_described_badly_is_left_out_and_reported_once(
            self, broken: Any, caplog: pytest.LogCaptureFixture) -> None:
        document = {"kind": "APIGroupDiscoveryList", "items": [
            group("a.io", entry("as")), broken, group("c.io", entry("cs"))]}
        answer = says(200, document)
        with WireServer(answering(says(200, NOTHING), answer, says(200, NOTHING), answer)) as server, \
                server.client() as client:
            discovery = Discovery(client)
            for _ in range(2):
                assert [kind.resource.full_name for kind in discovery.kinds(refresh=True)] == ["as.a.io", "cs.c.io"]
        warned = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
        assert len(warned) == (0 if broken == {} else 1)
        if "b.io" in str(broken) and isinstance(broken, dict):
            assert warned[0].startswith("discovery of b.io failed")

    def test_what_a_group_served_is_kept_while_its_server_is_away(self, caplog: pytest.LogCaptureFixture) -> None:
        stale = {"kind": "APIGroupDiscoveryList", "items": [group("m.io", entry("ms"), freshness="Stale")]}
        with WireServer(answering(says(200, NOTHING), says(200, stale))) as server, server.client() as client:
            assert [kind.resource.full_name for kind in Discovery(client).kinds()] == ["ms.m.io"]
        assert "discovery of m.io/v1 failed: its server does not answer" in caplog.text

    @pytest.mark.parametrize("odd", [
        {"kind": "APIGroupDiscoveryList"}, {"kind": "APIGroupDiscoveryList", "items": None},
        {"kind": "APIGroupDiscoveryList", "items": [{"metadata": None, "versions": None}]},
        {"kind": "APIGroupDiscoveryList", "items": [group("a.io", {"resource": "as"})]},
        {"kind": "APIGroupDiscoveryList", "items": [group("a.io", {**entry("as"), "responseKind": {}})]}])
    def test_what_is_absent_or_null_is_nothing(self, odd: dict[str, Any]) -> None:
        assert aggregated(json.dumps(odd).encode()) == ([], {})


class TestGroupsThatFail:
    """A server that the API server passes requests on to does not answer: what it serves is not known."""

    STALE = group("m.io", freshness="Stale")
    GROUPS: ClassVar = {"groups": [{"versions": [{"groupVersion": f"{name}.io/v1"}]} for name in "am"]}
    LISTED: ClassVar = {"resources": [{"name": "as", "kind": "A", "namespaced": True}]}

    def failing(self, how: str) -> Serve:
        def serve(peer: Peer) -> None:
            while (request := peer.receive()) is not None:
                path = request.target.partition("?")[0]
                if path == "/api":
                    peer.answer(200, NOTHING if how == "aggregated" else {"versions": []})
                elif how == "aggregated":
                    peer.answer(200, {**NOTHING, "items": [group("a.io", entry("as")), self.STALE]})
                elif path == "/apis":
                    peer.answer(200, self.GROUPS)
                elif "a.io" in path:
                    peer.answer(200, self.LISTED)
                elif how == "silent":
                    return peer.hold()
                else:
                    peer.answer(503, status(503, "ServiceUnavailable", "error trying to reach service"),
                                headers=("Retry-After: 1",))
            return None

        return serve

    @pytest.mark.parametrize("how", ["aggregated", "503", "silent"])
    def test_an_unknown_name_names_them_and_takes_no_longer(self, how: str, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(discovery_module, "GROUP_PATIENCE", 0.1)
        with WireServer(self.failing(how)) as server, server.client() as client:
            discovery = Discovery(client)
            assert discovery.resolve("as").resource.full_name == "as.a.io"
            asked = len(server.requests)
            for name in ("ms", "ms.m.io", "nothing"):
                with pytest.raises(DiscoveryError, match=rf"does not serve '{name}', as far as is known: the discovery "
                                                         r"of m.io/v1 fails now \(kubectl get apiservices") as error:
                    discovery.resolve(name)
                assert "CRD" not in str(error.value)
            with pytest.raises(DiscoveryError, match=r"M in m.io/v1, as far as is known"):
                discovery.resolve_gvk(GroupVersionKind("m.io", "v1", "M"))
            with pytest.raises(DiscoveryError, match=r"B in a.io/v1: is its CRD installed"):
                discovery.resolve_gvk(GroupVersionKind("a.io", "v1", "B"))
            assert len(server.requests) - asked == 5 * (2 if how == "aggregated" else 4)  # no request is repeated

    def test_a_group_whose_server_answers_again_is_named_no_more(self) -> None:
        stale, well = {**NOTHING, "items": [self.STALE]}, {**NOTHING, "items": [group("m.io", entry("ms"))]}
        with WireServer(answering(says(200, NOTHING), says(200, stale), says(200, NOTHING), says(200, stale),
                                  says(200, NOTHING), says(200, well))) as server, server.client() as client:
            discovery = Discovery(client)
            with pytest.raises(DiscoveryError, match=r"m.io/v1 fails now"):
                discovery.resolve("ms")
            assert discovery.resolve("ms").resource.full_name == "ms.m.io"


class TestListed:
    @pytest.mark.parametrize("document", [{}, {"kind": "Status"}, {"groups": 5}, {"groups": [{"versions": [{}]}]},
                                          {"versions": [5]}, {"groups": "a"}])
    def test_a_list_of_groups_that_is_none_is_a_decode_error_that_says_what_was_asked(
            self, document: dict[str, Any]) -> None:
        with WireServer(answering(says(200, document))) as server, server.client() as client:
            with pytest.raises(DecodeError, match="discover /api: "):
                Discovery(client).kinds()

    @pytest.mark.parametrize("resources", [
        {}, {"resources": 5}, {"resources": [{}]}, {"resources": [{"name": "bs"}]}, {"resources": [None]},
        {"resources": [{"name": 5, "kind": "B"}]}, {"resources": [{"name": "bs", "kind": "B", "verbs": "get"}]}])
    def test_a_version_that_is_described_badly_is_left_out_and_reported(
            self, resources: dict[str, Any], caplog: pytest.LogCaptureFixture) -> None:
        groups = {"groups": [{"versions": [{"groupVersion": f"{name}.io/v1"}]} for name in "ab"]}
        good = {"resources": [{"name": "as", "kind": "A", "namespaced": True}]}
        with WireServer(answering(says(200, {"versions": []}), says(200, groups), says(200, good),
                                  says(200, resources))) as server, server.client() as client:
            assert [kind.resource.full_name for kind in Discovery(client).kinds()] == ["as.a.io"]
        assert "discovery of b.io/v1 failed" in caplog.text

    @pytest.mark.parametrize("version", ["../../api/v1", "a/b/c", "", "a.io/..", "a.io/v%31"])
    def test_no_other_path_is_asked_for_however_a_version_is_called(
            self, version: str, caplog: pytest.LogCaptureFixture) -> None:
        groups = {"groups": [{"versions": [{"groupVersion": version}]}]}
        with WireServer(answering(says(200, {"versions": []}), says(200, groups),
                                  says(200, {"resources": []}))) as server, server.client() as client:
            assert Discovery(client).kinds() == ()
        assert all(part not in request.target for request in server.requests[2:] for part in ("..", "%"))
        assert f"discovery of {version} failed" in caplog.text


def mutated(whole: Any) -> st.SearchStrategy[Any]:
    """`whole`, with something else in the place of one of its parts."""
    places: list[tuple[Any, ...]] = [()]
    for path in places:
        at = whole
        for step in path:
            at = at[step]
        steps = list(at) if isinstance(at, dict) else range(len(at)) if isinstance(at, list) else ()
        places += [(*path, step) for step in steps]

    def replaced(at: Any, path: tuple[Any, ...], value: Any) -> Any:
        if not path:
            return value
        copied = dict(at) if isinstance(at, dict) else list(at)
        copied[path[0]] = replaced(at[path[0]], path[1:], value)
        return copied

    anything = st.recursive(st.none() | st.booleans() | st.integers() | st.text(max_size=5),
                            lambda part: st.lists(part, max_size=2) | st.dictionaries(st.text(max_size=5), part,
                                                                                      max_size=2), max_leaves=4)
    return st.tuples(st.sampled_from(places), anything).map(lambda drawn: replaced(whole, *drawn))


@settings(max_examples=examples(150), deadline=None)
@given(mutated(WHOLE))
def test_whatever_is_in_an_aggregated_document_it_gives_kinds_or_a_decode_error(document: Any) -> None:
    with suppress(DecodeError):
        aggregated(json.dumps(document).encode())


@settings(max_examples=examples(150), deadline=None)
@given(mutated({"resources": [{"name": "as", "kind": "A", "verbs": ["get"], "shortNames": ["a"]},
                              {"name": "as/status", "kind": "A", "namespaced": True}]}),
       mutated({"groups": [{"versions": [{"groupVersion": "a.io/v1"}]}], "versions": ["v1"]}))
def test_whatever_is_in_a_listed_document_it_gives_kinds_or_a_decode_error(resources: Any, groups: Any) -> None:
    for decode, document in ((lambda body: of_version(body, "a.io/v1"), resources), (versions_in, groups)):
        with suppress(DecodeError):
            decode(json.dumps(document).encode())
