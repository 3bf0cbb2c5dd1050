"""Which gateways belong to the fleet, and their Flower node ids."""

import hashlib
import threading
from collections.abc import Callable

from server_bridge.store.decisions import Fact
from server_bridge.store.gateways import GatewayTable, Registration
from server_bridge.store.store import Store

RELOAD_INTERVAL_S = 1.0
_NODE_ID_BITS = 63


def node_id(gateway: str, salt: int = 0) -> int:
    """A stable 63-bit id, never 0; ``salt`` rises only when two gateways collide."""
    seed = f"{gateway}#{salt}" if salt else gateway
    number = int.from_bytes(hashlib.sha256(seed.encode()).digest()[:8], "big") >> (64 - _NODE_ID_BITS)
    return number or 1


def register(table: GatewayTable, gateway: str, now_s: float) -> Registration:
    """Register a gateway; one that is registered keeps its node id."""
    known = {row.id: row for row in table.registered()}
    if gateway in known:
        return known[gateway]
    taken = {row.node_id for row in known.values()}
    salt = 0
    while node_id(gateway, salt) in taken:
        salt += 1
    table.register(gateway, node_id(gateway, salt), now_s)
    return Registration(gateway, node_id(gateway, salt), now_s)


def ignore(store: Store, gateway: str, why: str, now_s: float) -> bool:
    """Stop listening to a gateway until an operator readmits it: its open flags are set aside, its messages
    dropped, it gets no orders. Recorded as a decision.

    Returns: whether it was listened to.
    """
    with store.transaction():
        if not store.gateways.ignore(gateway, why, now_s):
            return False
        aside = store.flags.ignore_all_of(gateway)
        detail = f"{gateway}: {why}"
        facts: dict[str, Fact] = {"gateway": gateway, "open_flags_set_aside": aside}
        store.decisions.record("gateway", "ignored", detail, now_s, facts=facts)
    return True


def readmit(store: Store, gateway: str, now_s: float) -> bool:
    """Listen to a gateway again; recorded as a decision. Returns whether it was ignored."""
    with store.transaction():
        if not store.gateways.readmit(gateway):
            return False
        facts: dict[str, Fact] = {"gateway": gateway}
        store.decisions.record("gateway", "readmitted", f"{gateway}: by an operator", now_s, facts=facts)
    return True


class Registry:
    """A view of the registered gateways that notices those added by another process.

    Args:
        table: where they are kept.
        monotonic: seconds, never going back.
    """

    def __init__(self, table: GatewayTable, monotonic: Callable[[], float]) -> None:
        self._table = table
        self._monotonic = monotonic
        self._lock = threading.Lock()
        self._rows: dict[str, Registration] = {}
        self._loaded_s = float("-inf")

    def __contains__(self, gateway: object) -> bool:
        with self._lock:
            if gateway not in self._rows:
                self._reload()
            return gateway in self._rows

    def ignored(self, gateway: str) -> bool:
        """Whether the bridge does not listen to a gateway; an operator may change that at any time."""
        with self._lock:
            self._reload()
            known = self._rows.get(gateway)
            return known is not None and known.ignored_s is not None

    def forget(self) -> None:
        """Look again at the next question: this process has just changed something."""
        with self._lock:
            self._loaded_s = float("-inf")

    def all(self) -> list[Registration]:
        """Every registered gateway, by id."""
        with self._lock:
            self._reload()
            return [self._rows[key] for key in sorted(self._rows)]

    def _reload(self) -> None:
        """At most once a second, so that a stranger's flood costs no queries."""
        now_s = self._monotonic()
        if now_s - self._loaded_s >= RELOAD_INTERVAL_S:
            self._rows = {row.id: row for row in self._table.registered()}
            self._loaded_s = now_s
