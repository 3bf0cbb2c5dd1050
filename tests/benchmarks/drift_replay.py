"""``python -m tests.benchmarks drift_replay [--save]``: real recordings replayed as a stranger would replay them.

A net is built and fitted on the beginning of each recording, its monitors are calibrated on other rows of it with
nothing asked for, and the rest is replayed, with its labels and without: gas sensors (batches 2-6), a turbine's NOx
(2012-2014, hourly), Elec2 (from its 18,000th half hour on). What fired is printed as `edge-agent drift replay` does.
"""

import argparse
import gzip
import io
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from numpy.typing import NDArray
from onnx import helper

from edge_agent.cli.drift_chart import drift_chart
from edge_agent.cli.drift_replayed import Replayed
from edge_agent.cli.drift_replaying import Wanted, replay_of
from edge_agent.cli.drift_report import lines
from edge_agent.model.bundle import Bundle
from edge_agent.wire.manifest import FeatureSpec, LossName
from server_bridge.bundles.build import BuildSettings, build_bundle
from server_bridge.bundles.fit import FitSettings, fit_bundle
from tests.benchmarks.report import RESULTS, keep
from tests.bundles.nets import model_of
from tests.shared_data import DATA

NAME = "drift_replay"
TITLE = "Real recordings replayed"
EPOCHS, SEED = 40, 0
PICTURE = ("turbine", True)
HOUR_S, YEAR_2012_S = 3600.0, 1_325_376_000.0
TURBINE = {"AT": "degC", "AP": "mbar", "AH": "%", "AFDP": "mbar", "GTEP": "mbar", "TIT": "degC", "TAT": "degC"}
TURBINE |= {"TEY": "MWh", "CDP": "mbar"}

Arrays = dict[str, NDArray[Any]]


@dataclass(frozen=True)
class Recorded:
    """Rows to train on, to calibrate with, and to replay: arrays ``x``, ``label`` and perhaps ``time`` each.

    ``parts`` are rows in the later ones at which the net's accuracy is told apart.
    """

    loss: LossName
    outputs: int
    train: Arrays
    calibration: Arrays
    later: Arrays
    features: tuple[FeatureSpec, ...] = ()
    parts: tuple[int, ...] = ()


