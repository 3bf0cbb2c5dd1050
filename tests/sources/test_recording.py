import contextlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_agent.errors import ConfigError
from edge_agent.sources.csv_columns import CsvColumns
from edge_agent.sources.recording import read_recording
from edge_agent.wire.manifest import TensorSpec

X = TensorSpec(name="x", dtype="float32", shape=["n", 2])


def _npz(folder: Path, **arrays: Any) -> Path:
    path = folder / "file.npz"
    np.savez(path, **arrays)
    return path


def _csv(folder: Path, text: str) -> Path:
    path = folder / "file.csv"
    path.write_text(text, encoding="utf-8")
    return path


def test_npz_features_are_cast_and_other_arrays_ignored(tmp_path: Path) -> None:
    path = _npz(tmp_path, x=np.ones((3, 2)), label=np.array([0, 1, 2]), other=np.zeros(7))
    recording = read_recording(path, [X])
    assert recording.features["x"].dtype == np.float32
    assert recording.rows == 3
    assert recording.labels is not None
    assert (recording.groups, recording.holdouts, recording.delays, recording.times, recording.ids) == (None,) * 5


@pytest.mark.parametrize(
    ("arrays", "problem"),
    [
        ({}, "'x' is missing"),
        ({"x": np.zeros((0, 2))}, "'x' has no rows"),
        ({"x": np.float32(1)}, "'x' has no rows"),
        ({"x": np.zeros((3, 3))}, r"'x' has shape \[3, 3\]"),
        ({"x": np.zeros(3)}, "'x' has shape"),
        ({"x": np.array([["a", "b"]])}, "'x' is"),
        ({"x": np.zeros((3, 2)), "label": np.zeros(2)}, "'label' has shape"),
        ({"x": np.zeros((3, 2)), "label": np.array(["a", "b", "c"])}, "'label' is"),
        ({"x": np.zeros((3, 2)), "delay": np.array([0.0, -1.0, 0.0])}, "'delay' is -1.0 in row 1"),
        ({"x": np.zeros((3, 2)), "time": np.array([0.0, 1.0, np.nan])}, "'time' is nan in row 2"),
        ({"x": np.zeros((3, 2)), "time": np.array([0.0, 1.8e12, 1e300])}, "'time' is 1800000000000.0 in row 1"),
        ({"x": np.zeros((3, 2)), "holdout": np.array([0, 1, 2])}, "'holdout' has entries"),
        ({"x": np.zeros((3, 2)), "id": np.array(["a", "b", "a"])}, "'id' repeats"),
        ({"x": np.zeros((3, 2)), "id": np.array(["a", "", "c"])}, "'id' is '' in row 1"),
        ({"x": np.zeros((3, 2)), "id": np.array(["a", "b\n", "c"])}, "in row 1"),
        ({"x": np.array([[{}, {}]], dtype=object)}, "x cannot be read"),
    ],
)
def test_what_is_wrong_is_named_with_file_and_key(tmp_path: Path, arrays: dict[str, Any], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem) as raised:
        read_recording(_npz(tmp_path, **arrays), [X])
    assert "file.npz" in raised.value.problem
    assert raised.value.hint


def test_absent_files_and_other_kinds_are_named(tmp_path: Path) -> None:
    for name in ("none.npz", "none.csv"):
        with pytest.raises(ConfigError, match="does not exist"):
            read_recording(tmp_path / name, [X])
    with pytest.raises(ConfigError, match="neither"):
        read_recording(tmp_path / "file.xls", [X])


def test_an_npy_file_under_the_wrong_name_is_refused(tmp_path: Path) -> None:
    with (tmp_path / "file.npz").open("wb") as file:
        np.save(file, np.zeros((3, 2)))
    with pytest.raises(ConfigError, match="is not an NPZ file"):
        read_recording(tmp_path / "file.npz", [X])


def test_text_under_the_name_is_refused_without_numpys_advice_to_unpickle_it(tmp_path: Path) -> None:
    (tmp_path / "file.npz").write_text("time,x\n")
    with pytest.raises(ConfigError, match="is not an NPZ file") as caught:
        read_recording(tmp_path / "file.npz", [X])
    assert "savez" in caught.value.hint
    assert "pickle" not in str(caught.value)


