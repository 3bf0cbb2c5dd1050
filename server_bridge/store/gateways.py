"""Registered gateways, their presence and their last state."""

from dataclasses import dataclass

from sqlalchemy import ColumnElement, insert, select, update

from edge_agent.wire.messages import Presence, State
from server_bridge.store.database import Database, upsert
from server_bridge.store.tables import GATEWAYS, PRESENCE, STATES


@dataclass(frozen=True, slots=True)
class Registration:
    """A registered gateway and its Flower node id; ``ignored_why`` is set while the bridge does not listen to it."""

    id: str
    node_id: int
    registered_s: float
    ignored_s: float | None = None
    ignored_why: str | None = None


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
        return [Registration(row.id, row.node_id, row.registered_s, row.ignored_s, row.ignored_why) for row in rows]

    def ignore(self, gateway: str, why: str, now_s: float) -> bool:
        """Stop listening to a gateway; whether it was listened to."""
        return self._set_ignored(gateway, GATEWAYS.c.ignored_s.is_(None), ignored_s=now_s, ignored_why=why)

    def readmit(self, gateway: str) -> bool:
        """Listen to a gateway again; whether it was ignored."""
        return self._set_ignored(gateway, GATEWAYS.c.ignored_s.is_not(None), ignored_s=None, ignored_why=None)

    def _set_ignored(self, gateway: str, only: ColumnElement[bool], **values: float | str | None) -> bool:
        with self._database.write() as connection:
            return (
                connection.execute(update(GATEWAYS).where(GATEWAYS.c.id == gateway, only).values(**values)).rowcount > 0
            )

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
        with self._database.decoding("states"):
            return {row.gateway: KnownState(row.received_s, State.model_validate_json(row.body)) for row in rows}