def gas() -> Recorded:
    """Batch 1 in two random parts, then batches 2 to 6 in their order."""
    first = _gas_batch(1)
    order = np.random.default_rng(SEED).permutation(len(first["x"]))
    later = [_gas_batch(number) for number in range(2, 7)]
    joined = {name: np.concatenate([batch[name] for batch in later]) for name in first}
    ends = np.cumsum([len(batch["label"]) for batch in later])
    held = _rows(first, np.sort(order[245:]))
    parts = (0, ends[0] // 2, *ends[:-1].tolist())
    return Recorded("cross-entropy", 6, _rows(first, order[:245]), held, joined, parts=parts)


def turbine() -> Recorded:
    """2011 fortnight by fortnight, every other to train; then three years. The target is NOx."""
    years = [np.loadtxt(_text(f"gas_turbine/gt_{year}.csv.gz"), delimiter=",") for year in range(2011, 2015)]
    first = years[0]
    trains = np.arange(len(first)) // 336 % 2 == 0
    times = YEAR_2012_S + HOUR_S * (np.arange(sum(map(len, years))) - len(first))
    every: Arrays = {
        "x": np.concatenate(years)[:, :9].astype(np.float32),
        "label": np.concatenate(years)[:, 10],
        "time": times,
    }
    start = np.arange(len(first))
    features = tuple(FeatureSpec(name=name, unit=unit) for name, unit in TURBINE.items())
    later = _rows(every, np.arange(len(first), len(times)))
    return Recorded("mae", 1, _rows(every, start[trains]), _rows(every, start[~trains]), later, features)


def elec2() -> Recorded:
    """9,000 half hours to train, 9,000 to calibrate, the rest."""
    table = np.loadtxt(_text("elec2.csv.gz"), delimiter=",", skiprows=1)
    every: Arrays = {
        "x": table[:, :6].astype(np.float32),
        "label": table[:, 6].astype(np.int64),
        "time": 1800.0 * np.arange(len(table)),
    }
    names = ("period", "nswprice", "nswdemand", "vicprice", "vicdemand", "transfer")
    train, calibration, later = np.split(np.arange(len(table)), (9000, 18_000))
    features = tuple(FeatureSpec(name=name) for name in names)
    return Recorded("cross-entropy", 2, _rows(every, train), _rows(every, calibration), _rows(every, later), features)


RECORDINGS: Mapping[str, Callable[[], Recorded]] = MappingProxyType({"gas": gas, "turbine": turbine, "elec2": elec2})


def replays(name: str, recorded: Recorded, folder: Path) -> Iterator[tuple[bool, Replayed]]:
    """The recording's later part with its labels, and without."""
    for part, arrays in (("train", recorded.train), ("calibration", recorded.calibration), (name, recorded.later)):
        np.savez(folder / f"{part}.npz", **arrays)  # type: ignore[arg-type]  # numpy's stub mixes in a keyword
    unlabelled = {key: array for key, array in recorded.later.items() if key != "label"}
    np.savez(folder / f"{name}-unlabelled.npz", **unlabelled)  # type: ignore[arg-type]  # as above
    build = BuildSettings(["w*", "b*"], recorded.loss, name=name, optimisers=("adam",), features=recorded.features)
    build_bundle(_net(recorded), folder / "calibration.npz", build, folder / "built")
    fit = FitSettings(EPOCHS, SEED)
    bundle = fit_bundle(
        folder / "built", folder / "train.npz", folder / "calibration.npz", fit, folder / "bundle", noted=_print_notes
    )
    if recorded.parts:
        print(f"{name}: accuracy of the net held out, and in parts of what is replayed: {accuracies(recorded, bundle)}")
    for labelled, file in ((True, name), (False, f"{name}-unlabelled")):
        yield labelled, replay_of(Wanted(folder / f"{file}.npz", bundle.path))


def accuracies(recorded: Recorded, bundle: Bundle) -> str:
    """Of the calibrating rows, and of each part of the later ones."""
    later = zip(recorded.parts, (*recorded.parts[1:], len(recorded.later["label"])), strict=True)
    pieces = [recorded.calibration, *(_rows(recorded.later, np.arange(first, last)) for first, last in later)]
    session = ort.InferenceSession(str(bundle.path / "infer.onnx"))
    told = [(session.run(None, {"x": piece["x"]})[0].argmax(axis=1) == piece["label"]).mean() for piece in pieces]
    return ", ".join(f"{one:.2f}" for one in told)


def main(arguments: list[str]) -> None:
    """Replay, print, keep."""
    parser = argparse.ArgumentParser(prog=f"python -m tests.benchmarks {NAME}")
    parser.add_argument("--save", action="store_true", help="keep results and picture under docs/benchmarks")
    save = parser.parse_args(arguments).save
    found: dict[str, Any] = {}
    for name, make in RECORDINGS.items():
        with tempfile.TemporaryDirectory() as folder:
            for labelled, replayed in replays(name, make(), Path(folder)):
                print(f"\n{name}, {'with' if labelled else 'without'} labels")
                print("\n".join(line for line in lines(replayed) if not line.startswith("  to row")))
                found[f"{name}{'' if labelled else ', unlabelled'}"] = _figures(replayed)
                if save and (name, labelled) == PICTURE:
                    (RESULTS / f"{NAME}.svg").write_text(drift_chart(replayed), encoding="utf-8")
    if save:
        print(f"saved: {keep(NAME, TITLE, {'replays': found}).name}")


def _figures(replayed: Replayed) -> dict[str, Any]:
    runs = replayed.monitors.values()
    return {
        "samples": replayed.rows,
        "flags": [[fired.row, fired.monitor, fired.shift] for fired in replayed.fired],
        "monitors": {run.name: {"batches": run.batches, "alarms": run.alarms, "promise": run.promise} for run in runs},
        "faults": [[fault.feature, fault.fault, fault.first_row] for fault in replayed.faults],
        "windows": len(replayed.windows),
        "estimated": sum(window.estimate is not None for window in replayed.windows),
    }


def _print_notes(notes: tuple[str, ...]) -> None:
    for note in notes:
        print(f"note: {note}")


def _rows(arrays: Arrays, rows: NDArray[np.intp]) -> Arrays:
    return {name: array[rows] for name, array in arrays.items()}


def _gas_batch(number: int) -> Arrays:
    rows = [line.split() for line in _text(f"gas_drift/batch{number}.dat.gz")]
    features = np.array([[float(cell.split(":")[1]) for cell in row[1:]] for row in rows], np.float32)
    return {"x": features, "label": np.array([int(row[0].split(";")[0]) - 1 for row in rows])}


def _text(name: str) -> io.TextIOWrapper:
    return io.TextIOWrapper(gzip.open(DATA / name))


def _net(recorded: Recorded) -> onnx.ModelProto:
    """Standardisation by the training rows, then two or three dense layers."""
    features = recorded.train["x"]
    widths = [features.shape[1], 32, *([16] if recorded.outputs == 1 else []), recorded.outputs]
    rng = np.random.default_rng(SEED)
    tensors: Arrays = {"mean": features.mean(axis=0), "deviation": features.std(axis=0) + np.float32(1e-6)}
    nodes = [helper.make_node("Sub", ["x", "mean"], ["c"]), helper.make_node("Div", ["c", "deviation"], ["h0"])]
    for layer, (fan_in, fan_out) in enumerate(pairwise(widths)):
        tensors[f"w{layer}"] = rng.normal(0, np.sqrt(2 / fan_in), (fan_in, fan_out)).astype(np.float32)
        tensors[f"b{layer}"] = np.zeros(fan_out, np.float32)
        last = layer == len(widths) - 2
        nodes.append(helper.make_node("MatMul", [f"h{layer}", f"w{layer}"], [f"m{layer}"]))
        nodes.append(helper.make_node("Add", [f"m{layer}", f"b{layer}"], ["y" if last else f"a{layer}"]))
        if not last:
            nodes.append(helper.make_node("Relu", [f"a{layer}"], [f"h{layer + 1}"]))
    return model_of(nodes, tensors, shape=[widths[0]], output=[widths[-1]])
