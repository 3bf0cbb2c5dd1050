"""Test oracles in our own words: IFCA, FedDrift and the true clustering."""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.cluster.hierarchy import fcluster, linkage
from scipy.spatial.distance import squareform

from edge_agent.wire.tensors import Weights
from tests.benchmarks.cohorts_data.real import Samples
from tests.benchmarks.recurring_data.fleet import ROUNDS, Fleet, Standing, joined, mean_weights
from tests.benchmarks.recurring_data.patterns import CLIENTS, Pattern


class TrueClusters:
    """Knows every client's concept: one model a concept, kept while nobody has it."""

    def __init__(self, fleet: Fleet, initial: Weights, pattern: Pattern) -> None:
        self._fleet, self._concepts = fleet, pattern.concepts
        self._models: dict[int, Weights] = {}
        self._own = [initial] * CLIENTS

    def time_step(self) -> Standing:
        """Train each concept's model on the data of its clients; a new one begins with what these had."""
        fleet = self._fleet
        concepts = [int(concept) for concept in self._concepts[fleet.now]]
        for client, concept in enumerate(concepts):
            if fleet.now and concept != self._concepts[fleet.now - 1][client]:
                fleet.begin_window(client)
        for concept in sorted(set(concepts) - set(self._models)):
            bases = [own for own, mine in zip(self._own, concepts, strict=True) if mine == concept]
            self._models[concept] = mean_weights(bases, [1.0] * len(bases))
        for number in range(ROUNDS):
            fleet.round = number
            learnt = train_all(fleet, {client: [concept] for client, concept in enumerate(concepts)}, self._models)
            self._models.update(learnt)
            fleet.cost.downloads += CLIENTS
            fleet.cost.uploads += CLIENTS
        self._own = [self._models[concept] for concept in concepts]
        return Standing(self._own, [str(concept) for concept in concepts], len(self._models))


class Ifca:
    """As many models as there are concepts; each round each client trains the one with the least loss.

    Source: Ghosh et al. 2020, Algorithm 1, model averaging.
    """

    def __init__(self, fleet: Fleet, initial: Weights, pattern: Pattern) -> None:
        self._fleet = fleet
        self._models = {0: initial} | {k: _drawn_like(initial, fleet.seed, k) for k in range(1, pattern.count)}
        self._chosen = [0] * CLIENTS

    def time_step(self) -> Standing:
        """The rounds of one time step."""
        for number in range(ROUNDS):
            self._fleet.round = number
            self._choose()
            trained = {client: [model] for client, model in enumerate(self._chosen)}
            self._models.update(train_all(self._fleet, trained, self._models))
            self._fleet.cost.downloads += CLIENTS * len(self._models)
            self._fleet.cost.uploads += CLIENTS
        weights = [self._models[model] for model in self._chosen]
        return Standing(weights, [str(model) for model in self._chosen], len(self._models))

    def _choose(self) -> None:
        """Who changes the model has another concept now: older samples are of no use for it."""
        for client in range(CLIENTS):
            losses = {model: self._fleet.loss(client, weights) for model, weights in self._models.items()}
            self._fleet.cost.evaluations += len(losses)
            best = least(losses)
            if not self._fleet.drifted(client, losses[best]) and best != self._chosen[client]:
                self._fleet.begin_window(client)
            self._chosen[client] = best


