"""Two tasks on each of two gateways, real processes and broker; each gateway trains another task."""

import json
from collections import defaultdict
from pathlib import Path

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from edge_agent.model.bundle import Bundle
from server_bridge.bundles.build import BuildSettings, build_bundle
from server_bridge.bundles.fit import FitSettings, fit_bundle
from server_bridge.bundles.tailor.build import TailorSettings, tailor_bundle
from server_bridge.bundles.tailor.fit import fit_task
from server_bridge.demo.settings_files import amend
from server_bridge.store.adaptations import DONE
from server_bridge.store.store import Store
from tests.broker import Mosquitto
from tests.e2e.fleet import CLEAN_ROWS, DRIFTED_ROWS, ToyFleet
from tests.e2e.toy import CLASSES, FEATURES, Drift, draw

HIDDEN = 32
TASKS = {"press": CLASSES, "weld": 2}
GATEWAYS = ("gw1", "gw2")


def net(weights: dict[str, NDArray[np.float32]]) -> onnx.ModelProto:
    """An MLP of three layers."""
    nodes = [
        helper.make_node("Gemm", ["x", "w1", "b1"], ["h1"]),
        helper.make_node("Relu", ["h1"], ["a1"]),
        helper.make_node("Gemm", ["a1", "w2", "b2"], ["h2"]),
        helper.make_node("Relu", ["h2"], ["a2"]),
        helper.make_node("Gemm", ["a2", "w3", "b3"], ["logits"]),
    ]
    graph = helper.make_graph(
        nodes,
        "toy",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", FEATURES])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["n", CLASSES])],
        [numpy_helper.from_array(value, name) for name, value in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def fresh() -> dict[str, NDArray[np.float32]]:
    rng = np.random.default_rng(0)
    weights: dict[str, NDArray[np.float32]] = {}
    for number, (before, after) in enumerate(((FEATURES, HIDDEN), (HIDDEN, HIDDEN), (HIDDEN, CLASSES)), start=1):
        weights[f"w{number}"] = (rng.normal(size=(before, after)) * (2 / before) ** 0.5).astype(np.float32)
        weights[f"b{number}"] = np.zeros(after, np.float32)
    return weights


def of_tasks(rng: np.random.Generator, count: int) -> dict[str, NDArray[np.generic]]:
    """Both tasks in turn: ``press`` tells four classes, ``weld`` which half they are in."""
    x, label = draw(rng, count)
    task = np.where(np.arange(count) % 2, "weld", "press")
    return {"x": x, "label": np.where(task == "weld", label // 2, label), "task": task}


def bundle_of_tasks(folder: Path) -> Bundle:
    """A backbone fitted on the first task, tailored, its second task fitted."""
    folder.mkdir(parents=True)
    rng = np.random.default_rng(1)
    for name, count in (("train", 1200), ("calibration", 800)):
        x, label = draw(rng, count)
        np.savez(folder / f"{name}.npz", x=x, label=label)
        np.savez(folder / f"{name}_tasks.npz", **of_tasks(rng, 2 * count))  # type: ignore[arg-type]  # numpy's stub mixes in a keyword
    fit = FitSettings(epochs=12, learning_rate=0.01)
    build_bundle(net(fresh()), folder / "calibration.npz", BuildSettings(["*"], "cross-entropy"), folder / "raw")
    whole = fit_bundle(folder / "raw", folder / "train.npz", folder / "calibration.npz", fit, folder / "whole")
    tailor_bundle(
        net(dict(whole.initial_weights())),
        folder / "calibration_tasks.npz",
        TailorSettings({"press": None, "weld": TASKS["weld"]}, name="toy"),
        folder / "tailored",
    )
    given = (folder / "train_tasks.npz", folder / "calibration_tasks.npz", fit)
    return fit_task(folder / "tailored", "weld", *given, folder / "bundle")


def write_streams(fleet: ToyFleet) -> None:
    """Clean rows, then rows of a remounted sensor; a few are of a task that the bundle does not have."""
    for number, gateway in enumerate(GATEWAYS):
        rng = np.random.default_rng(20 + number)
        rows = of_tasks(rng, CLEAN_ROWS + DRIFTED_ROWS)
        x = np.asarray(rows["x"], np.float32)
        x[CLEAN_ROWS:] = Drift("permuted").apply(x[CLEAN_ROWS:])
        rows["task"][5:8] = "mill"
        rows |= {"x": x, "holdout": np.arange(len(x)) % 10 < 2}
        rows["delay"] = rng.uniform(0.05, 0.3, len(x)).astype(np.float32)
        np.savez(fleet.directory / f"{gateway}.npz", **rows)  # type: ignore[arg-type]  # numpy's stub mixes in a keyword
        sink = {"kind": "jsonl", "path": str(fleet.directory / f"{gateway}.jsonl")}
        amend(fleet.agent_settings(gateway), {"sink": sink})


def accuracies(fleet: ToyFleet, gateway: str, weights: str) -> dict[tuple[str, bool], list[bool]]:
    """Right or wrong by (task, whether under these weights), of what was served after the drift."""
    rows = np.load(fleet.directory / f"{gateway}.npz")
    task, label = rows["task"], rows["label"]
    right: dict[tuple[str, bool], list[bool]] = defaultdict(list)
    for line in (fleet.directory / f"{gateway}.jsonl").read_text(encoding="utf-8").splitlines():
        served = json.loads(line)
        row = int(served["id"].split("-")[0])
        assert len(served["output"]) == TASKS[str(task[row])]
        if row >= CLEAN_ROWS:
            key = (str(task[row]), weights.startswith(served["weights"]))
            right[key].append(int(np.argmax(served["output"])) == int(label[row]))
    return right


def _released(store: Store) -> bool:
    states = [known.state for known in store.gateways.states().values()]
    done = [adaptation.status for adaptation in store.adaptations.all()] == [DONE]
    return done and len(states) == 2 and all(state.weights_version == 2 for state in states)


@pytest.mark.long
def test_each_gateway_trains_another_task_and_both_tasks_recover_on_both(tmp_path: Path, mosquitto: Mosquitto) -> None:
    drifts = dict.fromkeys(GATEWAYS, Drift("permuted"))
    bundle = bundle_of_tasks(tmp_path / "work")
    fleet = ToyFleet(
        tmp_path,
        mosquitto,
        drifts,
        strategy="fedavg",
        rounds=3,
        training_graph="press-adam",
        learning_rate=0.02,
        bundle=bundle.path,
    )
    write_streams(fleet)
    amend(fleet.bridge_dir / "bridge.toml", {"round.gateway_graphs": {"gw2": "weld-adam"}})
    try:
        fleet.start()
        fleet.wait("the release of both tasks' weights", _released, timeout_s=200)
        with fleet.store() as store:
            (adaptation,) = store.adaptations.all()
            metrics = [record.metrics for record in store.adaptations.rounds(adaptation.id)]
            digests = {known.state.weights for known in store.gateways.states().values()}
            served = {name: known.state.served_samples for name, known in store.gateways.states().items()}
        assert len(digests) == 1
        fleet.wait("samples on the new weights", lambda store: _served(store, served, 400), timeout_s=180)
    finally:
        statuses = fleet.stop()
    assert set(statuses.values()) == {0}
    assert len(metrics) == 3
    for gateway in GATEWAYS:
        right = accuracies(fleet, gateway, digests.copy().pop())
        for task in TASKS:
            before, after = (float(np.mean(right[(task, new)])) for new in (False, True))
            assert after > max(before + 0.1, 0.75), (gateway, task, before, after)
        status = json.loads((fleet.agent_settings(gateway).parent / "data" / "status.json").read_text())
        assert status["unknown_tasks"] == "mill=3"


def _served(store: Store, before: dict[str, int], more: int) -> bool:
    states = {name: known.state.served_samples for name, known in store.gateways.states().items()}
    return all(states[name] >= before[name] + more for name in before)
