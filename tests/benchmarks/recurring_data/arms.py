"""Ways to share models among clients that drift: strategies on Flower's grid, and test oracles."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Protocol

from flwr.app import ConfigRecord
from flwr.serverapp.strategy import FedAvg

from edge_agent.wire.tensors import Weights
from server_bridge.cohorts.candidate_choice import CandidateRule
from server_bridge.cohorts.recognition import RecognitionRule
from server_bridge.cohorts.returns import RETURN_ROUNDS, ReturnRule
from server_bridge.flower.clma import CLMA
from server_bridge.flower.drifts import Flagged
from server_bridge.flower.mixtures import MixtureRule
from server_bridge.flower.records import ROUND_KEY, as_float32, prepare_process, to_record, to_weights
from tests.benchmarks.recurring_data.fleet import ROUNDS, Fleet, Standing
from tests.benchmarks.recurring_data.grid import FleetGrid
from tests.benchmarks.recurring_data.oracles import FedDrift, Ifca, TrueClusters
from tests.benchmarks.recurring_data.patterns import CLIENTS, Pattern


class Arm(Protocol):
    """A way to share models."""

    def time_step(self) -> Standing:
        """Adapt to the data of the fleet's present time step."""
        ...


class FlowerArm:
    """A strategy of Flower's, round by round. Before each round every client judges the model that it has.

    Args:
        make: from who is flagged in a round to the strategy: CLMA, the reference package's, or FedAvg.
        fleet: the clients.
        initial: weights that everybody begins with.
    """

    def __init__(
        self, make: Callable[[Flagged], Any], fleet: Fleet, initial: Weights, *, on_demand: bool = False
    ) -> None:
        prepare_process()
        self.fleet, self.arrays = fleet, to_record(initial)
        self._grid = FleetGrid(fleet)
        self.strategy = make(lambda server_round: self._grid.drifted)
        self._rounds = 0
        self.on_demand = on_demand
        self._known_before: set[str] = set()

    def time_step(self) -> Standing:
        """The rounds of one adaptation."""
        for number in range(ROUNDS):
            self.fleet.round = number
            self._judge()
            if self.on_demand and self._rounds and self._enough(number):
                break
            self._round()
        if isinstance(self.strategy, CLMA):
            self.strategy.end_adaptation()
        return self._standing()

    def _enough(self, number: int) -> bool:
        """On demand: no round without a flag, and after the first one no more if all flagged clients were known."""
        if number == 0:
            self._known_before = set(self.strategy.registry.cohort_ids)
            return not self._grid.drifted
        return not set(self.strategy.registry.cohort_ids) - self._known_before

    def _judge(self) -> None:
        weights = self._standing().weights if self._rounds else [to_weights(self.arrays)] * CLIENTS
        losses = [self.fleet.loss(client, own) for client, own in enumerate(weights)]
        self._grid.drifted = {c + 1 for c, loss in enumerate(losses) if self.fleet.drifted(c, loss)}

    def _round(self) -> None:
        self._rounds += 1
        config = ConfigRecord({ROUND_KEY: self._rounds})
        messages = self.strategy.configure_train(self._rounds, self.arrays, config, self._grid)
        arrays, _ = self.strategy.aggregate_train(self._rounds, self._grid.send_and_receive(messages))
        assert arrays is not None
        self.arrays = arrays

    def _standing(self) -> Standing:
        registry = getattr(self.strategy, "registry", None)
        if registry is None:
            return Standing([to_weights(self.arrays)] * CLIENTS, ["root"] * CLIENTS, 1)
        clusters = [registry.cohort_of(client + 1) for client in range(CLIENTS)]
        models = {cohort: as_float32(registry.params(cohort)) for cohort in set(clusters)}
        return Standing([models[cohort] for cohort in clusters], clusters, len(registry.cohort_ids))


def _ours(fleet: Fleet, initial: Weights, pattern: Pattern) -> Arm:
    return FlowerArm(lambda flagged: _clma(flagged, 0), fleet, initial)


def _ours_merging(fleet: Fleet, initial: Weights, pattern: Pattern) -> Arm:
    return FlowerArm(lambda flagged: _clma(flagged, 0, RECONVERGED), fleet, initial)


def _ours_with_candidates(fleet: Fleet, initial: Weights, pattern: Pattern) -> Arm:
    return FlowerArm(lambda flagged: _clma(flagged, CANDIDATES), fleet, initial)


def _ours_on_demand(fleet: Fleet, initial: Weights, pattern: Pattern) -> Arm:
    return FlowerArm(lambda flagged: _clma(flagged, CANDIDATES), fleet, initial, on_demand=True)


def _clma(flagged: Flagged, candidates: int, reconverged: float | None = None) -> CLMA:
    """The bridge's strategy; losses of these tasks differ by a factor of 25, so that only errors say what is enough."""
    return CLMA(
        flagged=flagged,
        return_rule=ReturnRule(rounds=RETURN_ROUNDS),
        recognition=RecognitionRule(),
        candidates=candidates,
        candidate_rule=CandidateRule(delta=0.0),
        mixture_rule=MixtureRule(),
        reconverged=reconverged,
    )


def _reference(fleet: Fleet, initial: Weights, pattern: Pattern) -> Arm:
    """The reference package's strategy as it comes.

    Raises:
        ModuleNotFoundError: fed-clma is not installed (`make oracle`).
    """
    import clma

    return FlowerArm(lambda _: clma.CLMA(), fleet, initial)


def _fedavg(fleet: Fleet, initial: Weights, pattern: Pattern) -> Arm:
    return FlowerArm(lambda _: FedAvg(), fleet, initial)


CANDIDATES = 3
RECONVERGED = 0.3  # the cosine distance of two cohorts' changes from the root's weights, [strategy] merge_threshold
Make = Callable[[Fleet, Weights, Pattern], Arm]
ARMS: Mapping[str, Make] = MappingProxyType(
    {
        "ours": _ours,
        "ours+merge": _ours_merging,
        "ours+candidates": _ours_with_candidates,
        "ours-on-demand": _ours_on_demand,
        "reference": _reference,
        "FedAvg": _fedavg,
        "IFCA": Ifca,
        "FedDrift": FedDrift,
        "true": TrueClusters,
    }
)
