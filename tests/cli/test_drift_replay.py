"""``edge-agent drift replay``: what fired, when and why, on data of all kinds.

Statistical ones have a fixed seed. Level: a monitor promises 1 false alarm in 80 batches, so that on 30 batches of a
stable stream one is possible; these seeds have none. Power: shifts of two and more deviations.
"""

import json
import re
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from edge_agent.cli.drift import app
from edge_agent.cli.drift_replaying import seconds_a_sample, seconds_of, told_columns
from edge_agent.errors import ConfigError, StorageError
from tests.bundles.nets import save_npz
from tests.cli.recorded import CENTRES, recorded_bundle, save_csv, stream


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return recorded_bundle(tmp_path_factory.mktemp("press")).path


def replay(data: Path, bundle: Path, *options: str) -> dict[str, Any]:
    result = CliRunner().invoke(app, ["replay", str(data), "-b", str(bundle), "--json", *options])
    assert result.exit_code == 0, (result.output, result.exception)
    document: dict[str, Any] = json.loads(result.stdout)
    return document


def monitor(document: dict[str, Any], name: str) -> dict[str, Any]:
    return next(run for run in document["monitors"] if run["name"] == name)


def drifted(rows: int, seed: int) -> dict[str, Any]:
    """From row 480 on the machine's classes look otherwise: right features, wrong meaning."""
    arrays = stream(rows, seed)
    arrays["label"][480:] = (arrays["label"][480:] + 1) % 3
    return arrays


def test_a_stable_stream_raises_no_flag(bundle: Path, tmp_path: Path) -> None:
    said = replay(save_npz(tmp_path / "stable.npz", **stream(960, 2)), bundle)
    assert (said["rows"], said["labelled"], said["fired"], said["faults"]) == (960, 960, [], [])
    assert said["verdict"] == "none"
    labelled, served = (next(run for run in said["monitors"] if run["sees"] == sees) for sees in ("labelled", "served"))
    assert labelled["batches"] == served["batches"] == 30
    assert monitor(said, "label-free")["promise"] == "1 per 80 batches"


def test_a_change_of_meaning_is_flagged_by_the_labels_where_it_began(bundle: Path, tmp_path: Path) -> None:
    said = replay(save_npz(tmp_path / "drift.npz", **drifted(960, 3)), bundle)
    first = said["fired"][0]
    assert 480 < first["row"] <= 544
    assert 470 <= int(first["first_sample"]) <= 500
    assert first["monitor"].startswith("loss")
    assert first["statistic"] > first["threshold"]
    assert first["severity"] > 0.5
    assert said["verdict"] == "alarm"


def test_late_labels_make_the_flag_late_by_as_much(bundle: Path, tmp_path: Path) -> None:
    said = replay(save_npz(tmp_path / "late.npz", **drifted(960, 3)), bundle, "--label-delay", "5 minutes")
    assert 780 < said["fired"][0]["row"] <= 864
    assert 470 <= int(said["fired"][0]["first_sample"]) <= 500


def test_without_labels_the_moved_sensor_is_named_in_its_unit(bundle: Path, tmp_path: Path) -> None:
    arrays = stream(960, 4)
    arrays["x"][480:, 1] += 2.5
    data = save_csv(tmp_path / "moved.csv", {"x": arrays["x"]}, time=np.arange(960) * 60.0)
    said = replay(data, bundle)
    assert said["labelled"] == 0
    first = said["fired"][0]
    assert 480 < first["row"] <= 640
    assert first["monitor"] == "label-free"
    assert (first["attributions"][0]["name"], first["attributions"][0]["unit"]) == ("pressure", "bar")
    assert first["attributions"][0]["now"] > first["attributions"][0]["before"] + 1
    alarm = said["episodes"][0]
    assert (alarm["monitor"], alarm["last_row"]) == ("label-free", 960)
    assert alarm["attributions"][0]["name"] == "pressure"
    run = monitor(said, "label-free")
    assert run["alarms"] == len([one for one in said["episodes"] if one["monitor"] == "label-free"]) == 1
    assert run["above"] == alarm["batches"] > 5


