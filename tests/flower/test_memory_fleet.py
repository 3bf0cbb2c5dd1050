"""The in-memory fleet obeys the contract that the MQTT fleet is held to."""

from dataclasses import dataclass

import pytest

from tests.flower.memory_fleet import MemoryFleet, MemoryGateway, direction, towards
from tests.flower.transport_contract import TransportContract


@dataclass
class _Fleet:
    transport: MemoryFleet
    timeout_s: float = 1.0

    def mute(self, gateway: str) -> None:
        self.transport.members[gateway].silent = True

    def unmute(self, gateway: str) -> None:
        self.transport.members[gateway].silent = False

    def times_trained(self, gateway: str) -> int:
        return sum(command.endswith(f"-{gateway}") for command in self.transport.carried_out)


class TestMemoryFleet(TransportContract):
    @pytest.fixture
    def fleet(self) -> _Fleet:
        names = ("g1", "g2", "g3", "g4")
        members = {name: MemoryGateway(towards(direction(1), 0.1, i)) for i, name in enumerate(names)}
        members["g4"].online = False
        return _Fleet(MemoryFleet(members))
