"""Local work with every part real, and orders for it."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from edge_agent.link.blob_store import BlobStore
from edge_agent.link.database import open_database
from edge_agent.link.download import Downloader
from edge_agent.link.outbox import Outbox
from edge_agent.link.settings import BrokerSettings
from edge_agent.link.upload import Uploader
from edge_agent.model.bundle import Bundle
from edge_agent.runtime.local_work import LocalWork, OperatorLimits
from edge_agent.runtime.model_in_service import Serving
from edge_agent.runtime.orders import OrderFailed
from edge_agent.training.job import WorkerLimits
from edge_agent.training.residual import Residuals
from edge_agent.training.supervisor import TrainingSupervisor
from edge_agent.wire.blobs import BlobReference, make_reference
from edge_agent.wire.codec import decode
from edge_agent.wire.messages import (
    Command,
    Evaluate,
    EvaluateResult,
    Train,
    TrainResult,
)
from edge_agent.wire.messages.command import CommandAction
from edge_agent.wire.messages.event import EVENT_CAP_BYTES, Event, EventBody
from edge_agent.wire.tensors import encode_weights
from tests.broker import CLOSED_PORT
from tests.link.peers import TOPICS
from tests.runtime.desk import GATEWAY
from tests.training.tiny_bundle import tiny_weights

BASE = encode_weights(tiny_weights(3))
SAMPLES = 100
ENDLESS = 1000
LONG_S = 60.0


def never() -> bool:
    return False


@dataclass
class Bench:
    """Local work with every part real; without a broker its weights are there already."""

    path: Path
    bundle: Bundle
    samples_db: Path
    port: int = CLOSED_PORT
    enabled: bool = True
    min_samples: int = 1
    max_rounds_per_hour: int = 100
    max_duration_s: float = LONG_S

    def __post_init__(self) -> None:
        broker = BrokerSettings("127.0.0.1", self.port)
        self.serving = Serving(self.bundle.digest, self.bundle.path, None)
        self.answers: list[Serving] = []
        self.held: dict[str, bytes] = {}
        self.database = open_database(self.path / "agent.db", synchronous="NORMAL")
        self.outbox = Outbox(self.database, GATEWAY, max_bytes=10**7, max_age_s=10**9)
        self.blobs = BlobStore(self.path / "base")
        self.uploader = Uploader(broker, f"{GATEWAY}.up", TOPICS, GATEWAY, self.path / "updates")
        self.supervisor = TrainingSupervisor(self.path / "work")
        self.work = LocalWork(
            self.supervisor,
            Downloader(broker, f"{GATEWAY}.base", TOPICS, self.blobs, silence_s=0.2),
            self.blobs,
            self.uploader,
            self.outbox,
            limits=OperatorLimits(
                enabled=self.enabled,
                min_samples=self.min_samples,
                max_rounds_per_hour=self.max_rounds_per_hour,
                max_duration_s=self.max_duration_s,
                worker=WorkerLimits(nice=0),
            ),
            serving=lambda: self.answers.pop(0) if self.answers else self.serving,
            samples_db=self.samples_db,
            held=lambda digest: self.held.get(digest),
            residuals=Residuals(self.path / "residuals"),
        )

    def hold(self, data: bytes = BASE) -> BlobReference:
        self.blobs.put(data)
        return make_reference(data)[0]

    def train(
        self,
        command_id: str = "c1",
        *,
        base: BlobReference | None = None,
        ended: Callable[[], bool] = never,
        within_s: float = LONG_S,
        **changes: object,
    ) -> TrainResult:
        action = train_action(self.bundle, base or self.hold(), **changes)
        return self.work.train(command(command_id, action), action, ended, time.monotonic() + within_s)

    def evaluate(self, command_id: str, weights: BlobReference, **config: bool) -> EvaluateResult:
        action = Evaluate(bundle=self.bundle.digest, weights=weights, config=config)
        return self.work.evaluate(command(command_id, action), action, never, time.monotonic() + LONG_S)

    def refusal(self, **changes: object) -> OrderFailed:
        with pytest.raises(OrderFailed) as caught:
            self.train(**changes)  # type: ignore[arg-type]
        return caught.value

    def events(self) -> list[EventBody]:
        self.outbox.resend_all()
        return [
            decode(Event, data, cap_bytes=EVENT_CAP_BYTES).body for _, data in self.outbox.due(float(10**12), 10**6)
        ]

    def jobs(self) -> int:
        return len(list((self.path / "work").iterdir()))

    def close(self) -> None:
        self.supervisor.stop()
        self.database.close()


def train_action(served: Bundle, base: BlobReference, **changes: object) -> Train:
    fields: dict[str, object] = {
        "adaptation": "a1",
        "round": 3,
        "bundle": served.digest,
        "base": base,
        "cohort": "c7",
        "training_graph": "sgd",
        "learning_rate": 0.5,
        "epochs": 2,
        "batch_size": 8,
        "min_samples": 4,
        "max_samples": 1000,
        "seed": 7,
        "coding": "fp32",
    }
    return Train.model_validate({**fields, **changes})


def command(command_id: str, action: CommandAction) -> Command:
    return Command(
        fleet="fleet",
        gateway=GATEWAY,
        boot_id="b1",
        command_id=command_id,
        sequence=1,
        duration_s=LONG_S,
        action=action,
    )
