from __future__ import annotations

import copy
import pickle
import re
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from kubectl_runtime.core.base.errors import RequestError
from kubectl_runtime.core.meta.metav1 import Condition, set_condition

THEN = datetime(2026, 1, 1, tzinfo=UTC)
LATER = THEN + timedelta(minutes=5, microseconds=7)


def ready(status: str, since: datetime | None = None) -> Condition:
    return Condition(type="Ready", status=status, reason="Because", last_transition_time=since)


def test_the_given_list_stays_as_it_is() -> None:
    for given in ([ready("False", THEN)], [{"type": "Ready", "status": "False"}], ()):
        before = copy.deepcopy(given)
        assert set_condition(given, ready("True"), now=LATER)[0]["status"] == "True"
        assert given == before


def test_a_first_condition_begins_now_in_whole_seconds():
    assert set_condition(None, ready("True"), now=LATER) == [
        {"type": "Ready", "status": "True", "reason": "Because", "message": "",
         "lastTransitionTime": "2026-01-01T00:05:00Z"}]


def test_a_reason_and_a_message_are_always_there_since_custom_kinds_may_require_them():
    [other, placed] = set_condition([Condition(type="Synced", status="True")], Condition(type="Ready", status="True"))
    assert (placed["reason"], placed["message"]) == ("", "")
    assert "reason" not in other  # it is somebody else's


def test_the_same_status_keeps_its_transition_time():
    [placed] = set_condition([ready("True", THEN)], ready("True"), now=LATER)
    assert placed["lastTransitionTime"] == "2026-01-01T00:00:00Z"


def test_another_status_moves_the_transition_time():
    [placed] = set_condition([ready("True", THEN)], ready("False"), now=LATER)
    assert placed["lastTransitionTime"] == "2026-01-01T00:05:00Z"


def test_conditions_of_other_types_stay_in_place():
    other = Condition(type="Synced", status="False", last_transition_time=THEN)
    found = set_condition([other, ready("True", THEN)], ready("False"), now=LATER)
    assert [entry["type"] for entry in found] == ["Synced", "Ready"]
    assert found[0] == {"type": "Synced", "status": "False", "lastTransitionTime": "2026-01-01T00:00:00Z"}


@pytest.mark.parametrize("status", [True, False, None, 1])
def test_a_status_that_is_no_text_is_refused_where_it_is_made(status: Any) -> None:
    with pytest.raises(RequestError, match=rf'Condition Ready: status .* "True", "False" or "Unknown", not {status}$'):
        Condition(type="Ready", status=status)


@pytest.mark.parametrize("status", ["true", "", "Yes"])
def test_a_text_that_is_no_status_is_refused_where_it_is_set_and_copied_where_a_server_sent_it(status: str) -> None:
    sent = msgspec.json.decode(msgspec.json.encode({"type": "Ready", "status": status}), type=Condition)
    assert copy.deepcopy(sent) == sent == pickle.loads(pickle.dumps(sent))
    assert set_condition([sent], Condition(type="Synced", status="True"))[0]["type"] == "Ready", "somebody else's"
    with pytest.raises(RequestError, match=r'"True", "False" or "Unknown"'):
        set_condition([], sent)


@pytest.mark.parametrize(("texts", "problem"), [
    ({"reason": "not ok"}, "Condition Ready: reason must be one word such as BackupFailed, not 'not ok'"),
    ({"reason": "Trailing,"}, "reason must be one word"), ({"reason": "New\n"}, "reason must be one word"),
    ({"reason": "R" * 1025}, "reason has 1025 characters; servers accept 1024"),
    ({"reason": None}, "reason must be a text, not"),
    ({"type": "not ready"}, "type must be a word such as Ready"), ({"type": ""}, "type must be a word such as Ready"),
    ({"type": "T" * 317}, "type has 317 characters; servers accept 316"),
    ({"message": "m" * 32769}, "message has 32769 characters; servers accept 32768"),
    ({"message": ValueError("x")}, "message must be a text, not"),
])
def test_a_text_that_servers_refuse_is_refused_where_it_is_set(texts: dict[str, Any], problem: str) -> None:
    with pytest.raises(RequestError, match=re.escape(problem)):
        set_condition([], Condition(**{"type": "Ready", "status": "True", **texts}))


@pytest.mark.parametrize("texts", [
    {"reason": ""}, {"reason": "R" * 1024}, {"reason": "a_1,b:c"}, {"type": "example.com/Synced"}, {"type": "a.b_c-D"}])
def test_a_text_that_servers_accept_is_set(texts: dict[str, str]) -> None:
    [placed] = set_condition([], Condition(**{"type": "Ready", "status": "True", **texts}))  # type: ignore[arg-type]
    assert placed | texts == placed


def test_a_text_that_servers_refuse_is_decoded_copied_and_kept_where_another_program_wrote_it() -> None:
    sent = msgspec.json.decode(b'{"type":"a b","status":"True","reason":"not ok"}', type=Condition)
    assert copy.deepcopy(sent) == sent == pickle.loads(pickle.dumps(sent))
    assert set_condition([sent], ready("True"))[0]["reason"] == "not ok"


def test_conditions_may_be_json_values_so_that_several_can_be_set() -> None:
    received = {"type": "Progressing", "status": "True", "lastUpdateTime": "2020-01-01T00:00:00Z"}
    both = set_condition(set_condition([received], ready("True", THEN), now=THEN), ready("False"), now=LATER)
    assert both == [received, *set_condition([ready("True", THEN)], ready("False"), now=LATER)]
    again = set_condition(both, ready("False"), now=datetime.now(UTC))
    assert again == both


@pytest.mark.parametrize("entry", [{"lastTransitionTime": "yesterday"}, {"lastTransitionTime": None}, {}])
def test_an_entry_whose_time_cannot_be_read_gets_a_new_one(entry: dict[str, Any]) -> None:
    [placed] = set_condition([{"type": "Ready", "status": "True", **entry}], ready("True"), now=LATER)
    assert placed == set_condition([], ready("True"), now=LATER)[0]


def test_an_unchanged_text_that_another_program_wrote_is_written_back() -> None:
    stored = [{"type": "Mine", "status": "True", "reason": "not ok", "message": "m"}]
    [written] = set_condition(stored, Condition(type="Mine", status="False", reason="not ok", message="m"))
    assert (written["reason"], written["status"]) == ("not ok", "False")
    with pytest.raises(RequestError, match="reason must be one word"):
        set_condition(stored, Condition(type="Mine", status="True", reason="not good", message="m"))
