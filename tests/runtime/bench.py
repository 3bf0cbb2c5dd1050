"""A gateway's parts in a directory, opened again as after a restart, and streams to feed them."""

from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from edge_agent.drift.loss_rise import LossRiseParams
from edge_agent.link.database import Database, open_database
from edge_agent.link.outbox import Outbox
from edge_agent.model.bundle import Bundle
from edge_agent.runtime.screen import Screen
from edge_agent.runtime.screening import Screening
from edge_agent.runtime.watch import DriftWatch
from edge_agent.runtime.watch_rules import WatchRules, rule_alone
from edge_agent.samples.holdout import HoldoutCounts
from edge_agent.samples.record import Label, LabelledRow, SampleBatch
from edge_agent.samples.store import SampleStore
from edge_agent.serving.server import ModelServer, Prepared, Served
from edge_agent.wire.codec import decode
from edge_agent.wire.messages import CountsEvent, FlagEvent
from edge_agent.wire.messages.event import EVENT_CAP_BYTES, Event, EventBody
from tests.training.tiny_bundle import CLASSES, FEATURES, tiny_weights

GATEWAY = "gw1"
BATCH = 4
RIGHT, WRONG = 8.0, -8.0
RULE = LossRiseParams(gamma=1.0, batch_size=BATCH, lookback=1, warmup_batches=2, rearm_batches=2, safety=1.0)


@dataclass
class Parts:
    """What watch and recorder work with; the databases' files outlive it."""

    path: Path
    bundle: Bundle
    rule: LossRiseParams = RULE
    samples_bytes: int | None = None
    rules: WatchRules | None = None
    screen: Screen | None = None
    room: int = 10_000
    agent_db: Database = field(init=False)
    samples_db: Database = field(init=False)

    def __post_init__(self) -> None:
        manifest = self.bundle.manifest
        self.agent_db = open_database(self.path / "agent.db", synchronous="NORMAL")
        self.samples_db = open_database(self.path / "samples.db", synchronous="NORMAL", max_bytes=self.samples_bytes)
        self.outbox = Outbox(self.agent_db, GATEWAY, max_bytes=10**7, max_age_s=10**9)
        self.store = SampleStore(
            self.samples_db,
            inputs=manifest.inputs,
            classes=CLASSES,
            proof_share=0.0,
            max_samples=self.room,
            label_wait_s=10**9,
        )
        self.counts = HoldoutCounts(self.samples_db, kind=manifest.kind, loss=manifest.loss, bucket_s=1000.0)
        self.server = ModelServer(self.bundle, tiny_weights(), "a" * 64, 1, "root")
        rules = self.rules or rule_alone(self.rule, self.bundle)
        self.screening = Screening(self.samples_db, self.outbox, gateway=GATEWAY, screen_of=lambda digest: self.screen)
        self.watch = DriftWatch(self.agent_db, self.outbox, self.store, gateway=GATEWAY, rules=rules)

    @property
    def active(self) -> Prepared:
        return self.server.active

    def activate(self, weights: str, version: int = 2) -> None:
        self.server.swap(replace(self.server.active, weights=weights, version=version))

    def label(self, first: int, losses: list[bool], *, weights: str = "a" * 64) -> list[LabelledRow]:
        """Store samples ``s<first>`` ... and their labels; True: the model was wrong."""
        n = len(losses)
        self.store.add(samples(first, n), served(self.bundle, losses, weights), now_s=0.0)
        return self.store.label([Label(f"s{first + k}", 0) for k in range(n)], now_s=0.0)

    def feed(self, first: int, losses: list[bool], *, weights: str = "a" * 64) -> int:
        return self.watch.consume(self.label(first, losses, weights=weights), self.active)

    def restarted(self, *, rule: LossRiseParams | None = None) -> "Parts":
        """As after a kill: what no transaction has committed is gone."""
        active = self.server.active
        self.close()
        again = Parts(self.path, self.bundle, rule or self.rule, self.samples_bytes, self.rules, self.screen, self.room)
        again.server.swap(active)
        return again

    def events(self) -> list[EventBody]:
        self.outbox.resend_all()
        due = self.outbox.due(float(10**12), limit=10**6)
        events = [decode(Event, data, cap_bytes=EVENT_CAP_BYTES) for _, data in due]
        return [event.body for event in sorted(events, key=lambda event: event.sequence)]

    def flags(self) -> list[FlagEvent]:
        return [body for body in self.events() if isinstance(body, FlagEvent)]

    def counted(self) -> dict[int, tuple[int, int]]:
        """(labelled, right) by bucket, as the last event about it says."""
        found: dict[int, tuple[int, int]] = {}
        for body in self.events():
            if isinstance(body, CountsEvent):
                found |= {bucket.bucket: (bucket.labelled, bucket.right) for bucket in body.buckets}
        return found

    def close(self) -> None:
        self.agent_db.close()
        self.samples_db.close()


def samples(first: int, count: int, *, holdout: bool = False) -> SampleBatch:
    """Samples ``s<first>`` ...; their time is their number."""
    x = np.random.default_rng(first).normal(size=(count, FEATURES)).astype(np.float32)
    return SampleBatch(
        ids=[f"s{first + k}" for k in range(count)],
        times=[float(first + k) for k in range(count)],
        features={"x": x},
        groups=[None] * count,
        holdouts=[holdout] * count,
    )


def served(bundle: Bundle, losses: list[bool], weights: str = "a" * 64) -> Served:
    """Logits that are right or wrong about class 0."""
    outputs: NDArray[np.float32] = np.zeros((len(losses), CLASSES), np.float32)
    outputs[:, 0] = [WRONG if wrong else RIGHT for wrong in losses]
    return Served(outputs, bundle.digest, weights, 1, "root")


def deny(database: Database, table: str, what: str = "INSERT") -> None:
    """From now on SQLite refuses to write this table."""
    with database.transaction():
        database.execute(
            f"CREATE TRIGGER deny_{table}_{what} BEFORE {what} ON {table} BEGIN SELECT RAISE(FAIL, 'denied'); END"
        )


def permit(database: Database, table: str, what: str = "INSERT") -> None:
    with database.transaction():
        database.execute(f"DROP TRIGGER deny_{table}_{what}")
