"""``edge-agent bundle inspect``: what a bundle is, what trains, and what that costs on this machine."""

import json
from collections.abc import Iterator, Sequence
from math import prod
from pathlib import Path
from typing import Any

from edge_agent.cli.bundle_trial import Tried, tried
from edge_agent.model.bundle import Bundle, load_bundle
from edge_agent.model.trial import buffer_bytes
from edge_agent.wire.manifest import Manifest, TrainingGraphSpec
from edge_agent.wire.scalars import settable

NAMES_SHOWN = 6
_MB = 1e6


def inspect(directory: Path, graphs: Sequence[str], *, measure: bool) -> tuple[dict[str, Any], bool]:
    """Read and check a bundle, and try its graphs.

    Args:
        directory: the bundle's.
        graphs: training graphs to look at; all if empty.
        measure: whether inference and the graphs are run, each in a process of its own.

    Returns: what was found, ready for JSON, and whether the bundle is sound.

    Raises:
        DataError: a file is absent, corrupt or inconsistent, or there is no such graph (named).
    """
    bundle = load_bundle(directory)
    specs = [bundle.training_graph(name) for name in graphs] if graphs else bundle.manifest.training
    found: dict[str, Any] = _described(bundle)
    found["inference"] = _cost(tried(directory)) if measure else {}
    found["graphs"] = [_graph(bundle, spec, directory, measure=measure) for spec in specs]
    problems = [part["problem"] for part in (found["inference"], *found["graphs"]) if part.get("problem")]
    return found | {"problems": problems}, not problems


def lines(found: dict[str, Any]) -> Iterator[str]:
    """What was found, for people."""
    yield f"bundle {found['name']}: {found['kind']} by {found['loss']}, opset {found['opset']}"
    yield f"  digest     {found['digest']}"
    for kind in ("inputs", "outputs"):
        for text in found[kind]:
            yield f"  {kind[:-1]:9}  {text}"
    yield f"  weights    {found['weights']}"
    for text in found["monitors"]:
        yield f"  monitor    {text}"
    if found["inference"]:
        yield "inference"
        yield from _cost_lines(found["inference"], "served")
    for graph in found["graphs"]:
        yield from _graph_lines(graph)
    for problem in found["problems"]:
        yield f"FAIL  {problem}"
    if not found["problems"]:
        yield "sound: every file is as the manifest lists it" + (", and every graph runs" if found["inference"] else "")


def _described(bundle: Bundle) -> dict[str, Any]:
    manifest = bundle.manifest
    classes = "" if manifest.classes is None else f" of {manifest.classes} classes"
    return {
        "name": manifest.name,
        "digest": bundle.digest,
        "kind": manifest.kind + classes,
        "loss": manifest.loss,
        "opset": manifest.opset,
        "inputs": [f"{spec.name} {spec.dtype} {_shape(spec.shape)}" for spec in manifest.inputs],
        "outputs": [f"{spec.name} {spec.dtype} {_shape(spec.shape)}, {spec.role}" for spec in manifest.outputs],
        "weights": _weights(manifest),
        "monitors": [
            f"{name}: batches of {spec.batch_size}, false alarms {spec.false_alarm_rate:g} a {spec.false_alarm_unit}"
            for name, spec in manifest.monitors.items()
        ]
        or ["none: drift goes unnoticed"],
    }


def _weights(manifest: Manifest) -> str:
    values = {spec.name: prod(spec.shape) for spec in manifest.trainable}
    text = f"{len(values)} tensors, {sum(values.values()):,} values, {_megabytes(4 * sum(values.values()))}"
    personal = sum(values[spec.name] for spec in manifest.trainable if spec.role == "personal")
    renewed = sum(values[spec.name] for spec in manifest.trainable if spec.statistic)
    text += f"; {personal:,} of them personal" if personal else ""
    return text + (f"; {renewed:,} running statistics" if renewed else "")


def _graph(bundle: Bundle, spec: TrainingGraphSpec, directory: Path, *, measure: bool) -> dict[str, Any]:
    sizes = {tensor.name: prod(tensor.shape) for tensor in bundle.manifest.trainable}
    fed = [spec.embedding] if spec.embedding else [tensor.name for tensor in bundle.manifest.inputs]
    fed += [spec.label_input] if spec.label_input else []
    described = {
        "name": spec.name,
        "loss": spec.loss,
        "optimiser": spec.optimiser,
        "task": spec.task,
        "tensors": spec.trainable,
        "parameters": sum(sizes[name] for name in spec.trainable),
        "statistics": spec.statistics,
        "fed": [*fed, *spec.class_inputs],
        "scalars": {name: spec.defaults.get(name) for name in settable(spec)},
        "gives": ["loss", *spec.reports],
        "anchored": spec.anchored,
        "buffer_bytes": buffer_bytes(bundle, spec),
    }
    return described | (_cost(tried(directory, spec.name)) if measure else {})


def _cost(found: Tried) -> dict[str, Any]:
    return {
        "problem": found.problem,
        "start_bytes": found.start_bytes,
        "trials": [
            {"batch": each.batch, "run_ms": round(each.run_ms, 4), "peak_bytes": each.peak_bytes}
            for each in found.trials
        ],
    }


def _graph_lines(graph: dict[str, Any]) -> Iterator[str]:
    task = f", task {graph['task']}" if graph["task"] else ""
    pulled = ", drawn to the round's first weights" if graph["anchored"] else ""
    yield f"training graph {graph['name']}: {graph['loss']} by {graph['optimiser']}{task}{pulled}"
    names = ", ".join(graph["tensors"][:NAMES_SHOWN])
    more = f" and {len(graph['tensors']) - NAMES_SHOWN} more" if len(graph["tensors"]) > NAMES_SHOWN else ""
    yield f"  trains     {graph['parameters']:,} parameters in {len(graph['tensors'])} tensors: {names}{more}"
    if graph["statistics"]:
        yield f"  renews     {len(graph['statistics'])} running statistics"
    scalars = ", ".join(f"{name} = {value:g}" for name, value in graph["scalars"].items() if value is not None)
    yield f"  fed        {', '.join(graph['fed'])}; scalars learning_rate{', ' if scalars else ''}{scalars}"
    yield f"  gives      {', '.join(graph['gives'])}, and what it changed"
    yield f"  keeps      {_megabytes(graph['buffer_bytes'])}: parameters and optimiser states, twice"
    if "trials" in graph:
        yield from _cost_lines(graph, "trained on")


def _cost_lines(cost: dict[str, Any], done: str) -> Iterator[str]:
    for trial in cost["trials"]:
        peak, start = trial["peak_bytes"], cost["start_bytes"]
        rows = "1 sample" if trial["batch"] == 1 else f"{trial['batch']} samples"
        yield (
            f"  {rows:10} {done} in {trial['run_ms']:.3g} ms by one thread; the process peaks at {_megabytes(peak)},"
            f" {_megabytes(peak - start)} more than without a bundle"
        )


def _shape(sizes: Sequence[int | str]) -> str:
    return f"({', '.join(str(size) for size in sizes)})"


def _megabytes(size: int) -> str:
    return f"{size / _MB:.2g} MB" if size < 10 * _MB else f"{size / _MB:.0f} MB"


def as_json(found: dict[str, Any]) -> str:
    """The same for machines."""
    return json.dumps(found, indent=2)
