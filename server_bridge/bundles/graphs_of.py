"""The training graphs of a bundle."""

from collections.abc import Sequence

import onnx

from server_bridge.bundles.checks import for_training, trainable_names
from server_bridge.bundles.gradients.batch_statistics import statistics_names
from server_bridge.bundles.gradients.expansion import expanded
from server_bridge.bundles.gradients.forward import Forward
from server_bridge.bundles.gradients.training_graph import Plan, TrainingGraph, training_graph
from server_bridge.bundles.settings import BuildSettings


def training_graphs(served: onnx.ModelProto, settings: BuildSettings) -> list[TrainingGraph]:
    """Every training graph that the settings ask for.

    Raises:
        DataError: a pattern matches nothing, or an operator above a trainable tensor has no gradient rule (node,
            operator, attribute named).
    """
    planned = plans(served, settings)
    every = {name for plan in planned for name in plan.trainable}
    forward = Forward.read(expanded(for_training(served), every))
    output = served.graph.output[0].name
    return [training_graph(forward, output, plan) for plan in planned]


def plans(served: onnx.ModelProto, settings: BuildSettings) -> list[Plan]:
    """What each training graph does: the whole, then the subsets, each by every optimiser."""
    whole = trained(served, settings)
    return [
        Plan(optimiser, whole, settings.objective(), optimiser, statistics=settings.statistics)
        for optimiser in settings.optimisers
    ]


def trained(served: onnx.ModelProto, settings: BuildSettings) -> list[str]:
    """The tensors that gradients train; running statistics that are renewed are none of them.

    Raises:
        DataError: a pattern matches nothing, or no tensor is left.
    """
    names = trainable_names(served, settings.trainable)
    if settings.statistics == "frozen":
        return names
    renewed = statistics_names(served)
    return [name for name in names if name not in renewed]


def renewed_names(graphs: Sequence[TrainingGraph]) -> list[str]:
    """The running statistics that training graphs renew."""
    return list(dict.fromkeys(name for graph in graphs for name in graph.spec.statistics))
