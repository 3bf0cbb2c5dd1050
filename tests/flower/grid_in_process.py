"""Flower's grid with clients in this process: what strategies call, and nothing of its message store."""

from collections.abc import Iterable
from itertools import count
from typing import Any

from flwr.app import Message
from flwr.serverapp import Grid

from server_bridge.flower.records import Run, set_message_id


class GridInProcess(Grid):
    """The part that is the same whoever the clients are; ``get_node_ids`` and ``send_and_receive`` are not."""

    def __init__(self) -> None:
        self._numbers = count(1)

    def numbered(self, message: Message) -> Message:
        """The message with an id, which a reply needs."""
        set_message_id(message, str(next(self._numbers)))
        return message

    def set_run(self, run: Run) -> None:
        raise AssertionError("strategies set no run")

    @property
    def run(self) -> Run:
        raise AssertionError("strategies ask for no run")

    def create_message(self, *args: Any, **kwargs: Any) -> Message:
        raise AssertionError("strategies make their messages themselves")

    def push_messages(self, messages: Iterable[Message]) -> Iterable[str]:
        raise AssertionError("strategies send and receive in one")

    def pull_messages(self, message_ids: Iterable[str]) -> Iterable[Message]:
        raise AssertionError("strategies send and receive in one")
