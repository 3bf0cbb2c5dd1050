"""One run: clients whose streams shift follow them by one arm's rates, and average what they share."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edge_agent.drift.label_shift import estimate_shares, softmax
from edge_agent.training.fed_ade import Sight, label_free_calibration
from edge_agent.training.online_adapter import AdapterSettings, OnlineAdapter
from edge_agent.wire.tensors import Weights
from tests.benchmarks.cohorts_data.real import Samples
from tests.benchmarks.fed_ade_data.nets import SOURCE, Live
from tests.benchmarks.fed_ade_data.schedules import SCHEDULES
from tests.benchmarks.fed_ade_data.tasks import SPARSE, Task

GRAPH = "entropy-sgd"
BATCH, LOCAL_STEPS = 32, 4
FARTHEST = 10.0  # of the release's length: no bound here, so that a rate shows what it does


@dataclass(frozen=True)
class Setting:
    """A task under a schedule, drawn by a seed: the same streams for every arm.

    Args:
        batches: by client and time step.
        shares: that the objective is told, by client and time step: estimated under label shift, else the bundle's.
        release: each batch as the release sees it.
    """

    task: Task
    schedule: str
    seed: int
    live: Live
    batches: Sequence[Sequence[Samples]]
    shares: Sequence[Sequence[NDArray[np.float64]]]
    release: Sequence[Sequence[Sight]]


@dataclass(frozen=True)
class Score:
    """Means over clients and time steps.

    Args:
        served: share that is right as served, before the batch is adapted to.
        adapted: share that is right after it was; what the source reports.
        rate: of the steps; None without any.
    """

    served: float
    adapted: float
    rate: float | None


def draw(task: Task, schedule: str, seed: int) -> Setting:
    """The streams of all clients."""
    live, release = Live(task.bundle), task.bundle.initial_weights()
    calibration = label_free_calibration(task.bundle)
    assert calibration is not None
    prior = calibration.class_prior
    batches, shares, sights = [], [], []
    for client in range(task.clients):
        rng = np.random.default_rng([seed, client, list(SCHEDULES).index(schedule), task.kind == "label"])
        moved = SCHEDULES[schedule](task.steps, rng)
        end = rng.dirichlet(np.full(task.classes, SPARSE)) if task.kind == "label" else np.full(task.classes, 1.0)
        even = np.full(task.classes, 1 / task.classes)
        mine = []
        for share in moved:
            mixed = (1 - share) * even + share * end / end.sum()
            mine.append(task.draw(rng.choice(task.classes, BATCH, p=mixed), float(share), client, rng))
        seen = [_sight(live, release, batch) for batch in mine]
        batches.append(mine)
        sights.append(seen)
        shares.append([estimate_shares(s.probabilities, prior) if task.kind == "label" else prior for s in seen])  # type: ignore[arg-type]  # of a classifier
    return Setting(task, schedule, seed, live, batches, shares, sights)


def untouched(setting: Setting) -> Score:
    """The release, as it is."""
    return _release_score(setting, lambda probabilities, shares: probabilities)


def corrected(setting: Setting) -> Score:
    """The release, its probabilities weighed by the shares of the classes: no training at all."""
    prior = setting.shares[0][0] if setting.task.kind == "covariate" else _prior(setting.task)
    return _release_score(setting, lambda probabilities, shares: probabilities * shares / prior)


def follow(setting: Setting, minimum: float, maximum: float, *, published: bool = False) -> Score:
    """Clients that adapt to every batch and then average what they share.

    Args:
        minimum, maximum: of the rate; equal for a constant one.
        published: shifts are judged raw, by the model that adapts; else scaled, by the release.
    """
    task = setting.task
    rules = AdapterSettings(GRAPH, minimum, maximum, steps=LOCAL_STEPS, farthest=FARTHEST, published=published)
    release = task.bundle.initial_weights()
    clients = [OnlineAdapter(task.bundle, release, rules) for _ in range(task.clients)]
    weights = [release] * task.clients
    served, adapted, rates = [], [], []
    for moment in range(task.steps):
        trained = []
        for number, client in enumerate(clients):
            batch = setting.batches[number][moment]
            own = _sight(setting.live, weights[number], batch)
            served.append(_right(own, batch))
            done = client.adapt(
                {SOURCE: batch.features},
                sight=own if published else setting.release[number][moment],
                shares=setting.shares[number][moment],
            )
            rates.append(done.rate)
            trained.append(client.weights())
        weights = averaged(trained, task.personal)
        for number, (client, own_weights) in enumerate(zip(clients, weights, strict=True)):
            client.load(own_weights)
            batch = setting.batches[number][moment]
            adapted.append(_right(_sight(setting.live, own_weights, batch), batch))
    return Score(float(np.mean(served)), float(np.mean(adapted)), float(np.mean(rates)))


def averaged(trained: Sequence[Weights], personal: frozenset[str]) -> list[Weights]:
    """Each client's weights with the mean of all in the place of what is shared."""
    shared = {
        name: np.asarray(np.mean([weights[name] for weights in trained], axis=0), np.float32)
        for name in trained[0]
        if name not in personal
    }
    return [{**weights, **shared} for weights in trained]


def _release_score(
    setting: Setting, weigh: Callable[[NDArray[np.float64], NDArray[np.float64]], NDArray[np.float64]]
) -> Score:
    right = []
    for batches, shares, sights in zip(setting.batches, setting.shares, setting.release, strict=True):
        for batch, share, sight in zip(batches, shares, sights, strict=True):
            assert sight.probabilities is not None
            right.append(float(np.mean(weigh(sight.probabilities, share).argmax(1) == batch.labels)))
    return Score(float(np.mean(right)), float(np.mean(right)), None)


def _sight(live: Live, weights: Weights, batch: Samples) -> Sight:
    outputs = live.run(weights, {SOURCE: batch.features})
    embedding = next(value for name, value in outputs.items() if name != live.primary)
    return Sight(softmax(outputs[live.primary]), embedding)


def _right(sight: Sight, batch: Samples) -> float:
    assert sight.probabilities is not None
    return float(np.mean(sight.probabilities.argmax(1) == batch.labels))


def _prior(task: Task) -> NDArray[np.float64]:
    calibration = label_free_calibration(task.bundle)
    assert calibration is not None
    return calibration.class_prior