class FedDrift:
    """Every client scores every model each time step; who is badly served is isolated; models that serve each
    other's data merge. Clients keep all data and train every model in use that some of them belongs to.

    Source: Jothimurugesan et al. 2023, FedDrift; as published all models are sent to all clients in every round.
    """

    def __init__(self, fleet: Fleet, initial: Weights, pattern: Pattern) -> None:
        self._fleet = fleet
        self._models = {0: initial}
        self._names = 1
        self._history: list[list[int]] = [[] for _ in range(CLIENTS)]

    def time_step(self) -> Standing:
        """Choose, isolate, merge, train."""
        in_use = list(self._models)
        self._choose_or_isolate()
        self._merge(in_use)
        chosen = [history[-1] for history in self._history]
        data = {
            (client, model): part
            for client in range(CLIENTS)
            for model in sorted(set(chosen))
            if (part := self._own_data(client, model)) is not None
        }
        for number in range(ROUNDS):
            self._fleet.round = number
            self._round(chosen, data)
        for model in set(self._models) - {name for history in self._history for name in history}:
            del self._models[model]
        return Standing([self._models[model] for model in chosen], [str(model) for model in chosen], len(self._models))

    def _choose_or_isolate(self) -> None:
        known = dict(self._models)
        for client in range(CLIENTS):
            losses = {model: self._fleet.loss(client, weights) for model, weights in known.items()}
            self._fleet.cost.evaluations += len(losses)
            best = least(losses)
            if self._fleet.drifted(client, losses[best]):
                self._models[self._names] = known[best]
                best = self._names
                self._names += 1
            self._history[client].append(best)

    def _merge(self, models: Sequence[int]) -> None:
        data = {model: part for model in models if (part := self._data_of(model))}
        names = list(data)
        losses = np.array([[self._mean_loss(model, data[cluster]) for cluster in names] for model in names])
        for group in merge_groups(cluster_distances(losses), self._fleet.task.gamma):
            kept, *gone = [names[index] for index in group]
            sizes = [float(sum(len(part.labels) for part in data[names[index]].values())) for index in group]
            self._models[kept] = mean_weights([self._models[names[index]] for index in group], sizes)
            for model in gone:
                del self._models[model]
            self._history = [[kept if model in gone else model for model in past] for past in self._history]

    def _data_of(self, model: int) -> dict[int, Samples]:
        """Newest samples of each client that belong to a model."""
        parts = {client: self._own_data(client, model) for client in range(CLIENTS)}
        most = self._fleet.task.samples
        return {
            client: Samples(part.features[-most:], part.labels[-most:])
            for client, part in parts.items()
            if part is not None
        }

    def _own_data(self, client: int, model: int) -> Samples | None:
        times = [then for then, mine in enumerate(self._history[client]) if mine == model]
        return joined([self._fleet.stream.train[then][client] for then in times]) if times else None

    def _mean_loss(self, model: int, data: Mapping[int, Samples]) -> float:
        losses = [self._fleet.net.loss(self._models[model], part) for part in data.values()]
        self._fleet.cost.evaluations += len(losses)
        return float(np.average(losses, weights=[len(part.labels) for part in data.values()]))

    def _round(self, chosen: Sequence[int], data: Mapping[tuple[int, int], Samples]) -> None:
        fleet = self._fleet
        trained: dict[int, list[int]] = {client: [] for client in range(CLIENTS)}
        for client, model in data:
            trained[client].append(model)
        for client, model in enumerate(chosen):
            if fleet.round:
                fleet.drifted(client, fleet.loss(client, self._models[model]))
        fleet.cost.downloads += CLIENTS * len(self._models)
        fleet.cost.uploads += sum(len(models) for models in trained.values())
        self._models.update(train_all(fleet, trained, self._models, data))


def train_all(
    fleet: Fleet,
    models_of: Mapping[int, Sequence[int]],
    models: Mapping[int, Weights],
    data: Mapping[tuple[int, int], Samples] | None = None,
) -> dict[int, Weights]:
    """One round: the mean by samples of each model that somebody trained.

    Args:
        models_of: the models that each client trains.
        data: of a client and model; the client's window if not given.
    """
    learnt: dict[int, list[tuple[Weights, float]]] = {}
    for client, names in models_of.items():
        for name in names:
            samples = fleet.window(client) if data is None else data[client, name]
            trained = fleet.learn(client, models[name], samples)
            learnt.setdefault(name, []).append((trained, float(len(samples.labels))))
    return {name: mean_weights(*zip(*parts, strict=True)) for name, parts in learnt.items()}


def least(losses: Mapping[int, float]) -> int:
    """The model with the least loss, the first of equals."""
    return min(losses, key=lambda model: losses[model])


def cluster_distances(losses: NDArray[np.float64]) -> NDArray[np.float64]:
    """D(i, j) = max(L_ij - L_ii, L_ji - L_jj, 0), L_ij the loss of model i on the data of cluster j."""
    own = np.diag(losses)
    over = losses - own[:, None]
    return np.maximum(np.maximum(over, over.T), 0.0)


def merge_groups(distances: NDArray[np.float64], delta: float) -> list[list[int]]:
    """Which of n clusters become one: complete linkage, merged while the distance is below delta; pairs and more."""
    count = len(distances)
    if count < 2:
        return []
    labels = fcluster(linkage(squareform(distances, checks=False), "complete"), delta, "distance")
    groups = [[int(index) for index in np.flatnonzero(labels == label)] for label in np.unique(labels)]
    return [group for group in groups if len(group) > 1]


def _drawn_like(weights: Weights, seed: int, number: int) -> Weights:
    """Other initial weights: every tensor's entries in another order."""
    rng = np.random.default_rng([seed, number])
    return {name: rng.permutation(tensor.ravel()).reshape(tensor.shape) for name, tensor in weights.items()}
