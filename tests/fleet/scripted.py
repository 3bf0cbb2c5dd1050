"""Gateways that speak the real protocol over a real broker and 'train' by a given rule."""

import queue
import threading
from collections.abc import Mapping

from edge_agent.link.events import Connected, Received, SessionEvent, Subscription, Will
from edge_agent.link.session import MqttSession
from edge_agent.link.settings import BrokerSettings
from edge_agent.wire.blobs import chunks, make_chunk_list, sha256_hex
from edge_agent.wire.codec import Message, decode, encode
from edge_agent.wire.messages import (
    ACK_CAP_BYTES,
    Ack,
    ChunkGrant,
    Command,
    Evaluate,
    EvaluateResult,
    Presence,
    Reply,
    Train,
    TrainResult,
    UpdateManifest,
    open_command,
)
from edge_agent.wire.messages.command import Verify
from edge_agent.wire.messages.reply import ReplyResult
from edge_agent.wire.tensors import decode_weights
from edge_agent.wire.topics import FleetTopics
from edge_agent.wire.updates import encode_update
from tests.flower.memory_fleet import Learn


class ScriptedGateway:
    """One gateway on its own connection; ``blobs`` stands for what it would download."""

    def __init__(
        self,
        broker: BrokerSettings,
        fleet: str,
        gateway: str,
        blobs: Mapping[str, bytes],
        learn: Learn,
        verify: Verify = lambda key, signature, body: signature == b"signature",
    ) -> None:
        self.id = gateway
        self.boot_id = f"boot-{gateway}"
        self.trained: list[str] = []
        self.acks: list[Ack] = []
        self.muted = threading.Event()
        self.examples = 50
        self._topics = FleetTopics(fleet)
        self._blobs = blobs
        self._learn = learn
        self._verify = verify
        self._results: dict[str, ReplyResult] = {}
        self._updates: dict[str, bytes] = {}
        self._highest = 0
        self._stopping = threading.Event()
        self._inbox: queue.Queue[SessionEvent] = queue.Queue(1000)
        self._session = MqttSession(
            broker,
            gateway,
            clean_start=True,
            session_expiry_s=0,
            inbox=self._inbox,
            subscriptions=[Subscription(self._topics.down_filter(gateway))],
            will=lambda connection: Will(self._topics.presence(gateway), self._presence(connection, online=False)),
        )
        self._thread = threading.Thread(target=self._run, name=f"scripted-{gateway}", daemon=True)

    def start(self) -> None:
        self._session.start()
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._session.stop(2.0)
        self._thread.join(2.0)

    def publish(self, topic: str, message: Message, *, retain: bool = False) -> None:
        self._session.publish(topic, encode(message), retain=retain)

    def _run(self) -> None:
        waiting: list[Received] = []
        while not self._stopping.is_set():
            try:
                event = self._inbox.get(timeout=0.05)
            except queue.Empty:
                event = None
            if isinstance(event, Connected):
                presence = self._presence(event.connection, online=True)
                self._session.publish(self._topics.presence(self.id), presence, retain=True)
            elif isinstance(event, Received):
                waiting.append(event)
            while waiting and not self.muted.is_set():
                self._take(waiting.pop(0))

    def _take(self, message: Received) -> None:
        if message.topic == self._topics.command(self.id):
            self._command(open_command(message.payload, self._verify))
            return
        ack = decode(Ack, message.payload, cap_bytes=ACK_CAP_BYTES)
        self.acks.append(ack)
        for grant in ack.grants:
            self._grant(grant)

    def _command(self, command: Command) -> None:
        answer = {"gateway": self.id, "boot_id": self.boot_id, "command_id": command.command_id}
        if command.boot_id != self.boot_id:
            self._reply({**answer, "status": "stale-boot"})
        elif command.command_id in self._results:
            self._reply({**answer, "status": "ok", "result": self._results[command.command_id]})
        elif command.sequence <= self._highest:
            self._reply({**answer, "status": "sequence-low", "highest_sequence": self._highest})
        else:
            self._highest = command.sequence
            self._results[command.command_id] = self._carry_out(command)
            self._reply({**answer, "status": "ok", "result": self._results[command.command_id]})

    def _carry_out(self, command: Command) -> ReplyResult:
        action = command.action
        if isinstance(action, Evaluate):
            return EvaluateResult(weights=action.weights.digest, metrics={"num-examples": self.examples})
        assert isinstance(action, Train)
        self.trained.append(command.command_id)
        delta = self._learn(decode_weights(self._blobs[action.base.digest]), action)
        data = encode_update(delta, action.coding)
        self._updates[command.command_id] = data
        manifest = UpdateManifest(
            coding=action.coding, base=action.base.digest, digest=sha256_hex(data), chunks=make_chunk_list(data)
        )
        metrics: dict[str, int | float | list[int] | list[float]] = {"num-examples": self.examples, "clma-loss": 0.5}
        return TrainResult(round=action.round, cohort=action.cohort, update=manifest, metrics=metrics)

    def _grant(self, grant: ChunkGrant) -> None:
        if not grant.indices:
            self._updates.pop(grant.command_id, None)
            return
        data = self._updates.get(grant.command_id)
        if data is None:
            return
        parts = list(chunks(data, make_chunk_list(data).chunk_bytes))
        for index in grant.indices:
            self._session.publish(self._topics.upload_chunk(self.id, grant.digest, index), parts[index])

    def _reply(self, content: Mapping[str, object]) -> None:
        self.publish(self._topics.reply(self.id), Reply.model_validate(dict(content)))

    def _presence(self, connection: int, *, online: bool) -> bytes:
        return encode(Presence(gateway=self.id, online=online, boot_id=self.boot_id, connection=connection))
