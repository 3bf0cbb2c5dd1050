"""A bridge's command desk for one gateway, and that gateway's orders without a broker."""

import queue
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from edge_agent.link.database import Database, open_database
from edge_agent.link.events import Connected, SessionEvent, Subscription
from edge_agent.link.session import MqttSession
from edge_agent.link.settings import BrokerSettings
from edge_agent.ota.command_keys import verify_signature
from edge_agent.runtime.orders import OrderFailed, Orders
from edge_agent.wire.blobs import BlobReference
from edge_agent.wire.codec import decode, encode
from edge_agent.wire.messages import (
    Command,
    Configure,
    Evaluate,
    EvaluateResult,
    Identify,
    Reply,
    Train,
    sign_command,
)
from edge_agent.wire.messages.command import CommandAction
from edge_agent.wire.messages.reply import REPLY_CAP_BYTES, ReplyResult
from edge_agent.wire.release import CommandKey
from edge_agent.wire.topics import FleetTopics

FLEET, GATEWAY = "line1", "gw1"
TOPICS = FleetTopics(FLEET)
WAIT_S = 60.0
BLOB = BlobReference(digest="d" * 64, length=10, chunk_list="e" * 64)
EVALUATE = Evaluate(bundle="b" * 64, weights=BLOB)
TRAIN = Train(
    adaptation="a1",
    round=1,
    bundle="b" * 64,
    base=BLOB,
    cohort="root",
    training_graph="sgd",
    learning_rate=0.1,
    epochs=1,
    batch_size=8,
    min_samples=1,
    max_samples=100,
    seed=1,
)


@dataclass
class Signer:
    """The bridge's command key."""

    key_id: str = "command-1"
    key: Ed25519PrivateKey = field(default_factory=Ed25519PrivateKey.generate)

    @property
    def public(self) -> dict[str, CommandKey]:
        return {self.key_id: CommandKey(public=self.key.public_key().public_bytes_raw().hex())}

    def signed(
        self,
        command_id: str,
        sequence: int,
        boot_id: str,
        action: CommandAction,
        *,
        fleet: str = FLEET,
        gateway: str = GATEWAY,
        duration_s: float = 60.0,
    ) -> bytes:
        command = Command(
            fleet=fleet,
            gateway=gateway,
            boot_id=boot_id,
            command_id=command_id,
            sequence=sequence,
            duration_s=duration_s,
            action=action,
        )
        return encode(sign_command(command, lambda body: (self.key_id, self.key.sign(body))))


class HeardSession:
    """What is published is kept."""

    def __init__(self) -> None:
        self.published: list[tuple[str, bytes]] = []

    def publish(self, topic: str, payload: bytes) -> int:
        self.published.append((topic, payload))
        return len(self.published)


class PatientWorker:
    """Works until it is told to finish, or the order ends; keeps account of both."""

    def __init__(self) -> None:
        self.begun: list[str] = []
        self.finished: list[str] = []
        self.forgotten: list[str] = []
        self.deadlines_s: list[float] = []
        self.error: Exception | None = None
        self._finish = threading.Semaphore(0)

    def finish_one(self) -> None:
        self._finish.release()

    def train(self, command: Command, action: Train, ended: Callable[[], bool], deadline_s: float) -> ReplyResult:
        return self._result(command, ended, deadline_s)

    def evaluate(self, command: Command, action: Evaluate, ended: Callable[[], bool], deadline_s: float) -> ReplyResult:
        return self._result(command, ended, deadline_s)

    def forget(self, command_id: str) -> None:
        self.forgotten.append(command_id)

    def _result(self, command: Command, ended: Callable[[], bool], deadline_s: float) -> ReplyResult:
        self.begun.append(command.command_id)
        self.deadlines_s.append(deadline_s)
        while not self._finish.acquire(timeout=0.002):
            if ended():
                raise OrderFailed("superseded", "a newer order came")
        if self.error is not None:
            raise self.error
        self.finished.append(command.command_id)
        return EvaluateResult(weights="f" * 64, metrics={"run": len(self.finished)})


class Desk:
    """A gateway's orders over a database in a folder; :meth:`restart` is a kill and a new start."""

    def __init__(self, path: Path, *, boot_id: str = "boot1") -> None:
        self.signer = Signer()
        self.worker = PatientWorker()
        self.configured: list[Configure] = []
        self.identified = 0
        self._path = path / "agent.db"
        self._sequence = 0
        self._read = 0
        self.session = HeardSession()
        self.open(boot_id)

    def open(self, boot_id: str) -> None:
        self.boot_id = boot_id
        self.database: Database = open_database(self._path, synchronous="NORMAL")
        self.orders = Orders(
            self.database,
            self.session,
            self.worker,
            fleet=FLEET,
            gateway=GATEWAY,
            boot_id=boot_id,
            reply_topic=TOPICS.reply(GATEWAY),
            verify=lambda key_id, signature, body: verify_signature(self.signer.public, key_id, signature, body),
            configure=self.configured.append,
            identify=self._identify,
        )

    def restart(self, boot_id: str) -> None:
        self.close()
        self.open(boot_id)
        self.orders.start()

    def close(self) -> None:
        if self.orders.alive:
            self.orders.stop(WAIT_S)
        assert not self.orders.alive
        assert self.orders.failure is None
        self.database.close()

    def payload(self, command_id: str, action: CommandAction = EVALUATE, **address: str) -> bytes:
        """The next command for the boot id that runs."""
        self._sequence += 1
        return self.signer.signed(command_id, self._sequence, self.boot_id, action, **address)  # type: ignore[arg-type]

    def order(self, command_id: str, action: CommandAction = EVALUATE) -> list[Reply]:
        """Send a command; the replies that came at once."""
        self.orders.receive(self.payload(command_id, action), retained=False)
        return self.replies()

    def replies(self, count: int = 0) -> list[Reply]:
        """The replies since the last call, at least ``count``."""
        wait(lambda: len(self.session.published) >= self._read + count, f"{count} replies")
        new = self.session.published[self._read :]
        self._read += len(new)
        assert {topic for topic, _ in new} <= {TOPICS.reply(GATEWAY)}
        return [decode(Reply, payload, cap_bytes=REPLY_CAP_BYTES) for _, payload in new]

    def _identify(self) -> None:
        self.identified += 1


IDENTIFY = Identify()


def wait(seen: Callable[[], bool], what: str) -> None:
    until_s = time.monotonic() + WAIT_S
    while not seen():
        assert time.monotonic() < until_s, f"still waiting for {what}"
        time.sleep(0.002)


def statuses(replies: list[Reply]) -> list[str]:
    """How each says that the order stands: the reason of a failure, else the status."""
    return [reply.reason or reply.status for reply in replies]


def begin(desk: Desk, command_id: str) -> None:
    """Order it and wait until the worker is at it."""
    before = len(desk.worker.begun)
    assert statuses(desk.order(command_id))[-1] == "accepted"
    wait(lambda: len(desk.worker.begun) > before, f"the worker to begin {command_id}")


@contextmanager
def bridge_session(broker: BrokerSettings, topic: str) -> Iterator[tuple[MqttSession, "queue.Queue[SessionEvent]"]]:
    """A bridge that is connected and listens to a topic, and what it hears."""
    heard: queue.Queue[SessionEvent] = queue.Queue(100)
    bridge = MqttSession(
        broker, "bridge", clean_start=True, session_expiry_s=0, inbox=heard, subscriptions=[Subscription(topic)]
    )
    bridge.start()
    try:
        assert isinstance(heard.get(timeout=WAIT_S), Connected)
        yield bridge, heard
    finally:
        bridge.stop(2.0)
