"""What a Grid must know to turn Flower's messages into commands."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from edge_agent.errors import ConfigError
from edge_agent.wire.manifest import TrainableSpec
from edge_agent.wire.roles import PERSONAL
from edge_agent.wire.tensors import Weights
from edge_agent.wire.updates import Coding
from server_bridge.aggregation.screening import NormLimits

Schedule = Literal["constant", "fed-ade"]

ADAPTATION_NAME_MAX = 32  # a command id also holds round, gateway, kind and content: 128 signs at most


@dataclass(frozen=True, slots=True, kw_only=True)
class GridSettings:
    """One adaptation's orders.

    Attributes:
        adaptation: names it; part of every command id, so never used twice.
        bundle: digest of the bundle that is trained.
        specs: the bundle's trainable tensors, in the manifest's order.
        training_graph: one of the bundle's.
        carried: the tensors that an update by that graph carries, in the same order; all that are shared if not given.
        gateway_graphs: another training graph of the bundle, by the gateway that trains it.
        graph_carries: the tensors of an update by these graphs, by graph.
        learning_rate: of the local optimiser.
        epochs: local passes over the training set.
        batch_size: local batch.
        min_samples: a gateway with fewer refuses.
        max_samples: a gateway with more takes the newest.
        coding: of the updates.
        seed: with round and gateway it gives the local seed.
        evaluate_max_samples: the most samples that an evaluation runs on.
        timeout_s: how long an exchange may take where the strategy does not say.
        evaluate_timeout_s: the same for one of evaluations only.
        node_wait_s: how long a strategy may wait for gateways to come online.
        personal: the values that personal tensors have in every weights blob, the bundle's own; no strategy moves them.
        norms: how long an update may be.
        since_sample: evaluate on samples from this one on, if given.
        schedule: of the local learning rate; under ``fed-ade`` it moves between ``learning_rate_min`` and
            ``learning_rate``.
        send_worse: whether a gateway sends an update that made its held-out loss worse; else it answers with its
            figures only, and counts as one without an update.
        scalars: of the training graph, where its defaults are not wanted; the learning rate is none of them.
        label_shift: whether a training graph without labels is told the estimated shares of the classes.
    """

    adaptation: str
    bundle: str
    specs: tuple[TrainableSpec, ...]
    training_graph: str
    learning_rate: float
    epochs: int
    batch_size: int
    min_samples: int
    max_samples: int
    coding: Coding = "fp16"
    seed: int = 0
    evaluate_max_samples: int = 10_000
    timeout_s: float = 600.0
    evaluate_timeout_s: float = 120.0
    node_wait_s: float = 60.0
    carried: tuple[TrainableSpec, ...] | None = None
    gateway_graphs: Mapping[str, str] = field(default_factory=dict)
    graph_carries: Mapping[str, tuple[TrainableSpec, ...]] = field(default_factory=dict)
    personal: Weights = field(default_factory=dict)
    norms: NormLimits = field(default_factory=NormLimits)
    since_sample: str | None = None
    schedule: Schedule = "constant"
    learning_rate_min: float = 0.0
    label_shift: bool = False
    send_worse: bool = False
    scalars: Mapping[str, float] = field(default_factory=dict)

    @property
    def update_specs(self) -> tuple[TrainableSpec, ...]:
        """The tensors of an update; the others are as they were sent."""
        if self.carried is not None:
            return self.carried
        return tuple(spec for spec in self.specs if spec.role != PERSONAL)

    def graph_of(self, gateway: str) -> str:
        """The training graph that a gateway is ordered to use."""
        return self.gateway_graphs.get(gateway, self.training_graph)

    def specs_of(self, graph: str) -> tuple[TrainableSpec, ...]:
        """The tensors of an update by a training graph."""
        return self.graph_carries.get(graph, self.update_specs)

    def __post_init__(self) -> None:
        if not 1 <= len(self.adaptation) <= ADAPTATION_NAME_MAX:
            raise ConfigError(f"the adaptation's name {self.adaptation!r} must have 1 to {ADAPTATION_NAME_MAX} signs")
        if not min(self.timeout_s, self.evaluate_timeout_s) > 0:
            raise ConfigError(f"timeouts are {self.timeout_s} and {self.evaluate_timeout_s}, they must be positive")
