import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_agent.wire.codec import TEXT_CHARS, decode, encode
from edge_agent.wire.errors import PROBLEM_CHARS, WireError
from edge_agent.wire.messages import Ack, ErrorEvent, Event, Reply


def event(problem: str) -> Event:
    body = ErrorEvent(place="here", problem=problem)
    return Event(gateway="g", epoch="e", sequence=1, low=1, time_s=0.0, body=body)


@given(text=st.text(max_size=50).map(lambda part: part * 100))
def test_a_text_of_any_length_makes_a_message_that_is_read_back(text: str) -> None:
    message = event(text)
    assert decode(Event, encode(message), cap_bytes=64 * 1024) == message
    assert isinstance(message.body, ErrorEvent)
    assert len(message.body.problem) <= TEXT_CHARS
    assert "\x00" not in message.body.problem


@given(what=st.text(max_size=5), problem=st.text())
def test_an_error_quotes_little_of_what_was_read(what: str, problem: str) -> None:
    assert len(WireError(what, problem * 50).problem) <= PROBLEM_CHARS


@pytest.mark.parametrize("ends", [[5, 3], [-1, 3], [1], [1, 2, 3], ["1", "2"], [1.0, 2.0]])
def test_a_range_is_two_integers_in_order(ends: list[object]) -> None:
    payload = json.dumps({"schema": 1, "bridge_boot_id": "b", "epoch": "e", "committed": [ends]}).encode()
    with pytest.raises(WireError, match="committed"):
        decode(Ack, payload, cap_bytes=1000)


@pytest.mark.parametrize(
    ("status", "needs"), [("ok", "result"), ("error", "reason"), ("sequence-low", "highest_sequence")]
)
def test_a_reply_says_what_its_status_promises(status: str, needs: str) -> None:
    payload = {"schema": 1, "gateway": "g", "boot_id": "b", "command_id": "c", "status": status}
    with pytest.raises(WireError, match=needs):
        decode(Reply, json.dumps(payload).encode(), cap_bytes=1000)
