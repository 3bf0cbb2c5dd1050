import queue
import time

from edge_agent.link.events import Connected, Received, SessionEvent, Subscription
from edge_agent.link.presence import PresenceRepetition, PresenceVoice
from edge_agent.link.session import MqttSession
from edge_agent.link.settings import BrokerSettings
from edge_agent.wire.codec import decode
from edge_agent.wire.messages import PRESENCE_CAP_BYTES, Presence
from server_bridge.demo.broker import Mosquitto
from tests.link.peers import QUICK, TOPICS, WAIT_S

VOICE = PresenceVoice(TOPICS, "gw1", "boot")


def _heard(inbox: "queue.Queue[SessionEvent]") -> Presence:
    until_s = time.monotonic() + WAIT_S
    while time.monotonic() < until_s:
        event = inbox.get(timeout=WAIT_S)
        if isinstance(event, Received):
            return decode(Presence, event.payload, cap_bytes=PRESENCE_CAP_BYTES)
    raise AssertionError("nothing heard")


def _session(port: int, client_id: str, *subscriptions: Subscription, with_will: bool = False) -> MqttSession:
    session = MqttSession(
        BrokerSettings("127.0.0.1", port),
        client_id,
        clean_start=True,
        session_expiry_s=0,
        inbox=queue.Queue(1000),
        subscriptions=subscriptions,
        will=VOICE.will if with_will else None,
        backoff=QUICK,
    )
    session.start()
    return session


def test_the_will_is_an_offline_of_its_connection() -> None:
    will = VOICE.will(7)
    assert will.topic == "clma/1/fleet/up/gw1/presence"
    presence = decode(Presence, will.payload, cap_bytes=PRESENCE_CAP_BYTES)
    assert presence == Presence(gateway="gw1", online=False, boot_id="boot", connection=7)


def test_online_is_repeated_and_a_farewell_names_the_connection(mosquitto: Mosquitto) -> None:
    heard: queue.Queue[SessionEvent] = queue.Queue(100)
    watcher = MqttSession(
        BrokerSettings("127.0.0.1", mosquitto.port),
        "watcher",
        clean_start=True,
        session_expiry_s=0,
        inbox=heard,
        subscriptions=[Subscription(TOPICS.presence("gw1"))],
    )
    watcher.start()
    assert isinstance(heard.get(timeout=WAIT_S), Connected)
    session = _session(mosquitto.port, "gw1", with_will=True)
    until_s = time.monotonic() + WAIT_S
    while not session.connected and time.monotonic() < until_s:
        time.sleep(0.01)
    repetition = PresenceRepetition(VOICE, session)
    repetition.connected(1, now_s=1000.0)
    repetition.tick(1500.0)
    repetition.tick(1600.0)
    repetition.tick(1700.0)
    online = Presence(gateway="gw1", online=True, boot_id="boot", connection=1)
    assert [_heard(heard), _heard(heard)] == [online, online]
    VOICE.farewell(session)
    assert session.stop(WAIT_S)
    assert _heard(heard) == online.model_copy(update={"online": False})
    time.sleep(0.1)
    assert heard.empty()
    watcher.stop(2)
