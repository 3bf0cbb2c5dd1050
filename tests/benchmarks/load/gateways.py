"""A process of simulated gateways: ``python -m tests.benchmarks.load.gateways`` with its plan on standard input.

Each has a lasting session as an agent has, a flag in its outbox until acknowledged, and answers
train commands: it downloads the base weights chunk by chunk on a client of its own, waits as if it
trained, and uploads a made-up update as it is granted. Nothing touches a disk.

Lines in: the plan (JSON), ``flag``, ``end``. Lines out: ``ready``, then the account (JSON).
"""

import asyncio
import hashlib
import json
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import asdict, dataclass, field

import numpy as np

from edge_agent.drift.loss_rise import MONITOR_NAME
from edge_agent.wire.blobs import BlobReference, ChunkList, check_chunk, chunks, make_chunk_list, read_chunk_list
from edge_agent.wire.codec import decode, encode
from edge_agent.wire.messages import (
    ACK_CAP_BYTES,
    Ack,
    ChunkGrant,
    Command,
    Event,
    FlagEvent,
    Presence,
    Reply,
    State,
    Train,
    TrainResult,
    UpdateManifest,
    open_command,
)
from edge_agent.wire.messages.state import ClockTrust, TrustedVersions
from edge_agent.wire.tensors import Weights
from edge_agent.wire.topics import FleetTopics
from edge_agent.wire.updates import encode_update
from tests.benchmarks.load.mqtt_line import MqttLine

SESSION_EXPIRY_S = 14 * 86_400
DOWNLOAD_WINDOW = 8
TRAINABLE_SAMPLES = 600
FAMILY_SHARE = 0.9
RESEND_S = 5.0
CONNECTING = 32


@dataclass(frozen=True)
class Plan:
    """What a process simulates."""

    host: str
    port: int
    fleet: str
    gateways: list[str]
    bundle: str
    weights: str
    shapes: dict[str, list[int]]
    families: int = 4
    spread_s: float = 5.0
    training_s: float = 2.0
    state_s: float = 30.0


@dataclass
class Account:
    """What happened, summed over the gateways of a process."""

    flags_sent: int = 0
    flags_acknowledged: int = 0
    acknowledged_s: list[float] = field(default_factory=list)
    commands: int = 0
    updates_taken: int = 0
    downloads: int = 0
    up_bytes: int = 0
    down_bytes: int = 0
    failures: list[str] = field(default_factory=list)


