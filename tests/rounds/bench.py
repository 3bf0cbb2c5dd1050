"""Real store, controller and strategies around a fleet in memory."""

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from edge_agent.errors import EdgeError
from edge_agent.wire.blobs import sha256_hex
from edge_agent.wire.codec import encode
from edge_agent.wire.manifest import Manifest, OutputSpec, TensorSpec, TrainingGraphSpec
from edge_agent.wire.messages import ErrorEvent, Event, FlagEvent
from edge_agent.wire.tensors import Weights, decode_weights, encode_weights
from server_bridge.flower.strategies import StrategySettings
from server_bridge.rounds.adaptation import AdaptationRunner
from server_bridge.rounds.controller import Controller, FlagWatch
from server_bridge.rounds.merging import CohortMerges
from server_bridge.rounds.round_settings import RoundSettings
from server_bridge.rounds.trigger import TriggerParams
from server_bridge.store.bundles import BundleFolder
from server_bridge.store.store import Store, store_url
from tests.fleet.desk import Clock
from tests.flower.memory_fleet import SPECS, MemoryFleet, initial_weights


@dataclass
class MemoryReleases:
    """Releases kept in a list."""

    store: Store
    weights: dict[str, str] = field(default_factory=dict)
    membership: dict[str, str] = field(default_factory=dict)
    released: list[str] = field(default_factory=list)
    adaptations: list[str | None] = field(default_factory=list)
    problem: EdgeError | None = None

    def current(self, bundle: str) -> dict[str, str]:
        return dict(self.weights)

    def members(self, bundle: str) -> dict[str, str]:
        return dict(self.membership)

    def release(
        self,
        bundle: str,
        members: Mapping[str, str],
        weights: Mapping[str, bytes],
        reason: str,
        *,
        adaptation: str | None = None,
    ) -> int:
        if self.problem is not None:
            raise self.problem
        self.weights |= {cohort: self.store.blobs.put(data) for cohort, data in weights.items()}
        self.membership = dict(members)
        needed = {"root", *members.values(), *weights}
        self.weights = {cohort: digest for cohort, digest in self.weights.items() if cohort in needed}
        self.released.append(reason)
        self.adaptations.append(adaptation)
        return len(self.released) + 1


def write_bundle_folder(folder: Path) -> str:
    """A bundle as far as the bridge reads it: its manifest."""
    manifest = Manifest(
        name="made-up",
        kind="regression",
        inputs=[TensorSpec(name="x", dtype="float32", shape=["batch", 4])],
        outputs=[OutputSpec(name="y", dtype="float32", shape=["batch", 1], role="value")],
        loss="mse",
        trainable=list(SPECS),
        training=[
            TrainingGraphSpec(
                name="adam",
                file="train/adam.onnx",
                loss="mse",
                optimiser="adam",
                trainable=[spec.name for spec in SPECS],
                state=["m", "v"],
                scalars=["learning_rate", "step"],
                label_input="label",
            )
        ],
        opset=17,
        minimum_agent_version="0.1.0",
        files={"infer.onnx": "a" * 64, "weights.safetensors": "b" * 64, "train/adam.onnx": "c" * 64},
    )
    payload = encode(manifest)
    digest = sha256_hex(payload)
    (folder / digest).mkdir(parents=True)
    (folder / digest / "manifest.json").write_bytes(payload)
    return digest


class Bench:
    """A bridge without MQTT."""

    def __init__(self, path: Path, fleet: MemoryFleet, strategy: StrategySettings, *, rounds: int = 2) -> None:
        self.fleet = fleet
        self.clock = Clock()
        self.stopping = threading.Event()
        self.store = Store(store_url(path), path / "blobs")
        folder = path / "bundles"
        self.bundle = next(iter(BundleFolder(folder).digests()), None) or write_bundle_folder(folder)
        bundles = BundleFolder(folder)
        self.releases = MemoryReleases(self.store)
        self.releases.weights["root"] = self.store.blobs.put(encode_weights(initial_weights()))
        watch = FlagWatch(self.store, self.releases, bundles, wall=self.clock)
        settings = RoundSettings(
            rounds=rounds,
            timeout_s=2.0,
            training_graph="adam",
            learning_rate=0.01,
            epochs=1,
            batch_size=16,
            min_samples=1,
            max_samples=1000,
            coding="fp32",
            retry_wait_s=0.0,
        )
        self.runner = AdaptationRunner(
            self.store,
            fleet,
            bundles,
            self.releases,
            strategy,
            settings,
            watch.open_flags,
            lambda wait_s: self.stopping.wait(wait_s) if wait_s else self.stopping.is_set(),
            wall=self.clock,
        )
        trigger = TriggerParams(min_flags=1, settle_s=10.0, min_samples=5, min_samples_cap_s=100.0, cooldown_s=50.0)
        self.merges = CohortMerges(self.store, self.releases, wall=self.clock, monotonic=self.clock)
        self.controller = Controller(
            self.store, watch, self.runner, self.merges, trigger, self.stopping, wall=self.clock
        )
        self._sequence = 0

    def flag(self, gateway: str, *, samples: int = 50, weights: str | None = None, bundle: str | None = None) -> str:
        flag_id = sha256_hex(f"{gateway} {self._sequence}".encode())
        body = FlagEvent(
            flag_id=flag_id,
            monitor="loss-rise",
            firing=self._sequence,
            bundle=bundle or self.bundle,
            weights=weights or self.releases.weights["root"],
            weights_version=1,
            cohort="root",
            first_drifted_sample="s",
            first_drifted_time_s=0.0,
            statistic=1.0,
            threshold=0.5,
            trainable_samples=samples,
        )
        self._take(gateway, body)
        return flag_id

    def reasons(self) -> list[str]:
        return [f"{decision.kind}:{decision.reason}" for decision in self.store.decisions.recent()]

    def released(self, cohort: str) -> Weights:
        return decode_weights(self.store.blobs.read(self.releases.weights[cohort]))

    def look(self) -> None:
        """One step of the controller, without its rest."""
        self.controller.look()

    def _take(self, gateway: str, body: FlagEvent | ErrorEvent) -> None:
        event = Event(gateway=gateway, epoch="e", sequence=self._sequence, low=0, time_s=0.0, body=body)
        self._sequence += 1
        self.store.events.take(event, self.clock.now_s)
