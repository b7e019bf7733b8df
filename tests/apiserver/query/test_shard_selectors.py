"""The embedded server's answers to shardSelector, beside those that were recorded."""
from __future__ import annotations

import pytest

from kubectl_runtime import Api, ListParams
from kubectl_runtime.apiserver.errors import StatusError
from kubectl_runtime.apiserver.query import parse_shards
from kubectl_runtime.errors import RequestError
from kubectl_runtime.params import DeleteParams, ShardSelector, WatchParams
from kubectl_runtime.resources import ConfigMap
from kubectl_runtime.testing import ApiServer
from kubectl_runtime.testing.asking import feature_gates

UID = "shardRange(object.metadata.uid, '0x0000000000000000', '0x8000000000000000')"


@pytest.mark.parametrize(("text", "said"), [
    ("'x'", "unexpected expression kind 5"), ("object.metadata.uid", "unexpected expression kind 7"),
    (UID + " ||", "syntax error"), (UID + ")", "syntax error"), ("(", "syntax error"), (UID[:-1], "syntax error"),
    (UID.replace("'0x8", "0x8"), "syntax error"), ("shardRange()", "requires exactly 3 arguments, got 0"),
    (UID.replace("0x8000000000000000", "0x20000000000000000"), "must be a 0x-prefixed 16-digit hex value"),
    (UID.replace("0x8000000000000000", "0x800000000000000g"), 'invalid hex character "g"'),
    ("a.shardRange(x, y, z)", 'unsupported function "shardRange"'), ("\x00", "syntax error"), ("||" * 5000, "syntax"),
    ("shardRange(" * 5000, "syntax error")])
def test_malformed_ones_are_refused(text: str, said: str) -> None:
    with pytest.raises(StatusError, match="invalid shard selector: ") as raised:
        parse_shards(text)
    assert raised.value.code == 500
    assert said in str(raised.value)


@pytest.mark.parametrize("text", [UID, UID.replace(" ", ""), UID.replace("'", '"'), f"\t{UID}||{UID}  "])
def test_blanks_and_quotes_make_no_difference(text: str) -> None:
    found = parse_shards(text)
    assert found is not None
    assert found.ranges[0] == (0, 1 << 63)


def objects(server: ApiServer, count: int = 30) -> Api[ConfigMap]:
    server.load([{"apiVersion": "v1", "kind": "ConfigMap",
                  "metadata": {"name": f"m{n}", "namespace": "abcde"[n % 5] + "-team"}} for n in range(count)])
    return Api.all(server.client(), ConfigMap)


@pytest.mark.parametrize("gate", [True, False])
@pytest.mark.parametrize("by", ["uid", "namespace"])
def test_lists_and_watches_are_divided_whether_the_server_helps_or_not(gate: bool, by: str) -> None:
    with ApiServer(feature_gates={"ShardedListAndWatch": gate}, seed=1) as server:
        maps = objects(server)
        with maps.client:
            part = ShardSelector.part(by, 1, 3)  # type: ignore[arg-type]
            wanted = {one.name for one in maps.list() if part.matches(one.uid, one.namespace)}
            assert 0 < len(wanted) < 30
            assert {one.name for one in maps.list(ListParams(shard=part))} == wanted
            assert {one.name for one in maps.list_all(ListParams(shard=part, limit=7))} == wanted
            sent = maps.list_page(ListParams(shard=part))[1]
            assert len(sent) == (len(wanted) if gate else 30)
            seen = {event.obj.name for event in maps.watch(WatchParams(shard=part, timeout=1)) if event.obj is not None}
            assert seen == wanted


def test_a_collection_is_not_deleted_by_a_selector_that_a_server_may_ignore() -> None:
    with ApiServer() as server:
        maps = objects(server)
        with maps.client:
            with pytest.raises(RequestError, match="takes no shard="):
                maps.delete_collection(DeleteParams(), ListParams(shard=ShardSelector.part("uid", 0, 2)))
            assert len(maps.list()) == 30


@pytest.mark.parametrize("gates", [{"Sharded": True}, {"ShardedListAndWatch": "true"}])
def test_gates_that_are_none_are_refused(gates: dict[str, bool]) -> None:
    with pytest.raises(ValueError, match="feature gate"):
        ApiServer(feature_gates=gates)


def test_gates_of_the_command_line() -> None:
    assert feature_gates("A=true, B=False,") == {"A": True, "B": False}
    for wrong in ("A", "A=1", "=true", "A true"):
        with pytest.raises(Exception, match="NAME=true"):
            feature_gates(wrong)
