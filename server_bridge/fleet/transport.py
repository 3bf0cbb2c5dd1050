"""The seam between Flower's Grid and the MQTT fleet: orders out, outcomes in."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from edge_agent.wire.blobs import BlobReference
from edge_agent.wire.messages import Evaluate, Reply, State, Train


@dataclass(frozen=True, slots=True)
class Gateway:
    """A registered gateway.

    Attributes:
        id: the gateway's name.
        node_id: its stable 63-bit Flower node id, kept in the store.
        online: presence as last known.
        state: its last state message, if any.
    """

    id: str
    node_id: int
    online: bool
    state: State | None


@dataclass(frozen=True, slots=True)
class Order:
    """One command to one gateway; the same ``command_id`` is never carried out twice."""

    gateway: str
    command_id: str
    action: Train | Evaluate
    duration_s: float


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one order ended.

    Attributes:
        reply: the final reply, if one came.
        update: the whole encoded update, digest verified, for a train order that succeeded.
        failure: ``None``, or a stable reason (``timeout``, ``offline``, ``refused``, ``bad-manifest`` ...).
        detail: the same for people.
        arrived_s: when the last byte of it was here, seconds since 1970; of two equal updates the
            earlier one is the original.
    """

    gateway: str
    command_id: str
    reply: Reply | None
    update: bytes | None
    failure: str | None
    detail: str = ""
    arrived_s: float = 0.0


class FleetTransport(Protocol):
    """What a Grid needs of a fleet. Implementations: the MQTT fleet; an in-memory one in tests."""

    def gateways(self) -> Sequence[Gateway]:
        """Every registered gateway, in the order of their ids."""
        ...

    def publish_blob(self, data: bytes) -> BlobReference:
        """Make a blob available to every gateway; publishing the same bytes again is free."""
        ...

    def exchange(
        self, orders: Sequence[Order], *, timeout_s: float, cancelled: Callable[[], bool]
    ) -> Sequence[Outcome]:
        """Send orders and wait for their outcomes.

        Returns at the latest after ``timeout_s`` (monotonic) with one outcome per order, in the
        same order; those unanswered have ``failure='timeout'``. Late replies are recorded in the
        store and never mixed into a later exchange.
        """
        ...