class SimulatedGateway:
    """One gateway; see the module."""

    def __init__(self, plan: Plan, gateway: str, family: int, account: Account) -> None:
        self.id = gateway
        self._plan = plan
        self._account = account
        self._family = family
        self._topics = FleetTopics(plan.fleet)
        self._boot_id = f"boot-{gateway}"
        self._rng = np.random.default_rng(
            [family, int.from_bytes(hashlib.sha256(gateway.encode()).digest()[:4], "big")]
        )
        self._line = MqttLine(
            gateway,
            self._take,
            clean_start=False,
            session_expiry_s=SESSION_EXPIRY_S,
            receive_maximum=100,
            will=(self._topics.presence(gateway), self._presence(online=False)),
        )
        self._up: MqttLine | None = None
        self._opening = asyncio.Lock()
        self._acknowledged = asyncio.Event()
        self._updates: dict[str, tuple[bytes, ChunkList]] = {}
        self._replies: dict[str, Reply] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    async def connect(self) -> None:
        """Come online as an agent does."""
        await self._line.open(self._plan.host, self._plan.port)
        for topic_filter in (self._topics.down_filter(self.id), self._topics.release, self._topics.bridge):
            self._line.subscribe(topic_filter)
        self._line.publish(self._topics.presence(self.id), self._presence(online=True), retain=True)
        self._spawn(self._report())

    async def flag(self) -> None:
        """Raise a flag and send it until the bridge has it."""
        await asyncio.sleep(float(self._rng.uniform(0, self._plan.spread_s)))
        began_s = time.monotonic()
        self._account.flags_sent += 1
        while not self._acknowledged.is_set():
            self._line.publish(self._topics.event(self.id), self._flag())
            try:
                await asyncio.wait_for(self._acknowledged.wait(), RESEND_S)
            except TimeoutError:
                continue
        self._account.flags_acknowledged += 1
        self._account.acknowledged_s.append(time.monotonic() - began_s)

    def close(self) -> None:
        """Leave, and hand in the bytes."""
        for task in self._tasks:
            task.cancel()
        for line in (self._line, self._up):
            if line is not None:
                self._settle(line)

    def _settle(self, line: MqttLine) -> None:
        line.close()
        self._account.up_bytes += line.sent_bytes
        self._account.down_bytes += line.received_bytes

    def _spawn(self, work: Coroutine[object, object, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            self._account.failures.append(f"{self.id}: {task.exception()!r}")

    async def _report(self) -> None:
        while not self._line.lost.is_set():
            self._line.publish(self._topics.state(self.id), self._state(), retain=True)
            await asyncio.sleep(self._plan.state_s * float(self._rng.uniform(0.8, 1.2)))

    def _take(self, topic: str, payload: bytes) -> None:
        if topic == self._topics.command(self.id):
            self._command(open_command(payload, lambda *_: True))
        elif topic == self._topics.ack(self.id):
            ack = decode(Ack, payload, cap_bytes=ACK_CAP_BYTES)
            if ack.committed:
                self._acknowledged.set()
            for grant in ack.grants:
                self._spawn(self._grant(grant))

    def _command(self, command: Command) -> None:
        known = self._replies.get(command.command_id)
        if known is None:
            known = self._reply(command, status="accepted")
            self._replies[command.command_id] = known
            self._account.commands += 1
            self._spawn(self._train(command))
        self._line.publish(self._topics.reply(self.id), encode(known))

    async def _train(self, command: Command) -> None:
        action = command.action
        assert isinstance(action, Train)
        await self._download(action.base)
        await asyncio.sleep(float(self._rng.uniform(0.5, 1.0)) * self._plan.training_s)
        data = encode_update(self._delta(), action.coding)
        listed = make_chunk_list(data)
        self._updates[command.command_id] = (data, listed)
        digest = hashlib.sha256(data).hexdigest()
        result = TrainResult(
            round=action.round,
            cohort=action.cohort,
            update=UpdateManifest(coding=action.coding, base=action.base.digest, digest=digest, chunks=listed),
            metrics={"num-examples": TRAINABLE_SAMPLES, "clma-loss": 0.5},
        )
        reply = self._reply(command, status="ok", result=result)
        self._replies[command.command_id] = reply
        self._line.publish(self._topics.reply(self.id), encode(reply))

    def _delta(self) -> Weights:
        """Alike within a family; the rest is this gateway's own."""
        common = np.random.default_rng(self._family)
        delta: Weights = {}
        for name, shape in self._plan.shapes.items():
            shared, own = common.normal(size=shape), self._rng.normal(size=shape)
            delta[name] = (1e-3 * (FAMILY_SHARE * shared + (1 - FAMILY_SHARE) * own)).astype(np.float32)
        return delta

    async def _download(self, reference: BlobReference) -> None:
        arrived: asyncio.Queue[tuple[str, bytes]] = asyncio.Queue()
        line = MqttLine(
            f"{self.id}.base",
            lambda topic, payload: arrived.put_nowait((topic, payload)),
            clean_start=True,
            session_expiry_s=0,
            receive_maximum=DOWNLOAD_WINDOW,
        )
        await line.open(self._plan.host, self._plan.port)
        try:
            line.subscribe(self._topics.chunk(reference.chunk_list, 0))
            listed = read_chunk_list((await arrived.get())[1], reference)
            await self._chunks(line, arrived, reference.digest, listed)
            self._account.downloads += 1
        finally:
            self._settle(line)

    async def _chunks(
        self, line: MqttLine, arrived: "asyncio.Queue[tuple[str, bytes]]", digest: str, listed: ChunkList
    ) -> None:
        wanted = {self._topics.chunk(digest, index): index for index in range(len(listed.digests))}
        waiting, asked = list(reversed(wanted)), 0
        while wanted:
            while waiting and asked < DOWNLOAD_WINDOW:
                line.subscribe(waiting.pop())
                asked += 1
            topic, payload = await arrived.get()
            if topic in wanted:
                check_chunk(payload, wanted.pop(topic), listed)
                line.unsubscribe(topic)
                asked -= 1

    async def _grant(self, grant: ChunkGrant) -> None:
        if not grant.indices:
            if self._updates.pop(grant.command_id, None) is not None:
                self._account.updates_taken += 1
            if self._up is not None and not self._updates:
                up, self._up = self._up, None
                self._settle(up)
            return
        held = self._updates.get(grant.command_id)
        if held is None:
            return
        data, listed = held
        parts = list(chunks(data, listed.chunk_bytes))
        up = await self._up_line()
        for index in grant.indices:
            topic = self._topics.upload_chunk(self.id, grant.digest, index)
            if not up.is_sending(topic):
                up.publish(topic, parts[index])

    async def _up_line(self) -> MqttLine:
        async with self._opening:
            if self._up is None or self._up.lost.is_set():
                up = MqttLine(f"{self.id}.up", lambda *_: None, clean_start=True, session_expiry_s=0, receive_maximum=8)
                await up.open(self._plan.host, self._plan.port)
                self._up = up
            return self._up

    def _reply(self, command: Command, **content: object) -> Reply:
        named = {"gateway": self.id, "boot_id": self._boot_id, "command_id": command.command_id}
        return Reply.model_validate({**named, **content})

    def _presence(self, *, online: bool) -> bytes:
        return encode(Presence(gateway=self.id, online=online, boot_id=self._boot_id, connection=1))

    def _state(self) -> bytes:
        state = State(
            gateway=self.id,
            boot_id=self._boot_id,
            agent_version="load",
            bundle=self._plan.bundle,
            weights=self._plan.weights,
            weights_version=1,
            cohort="root",
            ota_state="idle",
            trusted=TrustedVersions(),
            clock=ClockTrust(trusted=True, floor_s=0.0),
            trainable_samples=TRAINABLE_SAMPLES,
            training=False,
        )
        return encode(state)

    def _flag(self) -> bytes:
        body = FlagEvent(
            flag_id=hashlib.sha256(f"{self.id}|1".encode()).hexdigest(),
            monitor=MONITOR_NAME,
            firing=1,
            bundle=self._plan.bundle,
            weights=self._plan.weights,
            weights_version=1,
            cohort="root",
            first_drifted_sample="s0",
            first_drifted_time_s=0.0,
            statistic=1.0,
            threshold=0.1,
            trainable_samples=TRAINABLE_SAMPLES,
        )
        return encode(Event(gateway=self.id, epoch="load", sequence=1, low=1, time_s=0.0, body=body))


async def simulate(plan: Plan, orders: "asyncio.Queue[str]", say: Callable[[str], None]) -> Account:
    """Run a process's gateways until ``end``."""
    account = Account()
    fleet = [SimulatedGateway(plan, name, place % plan.families, account) for place, name in enumerate(plan.gateways)]
    await _connect_all(fleet)
    say("ready")
    flags: Sequence[asyncio.Task[None]] = ()
    while (order := await orders.get()) != "end":
        if order == "flag":
            flags = [asyncio.create_task(gateway.flag()) for gateway in fleet]
    for task in flags:
        task.cancel()
    for gateway in fleet:
        gateway.close()
    await asyncio.sleep(0.2)
    return account


async def _connect_all(fleet: Sequence[SimulatedGateway]) -> None:
    turn = asyncio.Semaphore(CONNECTING)

    async def connect(gateway: SimulatedGateway) -> None:
        async with turn:
            await gateway.connect()

    await asyncio.gather(*(connect(gateway) for gateway in fleet))


async def _main(plan: Plan) -> Account:
    orders: asyncio.Queue[str] = asyncio.Queue()
    loop = asyncio.get_running_loop()

    def listen() -> None:
        for line in sys.stdin:
            loop.call_soon_threadsafe(orders.put_nowait, line.strip())
        loop.call_soon_threadsafe(orders.put_nowait, "end")

    threading.Thread(target=listen, name="orders", daemon=True).start()
    return await simulate(plan, orders, lambda word: print(word, flush=True))


def main() -> None:
    """Read the plan, run, write the account."""
    plan = Plan(**json.loads(sys.stdin.readline()))
    print(json.dumps(asdict(asyncio.run(_main(plan)))), flush=True)


if __name__ == "__main__":
    main()
