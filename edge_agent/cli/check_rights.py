"""The check's look at the broker's access list: may the gateway do what its agent will."""

import queue
import time
import uuid
from pathlib import Path

from edge_agent.cli.finding import Finding
from edge_agent.config import AgentSettings
from edge_agent.errors import StorageError
from edge_agent.link.durable import read_json
from edge_agent.link.events import Connected, Published, Received, SessionEvent, Subscription
from edge_agent.link.presence import PresenceVoice
from edge_agent.link.session import MqttSession
from edge_agent.link.settings import TimeJudge
from edge_agent.runtime.instance import STATUS_FILE, is_running
from edge_agent.wire.topics import FleetTopics

ANSWER_S = 8.0
RETAINED_S = 2.0
_REMEDY = (
    "copy the bridge's pki/broker/acl to the broker and reload it (`systemctl reload mosquitto`), as after each "
    "`server-bridge pki` and `gateway provision`; a list of your own: docs/protocol.md names the rights"
)


def look_at_rights(settings: AgentSettings, floor_s: float) -> Finding:
    """What the broker lets the gateway write and read.

    The rights are those of the agent's own connection, of which a broker has one: where an agent
    runs it is asked for its word instead. Where none does the gateway says that it is offline.

    Raises:
        StorageError: whether an agent runs cannot be told.
    """
    data_dir = settings.gateway.data_dir
    if is_running(data_dir):
        return _word_of(data_dir / STATUS_FILE)
    topics = FleetTopics(settings.gateway.fleet)
    inbox: queue.Queue[SessionEvent] = queue.Queue(100)
    session = MqttSession(
        settings.broker.settings().judged_by(TimeJudge(lambda: floor_s)),
        settings.gateway.id,
        clean_start=True,  # what waits in the agent's last session was for the agent that has ended
        session_expiry_s=0,
        inbox=inbox,
        subscriptions=[Subscription(topics.release), Subscription(topics.bridge)],
    )
    session.start()
    try:
        return _try(session, inbox, topics, settings.gateway.id)
    finally:
        session.stop(2.0)


def _word_of(status: Path) -> Finding:
    try:
        stored = read_json(status)
    except StorageError:
        stored = None
    refusal = str(stored.get("broker_refusal", "")) if isinstance(stored, dict) else ""
    if refusal:
        return Finding("rights", False, f"an agent runs here, and the broker refuses what it sends: {refusal}", _REMEDY)
    return Finding("rights", True, "an agent runs here, and the broker refuses nothing that it sends")


def _try(session: MqttSession, inbox: "queue.Queue[SessionEvent]", topics: FleetTopics, gateway: str) -> Finding:
    until_s, read = time.monotonic() + ANSWER_S, set[str]()
    token: int | None = None
    answer: Published | None = None
    while (left_s := until_s - time.monotonic()) > 0 and (answer is None or len(read) < 2):
        try:
            event = inbox.get(timeout=left_s)
        except queue.Empty:
            break
        if isinstance(event, Connected) and token is None:
            token = PresenceVoice(topics, gateway, uuid.uuid4().hex).farewell(session)
        elif isinstance(event, Received):
            read.add(event.topic)
        elif isinstance(event, Published) and event.token == token:
            answer, until_s = event, min(until_s, time.monotonic() + RETAINED_S)
            if not answer.ok:
                break
    return _finding(answer, read, topics, gateway)


def _finding(answer: Published | None, read: set[str], topics: FleetTopics, gateway: str) -> Finding:
    if answer is None:
        return Finding("rights", False, f"no answer to a publication in {ANSWER_S:.0f} s", "look into the broker's log")
    if not answer.ok:
        return Finding("rights", False, f"publishing on {topics.presence(gateway)} is denied: {answer.reason}", _REMEDY)
    unread = [topic for topic in (topics.release, topics.bridge) if topic not in read]
    saw = f"may publish on {topics.presence(gateway)}"
    if not unread:
        return Finding("rights", True, f"{saw}, and read {topics.release} and {topics.bridge}")
    if len(unread) == 1:
        return Finding("rights", False, f"{saw}, but hears nothing on {unread[0]}", f"start the bridge; else {_REMEDY}")
    return Finding("rights", True, f"{saw}; what the bridge says is not there to be read yet, or may not be")
