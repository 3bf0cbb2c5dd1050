"""The training graphs of a bundle."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase

import onnx

from edge_agent.errors import DataError
from edge_agent.wire.manifest import LabelFreeLossName
from server_bridge.bundles.checks import for_training, trainable_names
from server_bridge.bundles.gradients.batch_statistics import statistics_names
from server_bridge.bundles.gradients.expansion import expanded
from server_bridge.bundles.gradients.forward import Forward
from server_bridge.bundles.gradients.objective import Objective
from server_bridge.bundles.gradients.training_graph import Plan, TrainingGraph, training_graph
from server_bridge.bundles.settings import BuildSettings

GRAPHS_CAP, WITH_HEAD_CAP = 48, 56
"""A manifest lists 64 files, and some are not training graphs of the whole model."""
_SUBSET = re.compile(r"[A-Za-z0-9_-]{1,64}")
_TAKEN = frozenset({"head", "prox", "entropy", "pseudo", "sgd", "momentum", "adam", "adamw"})
"""What names of other graphs begin with."""


def training_graphs(served: onnx.ModelProto, settings: BuildSettings) -> list[TrainingGraph]:
    """Every training graph that the settings ask for.

    Raises:
        DataError: a pattern matches nothing, or an operator above a trainable tensor has no gradient rule (node,
            operator, attribute named).
    """
    planned = plans(served, settings)
    if len(planned) > GRAPHS_CAP:
        raise DataError(
            f"{len(planned)} training graphs are wanted, at most {GRAPHS_CAP} fit into a bundle",
            "choose fewer optimisers or subsets",
        )
    every = {name for plan in planned for name in plan.trainable}
    forward = Forward.read(expanded(for_training(served), every))
    output = served.graph.output[0].name
    return [training_graph(forward, output, plan) for plan in planned]


def plans(served: onnx.ModelProto, settings: BuildSettings) -> list[Plan]:
    """What each training graph does: the whole, the subsets, these with a proximal term, and without labels."""
    whole = trained(served, settings)
    parts = {"": whole} | {name: _subset(name, whole, patterns) for name, patterns in settings.subsets.items()}
    pulled = {f"prox-{name}" if name else "prox": names for name, names in parts.items() if settings.proximal}
    objective = settings.objective()
    return [
        *_by_optimiser(parts, objective, settings),
        *(replace(plan, anchored=True) for plan in _by_optimiser(pulled, objective, settings)),
        *(
            plan
            for loss in settings.label_free
            for plan in _by_optimiser({loss: whole}, _label_free(loss, settings), settings)
        ),
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


def _by_optimiser(parts: Mapping[str, Sequence[str]], objective: Objective, settings: BuildSettings) -> list[Plan]:
    return [
        Plan(
            f"{name}-{optimiser}" if name else optimiser,
            names,
            objective,
            optimiser,
            statistics=settings.statistics,
            weight_decay=settings.weight_decay,
        )
        for name, names in parts.items()
        for optimiser in settings.optimisers
    ]


def _label_free(loss: LabelFreeLossName, settings: BuildSettings) -> Objective:
    if settings.loss not in ("cross-entropy", "binary-cross-entropy"):
        raise DataError(f"the objective {loss!r} is of classes, and {settings.loss!r} has none")
    return Objective(loss)


def _subset(name: str, whole: Sequence[str], patterns: Sequence[str]) -> list[str]:
    """The tensors of a subset, in the model's order.

    Raises:
        DataError: the name cannot be one, or a pattern matches no trainable tensor.
    """
    if not _SUBSET.fullmatch(name) or name.partition("-")[0] in _TAKEN:
        raise DataError(
            f"a subset cannot be named {name!r}",
            f"use up to 64 of a-z, A-Z, 0-9, _ and -; not beginning with {', '.join(sorted(_TAKEN))}",
        )
    for pattern in patterns:
        if not any(fnmatchcase(tensor, pattern.removeprefix("!")) for tensor in whole):
            raise DataError(
                f"subset {name!r}: no trainable tensor matches {pattern.removeprefix('!')!r}",
                f"there are: {', '.join(whole)}",
            )
    barred = [pattern[1:] for pattern in patterns if pattern.startswith("!")]
    wanted = [pattern for pattern in patterns if not pattern.startswith("!")]
    chosen = [tensor for tensor in whole if _matches(tensor, wanted) and not _matches(tensor, barred)]
    if not chosen:
        raise DataError(f"subset {name!r} has no tensor left to train", "give it a pattern of trainable tensors")
    return chosen


def _matches(name: str, patterns: Sequence[str]) -> bool:
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def within_cap(graphs: Sequence[TrainingGraph]) -> list[TrainingGraph]:
    """The training graphs; without the graphs of several steps, where a bundle has no room for their files.

    Args:
        graphs: those of the head among them.

    Raises:
        DataError: they are too many for a bundle.
    """
    if len(graphs) > WITH_HEAD_CAP:
        raise DataError(
            f"{len(graphs)} training graphs are wanted, those of the head among them, at most {WITH_HEAD_CAP} fit",
            "choose fewer optimisers or subsets",
        )
    if sum(len(graph.models) for graph in graphs) <= GRAPHS_CAP:
        return list(graphs)
    return [graph.alone for graph in graphs]


def renewed_names(graphs: Sequence[TrainingGraph]) -> list[str]:
    """The running statistics that training graphs renew."""
    return list(dict.fromkeys(name for graph in graphs for name in graph.spec.statistics))