@settings(max_examples=150, deadline=None)
@given(place=st.integers(0, 10_000), value=st.integers(0, 255), cut=st.integers(0, 10_000))
def test_a_damaged_npz_gives_a_recording_or_a_config_error(
    place: int, value: int, cut: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("npz")
    path = folder / "file.npz"
    np.savez_compressed(path, x=np.arange(20.0).reshape(10, 2), label=np.arange(10))
    data = bytearray(path.read_bytes())
    data[place % len(data)] = value
    path.write_bytes(bytes(data[: len(data) - cut] if cut < 40 else data))
    with contextlib.suppress(ConfigError):
        read_recording(path, [X])


def test_csv_takes_every_unused_column_as_a_feature(tmp_path: Path) -> None:
    path = _csv(tmp_path, "a,label,b,group,holdout\n1,0,2,g,true\n3,,4,h,0\n\n5,1,,h,1\n")
    recording = read_recording(path, [X])
    np.testing.assert_array_equal(recording.features["x"], np.array([[1, 2], [3, 4], [5, np.nan]], dtype=np.float32))
    assert recording.labels is not None
    np.testing.assert_array_equal(recording.labels, [0.0, np.nan, 1.0])
    assert recording.groups == ["g", "h", "h"]
    assert recording.holdouts is not None
    assert recording.holdouts.tolist() == [True, False, True]


def test_csv_columns_are_mapped(tmp_path: Path) -> None:
    path = _csv(tmp_path, "t,q,p,truth,speed\n7,1,2,5,9\n")
    columns = CsvColumns(features={"x": ["p", "q"], "s": ["speed"]}, keys={"label": "truth", "time": "t"})
    recording = read_recording(path, [X, TensorSpec(name="s", dtype="float64", shape=["n", 1])], columns)
    assert recording.features["x"].tolist() == [[2.0, 1.0]]
    assert recording.features["s"].tolist() == [[9.0]]
    assert recording.times is not None
    assert recording.times.tolist() == [7.0]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "is empty"),
        ("1.5,2\n1,2\n", "no header: its first line is 1.5, 2"),
        ("a,b,time\n1,2,yesterday\n", "line 2, column 'time': 'yesterday' is neither seconds nor a date and time"),
        ("a,b\n", "0 feature columns|no rows"),
        ("a,b\n1,2\n1,x\n", "line 3, column 'b': 'x' is no number"),
        ("a,b\n1\n", "line 2: 1 cells under 2 columns"),
        ("a,b,c\n1,2,3\n", "3 feature columns"),
        ("a,a\n1,2\n", "repeats in the header"),
        ("a,b,holdout\n1,2,maybe\n", "column 'holdout': 'maybe'"),
    ],
)
def test_csv_problems_name_line_and_column(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        read_recording(_csv(tmp_path, text), [X])


def test_csv_times_may_be_dates(tmp_path: Path) -> None:
    text = "a,b,time\n1,2,1970-01-02 00:00\n1,2,1970-01-02T01:00:00+01:00\n1,2,86400.5\n"
    recording = read_recording(_csv(tmp_path, text), [X])
    assert recording.times is not None
    assert recording.times.tolist() == [86_400.0, 86_400.0, 86_400.5]


def test_csv_of_100_000_columns_is_read_in_linear_time(tmp_path: Path) -> None:
    names = [f"f{number}" for number in range(100_000)]
    path = _csv(tmp_path, f"{','.join(names)}\n{','.join(['1'] * len(names))}\n")
    recording = read_recording(path, [TensorSpec(name="x", dtype="float32", shape=["n", len(names)])])
    assert recording.features["x"].shape == (1, 100_000)


def test_csv_that_is_no_text_and_columns_that_are_not_there_are_named(tmp_path: Path) -> None:
    path = tmp_path / "file.csv"
    path.write_bytes(b"a,b\n\xff\xfe,1\n")
    with pytest.raises(ConfigError, match="cannot be read"):
        read_recording(path, [X])
    path = _csv(tmp_path, "a,b\n1,2\n")
    with pytest.raises(ConfigError, match="'truth' for 'label' is missing"):
        read_recording(path, [X], CsvColumns(keys={"label": "truth"}))
    with pytest.raises(ConfigError, match="'z' for input 'x' is missing"):
        read_recording(path, [X], CsvColumns(features={"x": ["z"]}))
    with pytest.raises(ConfigError, match="input 'x' are not named"):
        read_recording(path, [X, TensorSpec(name="y", dtype="float32", shape=["n", 1])])
