"""Who is there: presence messages in any order, judged by boot id and connection number."""

import threading
from collections.abc import Callable

from edge_agent.wire.messages import Presence
from server_bridge.store.gateways import GatewayTable, KnownPresence

SILENT_AFTER_S = 1500.0
"""Gateways repeat their presence every ten minutes; two missed repetitions mean that nobody is there."""


def accepts(known: KnownPresence | None, presence: Presence) -> bool:
    """Whether a presence message says something of the gateway's latest connection.

    An offline of an earlier connection, or of another agent start, may arrive after the next
    online; it counts only for the connection that it names.
    """
    if known is None:
        return True
    if presence.boot_id == known.boot_id:
        return presence.connection >= known.connection
    return presence.online or not known.online


class PresenceBook:
    """The latest presence of each gateway, kept in the store.

    Args:
        table: where it is kept.
        on_boot: told (gateway, boot id) whenever an online message is taken.
        monotonic: seconds, never going back.
    """

    def __init__(
        self, table: GatewayTable, on_boot: Callable[[str, str], None], monotonic: Callable[[], float]
    ) -> None:
        self._table = table
        self._on_boot = on_boot
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._known = table.presences()
        self._heard_s = dict.fromkeys(self._known, monotonic())
        self._unconfirmed = set(self._known)

    def reconnected(self) -> None:
        """Our subscription is new: each gateway's next message is the broker's retained one, which counts."""
        with self._lock:
            self._unconfirmed = set(self._known)

    def observe(self, presence: Presence, now_s: float) -> bool:
        """Take a presence message; whether it counted. ``now_s`` is wall-clock time for the record."""
        gateway = presence.gateway
        with self._lock:
            confirmed = gateway not in self._unconfirmed
            if confirmed and not accepts(self._known.get(gateway), presence):
                return False
            self._unconfirmed.discard(gateway)
            self._heard_s[gateway] = self._monotonic()
            self._known[gateway] = KnownPresence(presence.online, presence.boot_id, presence.connection, now_s)
        self._table.set_presence(presence, now_s)
        if presence.online:
            self._on_boot(gateway, presence.boot_id)
        return True

    def learn_boot(self, gateway: str, boot_id: str, now_s: float) -> None:
        """A gateway answered under this boot id, so it is there under it."""
        if self.boot_id(gateway) != boot_id:
            self.observe(Presence(gateway=gateway, online=True, boot_id=boot_id, connection=0), now_s)

    def online(self, gateway: str) -> bool:
        """Whether a gateway is there, as last known."""
        with self._lock:
            known = self._known.get(gateway)
            silent_s = self._monotonic() - self._heard_s.get(gateway, float("-inf"))
            return known is not None and known.online and silent_s < SILENT_AFTER_S

    def boot_id(self, gateway: str) -> str | None:
        """The boot id of a gateway's latest start, if one is known."""
        with self._lock:
            known = self._known.get(gateway)
            return None if known is None else known.boot_id
