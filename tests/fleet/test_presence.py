from pathlib import Path

import pytest

from edge_agent.wire.messages import Presence
from server_bridge.fleet.presence import SILENT_AFTER_S, accepts
from server_bridge.store.gateways import KnownPresence
from tests.fleet.desk import Desk
from tests.fleet.gateway import presence


@pytest.mark.parametrize(
    ("known", "message", "counts"),
    [
        (None, (False, "a", 1), True),
        ((True, "a", 2), (False, "a", 1), False),
        ((True, "a", 2), (True, "a", 1), False),
        ((True, "a", 2), (False, "a", 2), True),
        ((True, "a", 2), (True, "a", 3), True),
        ((True, "b", 1), (False, "a", 9), False),
        ((True, "a", 9), (True, "b", 1), True),
        ((False, "a", 9), (False, "b", 1), True),
    ],
)
def test_only_the_latest_connection_speaks(
    known: tuple[bool, str, int] | None, message: tuple[bool, str, int], counts: bool
) -> None:
    before = None if known is None else KnownPresence(*known, changed_s=0.0)
    online, boot_id, connection = message
    after = Presence(gateway="gw1", online=online, boot_id=boot_id, connection=connection)
    assert accepts(before, after) is counts


def test_after_a_reconnect_the_retained_message_counts_whatever_was_known(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.ingest.handle([presence(boot_id="a", connection=1), presence(boot_id="b", online=False)])
    assert desk.fleet.presence.online("gw1")
    desk.fleet.presence.reconnected()
    desk.ingest.handle([presence(boot_id="b", online=False)])
    assert not desk.fleet.presence.online("gw1")
    desk.store.close()


def test_presence_survives_a_restart_and_fades_without_repetition(tmp_path: Path) -> None:
    first = Desk(tmp_path)
    first.ingest.handle([presence()])
    first.store.close()
    desk = Desk(tmp_path)
    assert desk.fleet.presence.online("gw1")
    assert desk.fleet.presence.boot_id("gw1") == "boot1"
    desk.clock.now_s += SILENT_AFTER_S
    assert not desk.fleet.presence.online("gw1")
    desk.store.close()
