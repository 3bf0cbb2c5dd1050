"""What an adaptation's rounds ask of the gateways, and the order that a round makes of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from edge_agent.wire.roles import names_of, only, personal_specs
from edge_agent.wire.tensors import Weights
from edge_agent.wire.updates import Coding
from server_bridge.flower.settings import GridSettings, Schedule
from server_bridge.store.adaptations import Adaptation
from server_bridge.store.bundles import BundleFolder


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundSettings:
    """What every round asks of the gateways.

    Attributes:
        rounds: of one adaptation.
        first_learning_rate: of round 1, None: as the others. Cohorts are told apart by the direction of
            the changes, and small steps keep it: on the demo's net a third of the rate raises the cosine
            within families from about 0.40 to 0.50 and across from 0.18 to 0.23 (cut 0.35).
        attempts: how often a round is tried that nobody answered, or a first round that none of the
            flagged gateways answered, before the adaptation fails.
        retry_wait_s: rest before such a round is tried again.
        evaluate_timeout_s: for each candidate that a gateway evaluates before a round.
        schedule, learning_rate_min, label_shift, send_worse, gateway_graphs, scalars: as in the orders' settings.
    """

    rounds: int
    timeout_s: float
    training_graph: str
    learning_rate: float
    epochs: int
    batch_size: int
    min_samples: int
    max_samples: int
    coding: Coding
    seed: int = 0
    attempts: int = 3
    retry_wait_s: float = 10.0
    first_learning_rate: float | None = None
    evaluate_timeout_s: float = 120.0
    gateway_graphs: Mapping[str, str] = field(default_factory=dict)
    schedule: Schedule = "constant"
    learning_rate_min: float = 0.0
    label_shift: bool = False
    send_worse: bool = False
    scalars: Mapping[str, float] = field(default_factory=dict)

    def learning_rate_of(self, number: int) -> float:
        """The gateways' learning rate in a round, counted from 1."""
        if number == 1 and self.first_learning_rate is not None:
            return self.first_learning_rate
        return self.learning_rate


def grid_settings(
    settings: RoundSettings, bundles: BundleFolder, adaptation: Adaptation, arrays: Weights
) -> GridSettings:
    """What the next round of an adaptation orders.

    Args:
        settings: what every round asks.
        bundles: the adaptation's bundle is among them.
        adaptation: the rounds it has done give the number of this one.
        arrays: the root cohort's weights; personal tensors keep their values in them.

    Raises:
        DataError: the bundle is absent or altered, or a training graph that is asked for is not in it.
    """
    specs = tuple(bundles.manifest(adaptation.bundle).trainable)
    return GridSettings(
        adaptation=adaptation.id,
        bundle=adaptation.bundle,
        specs=specs,
        personal=only(arrays, names_of(personal_specs(specs))),
        training_graph=settings.training_graph,
        carried=bundles.update_specs(adaptation.bundle, settings.training_graph),
        gateway_graphs=settings.gateway_graphs,
        graph_carries={
            graph: bundles.update_specs(adaptation.bundle, graph) for graph in settings.gateway_graphs.values()
        },
        learning_rate=settings.learning_rate_of(adaptation.rounds_done + 1),
        epochs=settings.epochs,
        batch_size=settings.batch_size,
        min_samples=settings.min_samples,
        max_samples=settings.max_samples,
        coding=settings.coding,
        seed=settings.seed,
        timeout_s=settings.timeout_s,
        evaluate_timeout_s=settings.evaluate_timeout_s,
        schedule=settings.schedule,
        learning_rate_min=settings.learning_rate_min,
        label_shift=settings.label_shift,
        send_worse=settings.send_worse,
        scalars=settings.scalars,
    )