def test_a_stuck_sensor_is_a_fault_and_no_drift(bundle: Path, tmp_path: Path) -> None:
    arrays = stream(960, 5)
    arrays["x"][500:700, 3] = 0.25
    said = replay(save_npz(tmp_path / "stuck.npz", **arrays), bundle)
    fault = said["faults"][0]
    assert (fault["feature"], fault["fault"]) == ("speed", "stuck")
    assert 500 <= fault["first_row"] <= 530
    assert 699 <= fault["last_row"] <= 720
    assert said["fired"] == []


def test_the_accuracy_is_estimated_beside_the_true_one(bundle: Path, tmp_path: Path) -> None:
    arrays = stream(1100, 6)
    said = replay(save_npz(tmp_path / "windows.npz", **arrays), bundle)
    right = (arrays["x"] @ CENTRES.T - 2).argmax(axis=1) == arrays["label"]
    assert [window["row"] for window in said["windows"]] == [512, 1024]
    assert said["windows"][0]["true"] == pytest.approx(right[:512].mean(), abs=1e-6)
    assert said["windows"][0]["low"] <= said["windows"][0]["true"] <= said["windows"][0]["high"]


def test_words_and_picture_say_the_same(bundle: Path, tmp_path: Path) -> None:
    arrays = drifted(960, 3)
    arrays["x"][100:300, 3] = 0.25
    data = save_csv(tmp_path / "shift <1>.csv", arrays, time=1.4e9 + np.arange(960.0))
    picture = tmp_path / "picture.svg"
    result = CliRunner().invoke(app, ["replay", str(data), "-b", str(bundle), "-o", str(picture)])
    assert result.exit_code == 0, result.output
    assert "960 samples, 2014-05-13 16:53:20 to 2014-05-13 17:09:19; 960 with a label in time" in result.stdout
    assert re.search(r"flags: [1-9]", result.stdout)
    assert re.search(r"speed stuck from row \d+, 2014-05-13 16:5", result.stdout)
    root = ElementTree.parse(picture).getroot()
    words = [element.text or "" for element in root.iter() if element.tag.endswith(("text", "title"))]
    assert any("shift <1>.csv" in line for line in words)
    assert any(line.startswith("flag 1 by loss") for line in words)
    assert any("speed stuck" in line for line in words)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "is empty"),
        ("temperature,pressure,flow,speed\n", "has no rows"),
        ("1,2,3,4\n1,2,3,4\n", "has no header"),
        ("temperature,pressure,flow\n1,2,3\n", "3 feature columns"),
        ("temperature,pressure,flow,speed\n1,2,3,x\n", "line 2, column 'speed': 'x' is no number"),
        ("temperature,pressure,flow,speed,label\n1,2,3,4,melt\n", "line 2, column 'label': 'melt' is no number"),
        ("temperature,pressure,flow,speed,time\n1,2,3,4,\n", "'time' is nan in row 0"),
    ],
)
def test_what_cannot_be_played_is_named(bundle: Path, tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "wrong.csv"
    path.write_text(text)
    result = CliRunner().invoke(app, ["replay", str(path), "-b", str(bundle)])
    assert isinstance(result.exception, ConfigError)
    assert "wrong.csv" in str(result.exception)
    assert problem in str(result.exception)


def test_a_picture_that_cannot_be_written_is_refused_before_the_replay(bundle: Path, tmp_path: Path) -> None:
    line = ["replay", str(tmp_path / "absent.npz"), "-b", str(bundle), "-o", str(tmp_path / "no" / "p.svg")]
    result = CliRunner().invoke(app, line)
    assert isinstance(result.exception, StorageError)
    assert "is no folder" in str(result.exception)


def test_a_verdict_that_is_held_says_by_what_though_its_monitor_is_calm(bundle: Path, tmp_path: Path) -> None:
    arrays = drifted(760, 3)
    arrays["label"][640:] = (arrays["label"][640:] - 1) % 3
    said = replay(save_npz(tmp_path / "back.npz", **arrays), bundle)
    assert said["verdict"] == "alarm"
    assert re.search(r"loss\S* alarm \(.*, calm since\)", said["why"])
    assert all(change["why"] for change in said["changes"] if change["verdict"] != "none")


@pytest.mark.parametrize(
    ("name", "options", "problem", "hint"),
    [
        ("absent.npz", [], "does not exist", "DATA is the path"),
        ("absent.csv", [], "does not exist", "DATA is the path"),
        ("notes.txt", [], "is neither .npz nor .csv", "convert it"),
        ("there.npz", ["--column", "label=y"], "--column is for .csv files", "name its arrays themselves label"),
    ],
)
def test_data_that_cannot_be_played_are_refused_with_the_way_out_of_this_command(
    bundle: Path, tmp_path: Path, name: str, options: list[str], problem: str, hint: str
) -> None:
    save_npz(tmp_path / "there.npz", **stream(64, 2))
    (tmp_path / "notes.txt").write_text("x")
    result = CliRunner().invoke(app, ["replay", str(tmp_path / name), "-b", str(bundle), *options])
    assert isinstance(result.exception, ConfigError)
    assert problem in result.exception.problem
    assert hint in result.exception.hint
    assert "[source]" not in result.exception.hint


def test_strange_data_are_played_and_told(bundle: Path, tmp_path: Path) -> None:
    """NaN and constant columns, infinities, an unseen class, clocks set back, repeated ids; no crash, no flag of drift
    by what is a fault."""
    arrays = stream(400, 7)
    arrays["x"][:, 0] = np.nan
    arrays["x"][:, 3] = 1.0
    arrays["x"][7, 1] = np.inf
    labels = arrays["label"].astype(np.float64)
    labels[50] = 17.0
    labels[60] = np.nan
    times = np.arange(400.0)
    times[200:] -= 150
    ids = np.array([f"s{row}" for row in range(400)])
    ids[30] = ids[29]
    said = replay(save_npz(tmp_path / "odd.npz", x=arrays["x"], label=labels, time=times, id=ids), bundle)
    assert said["rows"] == 400
    assert any("ids repeat, first 's29' in row 30" in note for note in said["notes"])
    assert any("time runs backwards" in note for note in said["notes"])
    assert any(fault["feature"] == "temperature" for fault in said["faults"])
    assert said["passed_over"]["with an id that was there before"] == 1
    assert said["passed_over"]["labels that are no class or not finite"] == 1


@pytest.mark.parametrize("rows", [1, 31])
def test_less_than_a_batch_is_no_verdict(bundle: Path, tmp_path: Path, rows: int) -> None:
    said = replay(save_npz(tmp_path / "few.npz", **stream(rows, 8)), bundle, "-o", str(tmp_path / "few.svg"))
    assert (said["rows"], said["fired"], said["verdict"]) == (rows, [], "none")
    ElementTree.parse(tmp_path / "few.svg")


def test_a_column_id_that_names_machines_names_no_samples(bundle: Path, tmp_path: Path) -> None:
    arrays = stream(64, 9)
    said = replay(save_csv(tmp_path / "m.csv", arrays, id=np.array(["m1", "m2"] * 32)), bundle)
    assert said["labelled"] == 64
    assert any("names no samples: 62 repeat" in note for note in said["notes"])


def test_options_are_read() -> None:
    assert told_columns(["label=class", "time=at=noon"]) == {"label": "class", "time": "at=noon"}
    assert seconds_of("--label-delay", "1.5 days") == 129_600
    assert seconds_a_sample("1 per 15 minutes") == 900
    assert seconds_a_sample("50 Hz") == 0.02
    for wrong in ("label", "=x", "colour=x"):
        with pytest.raises(ConfigError, match="is not KEY=COLUMN"):
            told_columns([wrong])
    for wrong in ("soon", "-1 s", "1 fortnight"):
        with pytest.raises(ConfigError, match="--label-delay"):
            seconds_of("--label-delay", wrong)
    for wrong in ("fast", "0 Hz", "1 per 0 s", "10"):
        with pytest.raises(ConfigError, match="--stream-rate"):
            seconds_a_sample(wrong)
