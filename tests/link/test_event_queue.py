import queue

import pytest

from edge_agent.link.event_queue import EventQueue
from edge_agent.link.events import Connected, Received


def test_it_is_full_at_its_number_of_events() -> None:
    events = EventQueue(2, 1000)
    events.put_nowait(Connected(1, False))
    events.put_nowait(Connected(2, False))
    with pytest.raises(queue.Full):
        events.put_nowait(Connected(3, False))
    assert [events.get_nowait(), events.get_nowait()] == [Connected(1, False), Connected(2, False)]
    with pytest.raises(queue.Empty):
        events.get_nowait()


def test_it_is_full_at_its_number_of_bytes_and_has_room_again_once_they_are_read() -> None:
    events = EventQueue(1000, 100)
    big = Received("t", bytes(99), False)
    events.put_nowait(Received("t", b"", False))
    events.put_nowait(big)
    for event in (big, Connected(1, False)):
        with pytest.raises(queue.Full):
            events.put_nowait(event)
    assert [events.get_nowait(), events.get_nowait()] == [Received("t", b"", False), big]
    events.put_nowait(Connected(1, False))
    assert events.get_nowait() == Connected(1, False)
    assert events.held_bytes == 0
    assert events.empty()
