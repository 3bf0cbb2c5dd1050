"""Which tensors of a bundle leave the gateway, and which never do."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from numpy.typing import NDArray

from edge_agent.wire.errors import WireError
from edge_agent.wire.manifest import Manifest, TrainableSpec, TrainingGraphSpec
from edge_agent.wire.tensors import Weights

PERSONAL = "personal"


def personal_specs(specs: Sequence[TrainableSpec]) -> tuple[TrainableSpec, ...]:
    """The tensors that every gateway has its own values of, in the manifest's order."""
    return tuple(spec for spec in specs if spec.role == PERSONAL)


def graph_named(manifest: Manifest, name: str) -> TrainingGraphSpec:
    """A training graph by name.

    Raises:
        WireError: the bundle has none of that name; those it has are named.
    """
    for graph in manifest.training:
        if graph.name == name:
            return graph
    have = ", ".join(repr(graph.name) for graph in manifest.training) or "none"
    raise WireError("manifest", f"there is no training graph {name!r} (there are: {have})")


def changed_specs(manifest: Manifest, graph: TrainingGraphSpec) -> tuple[TrainableSpec, ...]:
    """The tensors that a training graph changes, in the manifest's order: what it trains, and statistics."""
    changed = {*graph.trainable, *graph.statistics}
    return tuple(spec for spec in manifest.trainable if spec.name in changed)


def update_specs(manifest: Manifest, graph: TrainingGraphSpec) -> tuple[TrainableSpec, ...]:
    """The tensors of an update that a training graph makes: those that it changes and that are not personal."""
    return tuple(spec for spec in changed_specs(manifest, graph) if spec.role != PERSONAL)


def names_of(specs: Sequence[TrainableSpec]) -> frozenset[str]:
    """The tensors' names."""
    return frozenset(spec.name for spec in specs)


def only(weights: Mapping[str, NDArray[Any]], names: Collection[str]) -> dict[str, NDArray[Any]]:
    """The named tensors of some weights."""
    return {name: tensor for name, tensor in weights.items() if name in names}


def overlay(weights: Weights, values: Weights) -> Weights:
    """Weights with some tensors replaced; neither argument is written to.

    Args:
        values: none but tensors that ``weights`` has too.
    """
    return {name: values.get(name, tensor) for name, tensor in weights.items()}
