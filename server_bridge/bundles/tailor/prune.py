"""Taking out of a task's block what its training left unimportant."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from edge_agent.errors import DataError
from edge_agent.model.bundle import Bundle, load_bundle, refuse_taken, write_bundle
from edge_agent.model.inference import InferenceModel
from edge_agent.model.session import Session
from edge_agent.wire.manifest import Manifest
from edge_agent.wire.tensors import Weights
from server_bridge.bundles.calibrate import Outputs, Score
from server_bridge.bundles.data import LabelledData
from server_bridge.bundles.monitors import Noted, Told
from server_bridge.bundles.tailor.blocks import Block, Mix, alphas
from server_bridge.bundles.tailor.build import outputs_of
from server_bridge.bundles.tailor.files import TaskFiles, TaskGraph, optimisers_of, task_files, task_graphs
from server_bridge.bundles.tailor.graph import tailored, with_outputs
from server_bridge.bundles.tailor.scoring import read_task_data, rows_of, scores_by_task, task_monitors

THRESHOLD_DEFAULT = 0.05
_BLOCK_ROWS = 256


@dataclass(frozen=True)
class Removed:
    """A branch that was taken out.

    Args:
        task: whose.
        value: where it was mixed in: the layer's output.
        branch: ``backbone`` or ``from layer <n>``.
        alpha: its mixing coefficient.
        share: of the mix, see `branch_shares`; None for a branch that nothing read any more.
    """

    task: str
    value: str
    branch: str
    alpha: float
    share: float | None


@dataclass(frozen=True)
class Pruning:
    """What a pruning did.

    Args:
        removed: what is gone.
        before, after: each task's loss and accuracy on held-out data.
        values: trainable values before and after.
    """

    removed: tuple[Removed, ...]
    before: Mapping[str, Score]
    after: Mapping[str, Score]
    values: tuple[int, int]


def prune_bundle(
    source: Path,
    data: Path,
    out: Path,
    *,
    threshold: float = THRESHOLD_DEFAULT,
    told: Told = lambda name, share: None,
    noted: Noted = lambda notes: None,
) -> tuple[Bundle, Pruning]:
    """Remove every branch whose share of its mix is below a threshold, and calibrate anew.

    The backbone's own layer is a branch as the proxies are: where it is removed, the task does without that layer.
    Of every mix the largest share stays. The coefficients of what remains are as they were, so that outputs change
    by what the removed branches gave and no more; where that was nothing, but for rounding not at all.

    Args:
        source: a bundle that was tailored, its weights trained.
        data: held-out NPZ: for the scores before and after, and the monitor.
        out: a directory that does not exist, or is empty.
        threshold: in [0, 1); 0 removes nothing.
        told: of the calibration's progress.
        noted: given what an operator should know of the calibration.

    Raises:
        DataError: the bundle or the data are unfit (named).
        StorageError: the bundle cannot be written.
    """
    if not 0 <= threshold < 1:
        raise DataError(f"threshold {threshold:g} is not in [0, 1)")
    refuse_taken(out)
    bundle = load_bundle(source)
    rows = read_task_data(data, bundle.manifest)
    pruned = [
        prune(graph, branch_shares(graph, rows.rows(rows_of(rows, graph.block.task))), threshold)
        for graph in task_graphs(bundle)
    ]
    made = task_files([graph for graph, _ in pruned], bundle.manifest.name, optimisers_of(bundle.manifest))
    before = scores_by_task(bundle.manifest, lambda task: _outputs(bundle, task), rows)
    after = scores_by_task(made.manifest, lambda task: outputs_of(made, task), rows)
    batches = [monitor.batch_size for monitor in bundle.manifest.monitors.values()]
    monitors = task_monitors(
        made.manifest, lambda task: outputs_of(made, task), rows, batch_size=max(batches, default=32), seed=0, told=told
    )
    noted(monitors.notes)
    written = write_bundle(out, *monitors.in_bundle(_relabelled(made, bundle), made.files))
    values = (_values(bundle.initial_weights()), _values(made.weights))
    return written, Pruning(tuple(each for _, removed in pruned for each in removed), before, after, values)


def branch_shares(graph: TaskGraph, rows: LabelledData) -> dict[str, NDArray[np.float64]]:
    """How much of each mix comes from where: the root mean squares of its terms over their sum.

    A coefficient alone says little: a proxy's matrix can grow while its coefficient falls. Where terms are of one
    scale, as NetTailor's proxies are by their batch normalisation, these are the coefficients.

    Args:
        rows: samples of the graph's task, at least one.

    Returns: (branches,) in [0, 1], of sum 1, by the name of the mix's coefficients.

    Raises:
        DataError: there is no row of the task.
    """
    if len(rows) == 0:
        raise DataError(f"the data have no row of task {graph.block.task!r}", "name it in the array 'task'")
    terms = [term for mix in graph.block.mixes for term in mix.terms]
    session = Session(graph.block.task, with_outputs(graph.model, terms).SerializeToString(), {}, threads=1)
    squares, count = np.zeros(len(terms)), 0
    for start in range(0, len(rows), _BLOCK_ROWS):
        block = rows.rows(np.arange(start, min(start + _BLOCK_ROWS, len(rows))))
        values = session.run(block.features)
        squares += [float(np.square(values[term], dtype=np.float64).mean()) * len(block) for term in terms]
        count += len(block)
    sizes = dict(zip(terms, np.sqrt(squares / count), strict=True))
    shares = {}
    for mix in graph.block.mixes:
        own = np.array([sizes[term] for term in mix.terms])
        shares[mix.coefficients] = own / own.sum() if own.sum() > 0 else np.full(len(own), 1 / len(own))
    return shares


def prune(
    graph: TaskGraph, shares: Mapping[str, NDArray[np.float64]], threshold: float
) -> tuple[TaskGraph, list[Removed]]:
    """One task's graph without its unimportant branches, and what these were.

    Args:
        shares: of each mix's branches, see `branch_shares`.
    """
    parameters, block = dict(graph.parameters), graph.block
    removed: list[Removed] = []
    for mix in graph.block.mixes:
        own = shares[mix.coefficients]
        coefficients = alphas(mix, parameters)[: len(own)]
        kept = (own >= threshold) | (own == own.max())
        removed += [
            Removed(block.task, mix.value, branch, float(alpha), float(share))
            for branch, alpha, share, stays in zip(mix.branches, coefficients, own, kept, strict=True)
            if not stays
        ]
        logits = _kept_logits(mix, parameters[mix.coefficients], kept)
        thinner = _thinner(mix, kept.tolist(), nothing=logits.size > int(kept.sum()))
        block = block.without(mix, thinner)
        parameters[mix.coefficients] = logits
    return _without_unread(graph, block, parameters, removed)


def _kept_logits(mix: Mix, logits: NDArray[np.float32], kept: NDArray[np.bool_]) -> NDArray[np.float32]:
    """The logits of what stays, and one for what is gone unless that had nothing: so the coefficients stay."""
    stays = np.append(kept, np.zeros(int(mix.nothing), dtype=np.bool_))
    row = logits[0].astype(np.float64)
    gone = row[~stays]
    left = [row[stays]]
    if gone.size and np.float32(np.exp(gone - row.max()).sum()) > 0:
        left.append(np.array([gone.max() + np.log(np.exp(gone - gone.max()).sum())]))
    return np.concatenate(left)[None].astype(np.float32)


def _thinner(mix: Mix, kept: list[bool], *, nothing: bool) -> Mix | None:
    """The mix of the branches that stay; None where that is the backbone alone, with a coefficient of 1."""
    backbone = mix.backbone and kept[0]
    stays = kept[1:] if mix.backbone else kept
    proxies = tuple(proxy for proxy, stay in zip(mix.proxies, stays, strict=True) if stay)
    return replace(mix, backbone=backbone, proxies=proxies, nothing=nothing) if proxies or nothing else None


def _without_unread(
    graph: TaskGraph, block: Block, parameters: Weights, removed: list[Removed]
) -> tuple[TaskGraph, list[Removed]]:
    """A layer that only removed branches read goes with them."""
    model = tailored(graph.model, block, _only(parameters, block))
    read = {name for node in model.graph.node for name in node.input}
    for mix in block.mixes:
        if mix.coefficients not in read:
            coefficients = alphas(mix, parameters)[: len(mix.branches)]
            removed += [
                Removed(block.task, mix.value, branch, float(alpha), None)
                for branch, alpha in zip(mix.branches, coefficients, strict=True)
            ]
            block = block.without(mix, None)
    return TaskGraph(block, tailored(graph.model, block, _only(parameters, block))), removed


def _only(parameters: Weights, block: Block) -> Weights:
    names = {*block.head, *(mix.coefficients for mix in block.mixes)}
    names |= {proxy.weight for mix in block.mixes for proxy in mix.proxies}
    return {name: value for name, value in parameters.items() if name in names}


def _relabelled(made: TaskFiles, bundle: Bundle) -> Manifest:
    """What the former bundle says for people stays."""
    kept = {"features": bundle.manifest.features, "label_names": bundle.manifest.label_names}
    return made.manifest.model_copy(update=kept)


def _outputs(bundle: Bundle, task: str) -> Outputs:
    model = InferenceModel(bundle, bundle.initial_weights(), task=task)
    return lambda features: model.run(features)[model.primary]


def _values(weights: Weights) -> int:
    return sum(int(tensor.size) for tensor in weights.values())
