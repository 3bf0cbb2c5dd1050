"""Registered gateways, their presence and their last state."""

from dataclasses import dataclass

from sqlalchemy import insert, select

from edge_agent.wire.messages import Presence, State
from server_bridge.store.database import Database, upsert
from server_bridge.store.tables import GATEWAYS, PRESENCE, STATES


@dataclass(frozen=True, slots=True)
class Registration:
    """A registered gateway and its Flower node id."""

    id: str
    node_id: int
    registered_s: float


@dataclass(frozen=True, slots=True)
class KnownPresence:
    """The latest connection of a gateway, as last known."""

    online: bool
    boot_id: str
    connection: int
    changed_s: float


@dataclass(frozen=True, slots=True)
class KnownState:
    """A gateway's last state message and when it came (wall clock, seconds)."""

    received_s: float
    state: State


class GatewayTable:
    """Rows a gateway each.

    Args:
        database: where they are kept.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    def register(self, gateway: str, node_id: int, now_s: float) -> None:
        """Add a gateway that is not there yet."""
        with self._database.write() as connection:
            connection.execute(insert(GATEWAYS).values(id=gateway, node_id=node_id, registered_s=now_s))

    def registered(self) -> list[Registration]:
        """Every gateway, by id."""
        with self._database.read() as connection:
            rows = connection.execute(select(GATEWAYS).order_by(GATEWAYS.c.id)).all()
        return [Registration(row.id, row.node_id, row.registered_s) for row in rows]

    def set_presence(self, presence: Presence, now_s: float) -> None:
        """Replace what is known of a gateway's latest connection."""
        row = {
            "gateway": presence.gateway,
            "online": presence.online,
            "boot_id": presence.boot_id,
            "connection": presence.connection,
            "changed_s": now_s,
        }
        with self._database.write() as connection:
            upsert(connection, PRESENCE, row)

    def presences(self) -> dict[str, KnownPresence]:
        """Presence by gateway."""
        with self._database.read() as connection:
            rows = connection.execute(select(PRESENCE)).all()
        return {row.gateway: KnownPresence(row.online, row.boot_id, row.connection, row.changed_s) for row in rows}

    def set_state(self, state: State, now_s: float) -> None:
        """Replace a gateway's state."""
        body = state.model_dump_json(by_alias=True)
        with self._database.write() as connection:
            upsert(connection, STATES, {"gateway": state.gateway, "received_s": now_s, "body": body})

    def states(self) -> dict[str, KnownState]:
        """Last state by gateway."""
        with self._database.read() as connection:
            rows = connection.execute(select(STATES)).all()
        return {row.gateway: KnownState(row.received_s, State.model_validate_json(row.body)) for row in rows}
