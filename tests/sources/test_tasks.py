"""The field of a sample that names its task."""

import json
from pathlib import Path

import numpy as np
import pytest

from edge_agent.errors import ConfigError, WireError
from edge_agent.sources.csv_columns import CsvColumns
from edge_agent.sources.mqtt_json import read_sample
from edge_agent.sources.recording import read_recording
from edge_agent.sources.replay import ReplaySource
from edge_agent.wire.manifest import TensorSpec

X = TensorSpec(name="x", dtype="float32", shape=["n", 2])
SAMPLE = {"id": "a", "time": 1.5, "features": {"x": [1, 2.5]}}


@pytest.mark.parametrize("entry", ["task", "recipe"])
def test_a_csv_column_names_tasks_and_an_empty_cell_none(tmp_path: Path, entry: str) -> None:
    path = tmp_path / "play.csv"
    path.write_text(f"a,b,{entry}\n1,2,press\n3,4,\n5,6,weld-2\n", encoding="utf-8")
    recording = read_recording(path, [X], CsvColumns(keys={"task": entry} if entry != "task" else {}))
    assert recording.tasks == ["press", None, "weld-2"]
    assert recording.features["x"].tolist() == [[1, 2], [3, 4], [5, 6]]


def test_a_replay_gives_every_sample_its_task(tmp_path: Path) -> None:
    np.savez(tmp_path / "play.npz", x=np.zeros((3, 2), "f4"), task=np.array(["press", "", "weld"]))
    source = ReplaySource(tmp_path / "play.npz", [X], rate_hz=1e6, batch_size=2)
    tasks: list[str | None] = []
    while (read := source.read(1.0)) is not None:
        tasks += read.samples.tasks if read.samples is not None else []
    assert tasks == ["press", None, "weld"]


@pytest.mark.parametrize(("tasks", "row"), [(["press", "a b"], 1), (["x" * 65, "press"], 0)])
def test_a_recording_with_what_is_no_name_is_refused(tmp_path: Path, tasks: list[str], row: int) -> None:
    np.savez(tmp_path / "play.npz", x=np.zeros((2, 2), "f4"), task=np.array(tasks))
    with pytest.raises(ConfigError, match=f"'task' is .* in row {row}"):
        read_recording(tmp_path / "play.npz", [X])


def test_a_message_may_name_its_task() -> None:
    assert read_sample(json.dumps(SAMPLE).encode(), [X]).task is None
    assert read_sample(json.dumps({**SAMPLE, "task": "weld"}).encode(), [X]).task == "weld"


@pytest.mark.parametrize("task", ["", "a b", "x" * 65, 7, ["weld"]])
def test_a_message_with_what_is_no_name_is_refused(task: object) -> None:
    with pytest.raises(WireError, match="task"):
        read_sample(json.dumps({**SAMPLE, "task": task}).encode(), [X])
