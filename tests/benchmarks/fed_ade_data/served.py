"""Following as it serves: a gateway's store, server and adaptation on a task's streams, with labels that judge or none.

The worker runs in this process (`tests.runtime.following.WorkerAtHand`); all else is what the agent runs. Every fourth
sample is held out, and its label comes a step later.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from edge_agent.config import AdaptationSection
from edge_agent.link.database import open_database
from edge_agent.ota.startup import startup
from edge_agent.ota.weights_store import WeightsStore
from edge_agent.runtime.adaptation import Adaptation, Surroundings
from edge_agent.runtime.adaptation_work import AdaptationWork
from edge_agent.samples.record import Label, SampleBatch
from edge_agent.samples.store import SampleStore
from edge_agent.serving.server import ModelServer
from edge_agent.training.job import WorkerLimits
from tests.benchmarks.cohorts_data.real import Samples
from tests.benchmarks.fed_ade_data.fleet import BATCH, LOCAL_STEPS, draw
from tests.benchmarks.fed_ade_data.nets import SOURCE
from tests.benchmarks.fed_ade_data.tasks import TASKS, Kind, Task
from tests.runtime.following import WorkerAtHand

RATE = 0.1
"""The same for every task: what gains on one and harms on another (ADR 0013)."""
HELD_EVERY, LOOK_EVERY_S, JUDGED_WITHIN_S = 4, 1.0, 20.0
ARMS = ("release", "no labels", "labels judge")
CHOICES: tuple[tuple[str, Kind], ...] = (("digits", "covariate"), ("gas", "covariate"))


@dataclass(frozen=True)
class Served:
    """Share that was right as served, a mean over clients and time, in percent; and what took overlays off."""

    task: str
    kind: str
    schedule: str
    seed: int
    arm: str
    right: float
    worse: int


def serve_all(seeds: Iterable[int], work: Path, data: Path, schedule: str = "square") -> Iterator[Served]:
    """Every task under every arm, seed by seed."""
    tasks = {(name, kind): TASKS[name](data, work, kind) for name, kind in CHOICES}
    for seed in seeds:
        for (name, kind), task in tasks.items():
            setting = draw(task, schedule, seed)
            for arm in ARMS:
                folder = work / f"{name}-{kind}-{seed}-{arm.replace(' ', '-')}"
                shares = [
                    serve(task, batches, arm, folder / str(client)) for client, batches in enumerate(setting.batches)
                ]
                right, worse = float(np.mean([100 * share for share, _ in shares])), sum(count for _, count in shares)
                yield Served(name, kind, schedule, seed, arm, right, worse)


def serve(task: Task, batches: Sequence[Samples], arm: str, folder: Path) -> tuple[float, int]:
    """Share that was right, and how often labels ended what was followed."""
    folder.mkdir(parents=True)
    database = open_database(folder / "samples.db", synchronous="NORMAL")
    store = SampleStore(
        database,
        inputs=task.bundle.manifest.inputs,
        classes=task.classes,
        proof_share=0.0,
        max_samples=20_000,
        label_wait_s=1e9,
    )
    models = WeightsStore(folder / "models", task.bundle)
    loaded = startup(models).loaded
    slot = loaded.slot
    server = ModelServer(loaded.bundle, loaded.weights, slot.weights, slot.version, slot.cohort)
    clock = _Clock()
    section = AdaptationSection(
        online=True,
        eta_min=RATE,
        eta_max=RATE,
        steps=LOCAL_STEPS,
        batch_size=BATCH - BATCH // HELD_EVERY,
        interval_s=LOOK_EVERY_S,
        max_swaps_per_hour=3600,
        farthest=1.0,
        judge_within_s=JUDGED_WITHIN_S if arm == ARMS[2] else 365 * 86_400.0,
    )
    worker = AdaptationWork(section, folder, database.path, WorkerAtHand(folder / "work"), WorkerLimits())
    around = Surroundings(lambda: clock.served, lambda: False, lambda: True, lambda: 0)
    adaptation = Adaptation(section, server, models, worker, around, monotonic_s=lambda: clock.now_s)
    right: list[float] = []
    late: list[Label] = []
    for moment, samples in enumerate(batches):
        batch = _batch(moment, samples)
        made = server.process(batch)
        right.append(float((made.outputs.argmax(axis=1) == samples.labels).mean()))
        store.add(batch, made, clock.now_s)
        if arm == ARMS[2] and late:
            store.label(late, clock.now_s)
        told = zip(batch.ids, samples.labels.tolist(), batch.holdouts, strict=True)
        late = [Label(name, int(value)) for name, value, held in told if held]
        clock.served += len(batch.ids)
        clock.now_s += 1.01 * LOOK_EVERY_S
        if arm != ARMS[0]:
            adaptation.look()
            adaptation.look()
    database.close()
    return float(np.mean(right)), adaptation.status.dropped.get("worse", 0)


def table(results: Sequence[Served]) -> str:
    """A row a task: each arm's mean and the paired difference to the release with its standard error over seeds."""
    lines = [f"| shift | data | {' | '.join(ARMS)} | found worse |", "|---|---|---|---|---|---|"]
    for name, kind in CHOICES:
        of = {arm: [one for one in results if (one.task, one.kind, one.arm) == (name, kind, arm)] for arm in ARMS}
        alone = np.array([one.right for one in of[ARMS[0]]])
        cells = [f"{alone.mean():.1f}"]
        for arm in ARMS[1:]:
            right = np.array([one.right for one in of[arm]])
            gained = right - alone
            error = f" ± {gained.std(ddof=1) / len(gained) ** 0.5:.1f}" if len(gained) > 1 else ""
            cells.append(f"{right.mean():.1f} ({gained.mean():+.1f}{error})")
        lines.append(f"| {kind} | {name} | {' | '.join(cells)} | {sum(one.worse for one in of[ARMS[2]])} |")
    return "\n".join(lines)


@dataclass
class _Clock:
    """A step a batch."""

    now_s: float = 0.0
    served: int = 0


def _batch(moment: int, samples: Samples) -> SampleBatch:
    count = len(samples.labels)
    ids, held = [f"s{moment}-{row}" for row in range(count)], [row % HELD_EVERY == 0 for row in range(count)]
    features = {SOURCE: samples.features.astype(np.float32)}
    return SampleBatch(ids, [float(moment)] * count, features, holdouts=held)
