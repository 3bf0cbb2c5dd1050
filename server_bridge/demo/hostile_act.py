"""The third act: two bad releases are published, refused everywhere, and the bridge puts its own back."""

import queue
import time

from edge_agent.errors import TransientError
from edge_agent.link.events import Published, SessionEvent
from edge_agent.link.session import MqttSession
from edge_agent.wire.blobs import sha256_hex
from edge_agent.wire.topics import FleetTopics
from server_bridge.demo.arm import Arm
from server_bridge.demo.facts import BadRelease, Refusal
from server_bridge.demo.hostile import flipped_map, is_signed_by, stranger_map
from server_bridge.demo.observe import Look
from server_bridge.releases.keys import OnlineKeys

FLIPPED = "Properly signed, then one byte of a signed digest flipped"
STRANGER = "Same layout, signed by a stranger's keys"
PUBLISH_TIMEOUT_S = 15.0
POLL_S = 0.1


def play(arm: Arm) -> tuple[tuple[BadRelease, ...], bool]:
    """Publish both, wait for every gateway's refusal, and for the bridge's own map.

    Returns: the bad releases with their refusals; whether the bridge's map is the retained one again.

    Raises:
        TransientError: refusals are missing after the limit, or the broker took nothing.
    """
    own = arm.witness.release
    if own is None:
        raise TransientError(f"{arm.title}: no release map was seen")
    keys = OnlineKeys.load(arm.folder.keys)
    now_s = time.time()
    made = (
        ("flipped map", FLIPPED, *flipped_map(own, keys, now_s)),
        ("stranger's map", STRANGER, *stranger_map(own, now_s)),
    )
    acts = []
    reasserted = True
    for phase, title, payload, version in made:
        bad = _publish_and_wait(arm, phase, title, payload, version)
        acts.append(bad)
        reasserted = _wait_for_own(arm, own) and reasserted
    return tuple(acts), reasserted


def _publish_and_wait(arm: Arm, phase: str, title: str, payload: bytes, version: int) -> BadRelease:
    digest = sha256_hex(payload)
    published_s = time.time()
    _publish(arm, payload)

    def missing(look: Look) -> list[str]:
        refused = look.refusals(digest)
        return [gateway for gateway in arm.gateways if gateway not in refused]

    look = arm.phase(phase, f"hostile release: {title[0].lower()}{title[1:]}", arm.limits.hostile, missing)
    refusals = tuple(
        Refusal(gateway, reason, arm.seconds(at_s)) for gateway, (reason, at_s) in look.refusals(digest).items()
    )
    return BadRelease(title, version, digest, arm.seconds(published_s), refusals)


def _publish(arm: Arm, payload: bytes) -> None:
    inbox: queue.Queue[SessionEvent] = queue.Queue(100)
    session = MqttSession(arm.broker_settings, "demo-hostile", clean_start=True, session_expiry_s=0, inbox=inbox)
    session.start()
    try:
        token = session.publish(FleetTopics(arm.folder.fleet).release, payload, retain=True)
        until_s = time.monotonic() + PUBLISH_TIMEOUT_S
        while time.monotonic() < until_s:
            try:
                event = inbox.get(timeout=POLL_S)
            except queue.Empty:
                continue
            if isinstance(event, Published) and event.token == token and event.ok:
                return
        raise TransientError(f"{arm.title}: the broker did not take the hostile release")
    finally:
        session.stop(PUBLISH_TIMEOUT_S)


def _wait_for_own(arm: Arm, own: bytes) -> bool:
    until_s = time.monotonic() + arm.limits.hostile
    while not is_signed_by(arm.witness.release or b"", own):
        if time.monotonic() > until_s:
            return False
        time.sleep(POLL_S)
    return True
