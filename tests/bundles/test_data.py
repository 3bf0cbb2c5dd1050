"""Data files: every fault is named."""

import io
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edge_agent.errors import DataError
from edge_agent.wire.manifest import TensorSpec
from server_bridge.bundles.data import read_data
from tests.bundles.nets import save_npz

INPUTS = [TensorSpec(name="x", dtype="float32", shape=["batch", 2])]
X = np.arange(8, dtype=np.float32).reshape(4, 2)
LABEL = np.array([0, 1, 2, 1])


def test_rows_of_the_holdout_are_left_out(tmp_path: Path) -> None:
    holdout = np.array([False, True, False, True])
    data = read_data(save_npz(tmp_path / "d.npz", x=X, label=LABEL, holdout=holdout), INPUTS, 3)
    assert data.labels.tolist() == [0, 2]
    assert data.features["x"].tolist() == [[0, 1], [4, 5]]


def test_optional_columns_are_known(tmp_path: Path) -> None:
    extra = {"group": np.arange(4), "delay": np.zeros(4), "time": np.arange(4.0), "id": np.array(list("abcd"))}
    assert len(read_data(save_npz(tmp_path / "d.npz", x=X, label=LABEL, **extra), INPUTS, 3)) == 4


NAN = X.copy()
NAN[2, 1] = np.nan


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"x": None}, r"has no array 'x' \(it has: label\)"),
        ({"label": None}, "has no array 'label'"),
        ({"odd": X}, "has array 'odd', unknown to the model"),
        ({"x": X.astype("f8")}, "input 'x' is float64, float32 is needed"),
        ({"x": X[:, :1]}, r"input 'x' has shape \[4, 1\], \['batch', 2\] is needed"),
        ({"x": NAN}, "array 'x' is not finite in row 2"),
        ({"label": LABEL[:3]}, r"'label' has shape \[3\], \[4\] is needed"),
        ({"label": LABEL + 0.0}, "'label' is float64, whole class numbers"),
        ({"label": LABEL.astype(str)}, r"'label' is text, whole class numbers are needed \(classes are counted from 0"),
        ({"label": np.array([0, 1, 3, 1])}, r"label 3 in row 2 is outside 0..2"),
        ({"label": np.array([0, -1, 2, 1])}, r"label -1 in row 1 is outside 0..2"),
        ({"holdout": np.zeros(4)}, r"'holdout' is float64 \[4\], bool \[4\] is needed"),
        ({"holdout": np.ones(4, dtype=bool)}, "has no labelled rows besides the holdout"),
        ({"x": X[:0], "label": LABEL[:0]}, "has no labelled rows"),
    ],
)
def test_fault_is_named(tmp_path: Path, change: dict[str, Any], problem: str) -> None:
    arrays = {name: value for name, value in ({"x": X, "label": LABEL} | change).items() if value is not None}
    with pytest.raises(DataError, match=f"d.npz.*{problem}"):
        read_data(save_npz(tmp_path / "d.npz", **arrays), INPUTS, 3)


def test_targets_are_numbers(tmp_path: Path) -> None:
    path = save_npz(tmp_path / "d.npz", x=X, label=LABEL)
    assert read_data(path, INPUTS, None).labels.dtype == np.float32
    path = save_npz(tmp_path / "d.npz", x=X, label=np.array([0, 1, np.nan, 1]))
    with pytest.raises(DataError, match="label nan in row 2 is not finite"):
        read_data(path, INPUTS, None)
    path = save_npz(tmp_path / "d.npz", x=X, label=np.array([0, 1, 1, 1e39]))
    with pytest.raises(DataError, match=r"d.npz: the label 1e\+39 in row 3 is not finite as float32"):
        read_data(path, INPUTS, None)


def test_rows_whose_label_stands_for_none_are_left_out(tmp_path: Path) -> None:
    path = save_npz(tmp_path / "d.npz", x=X, label=np.array([0, -100, 2, -100]))
    assert read_data(path, INPUTS, 3, -100).labels.tolist() == [0, 2]
    with pytest.raises(DataError, match="label -100 in row 1 is outside"):
        read_data(path, INPUTS, 3)


def test_what_is_no_npz_is_named(tmp_path: Path) -> None:
    (tmp_path / "text.npz").write_text("hello")
    np.save(tmp_path / "one.npy", X)
    objects = np.array([{}, {}, {}, {}], dtype=object)
    np.savez(tmp_path / "objects.npz", x=X, label=objects)
    for name in ("absent.npz", "text.npz", "one.npy", "objects.npz"):
        with pytest.raises(DataError, match=name):
            read_data(tmp_path / name, INPUTS, 3)


def claiming(shape: str) -> bytes:
    """An NPZ file whose array ``x`` says it has this shape, and holds nothing."""
    said = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}".ljust(117).encode() + b"\n"
    whole = io.BytesIO()
    with zipfile.ZipFile(whole, "w") as archive:
        archive.writestr("x.npy", b"\x93NUMPY\x01\x00" + len(said).to_bytes(2, "little") + said)
    return whole.getvalue()


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (claiming("(10000000000, 400)"), "x cannot be read"),
        (claiming("(4, 2)"), "x cannot be read"),
        (b"x,label\n1,2\n", "is not an NPZ file"),
        (b"", "is not an NPZ file"),
        (b"PK\x03\x04", "the file cannot be read"),
    ],
)
def test_a_file_that_is_no_data_is_named_with_the_way_out(tmp_path: Path, content: bytes, problem: str) -> None:
    """A claim of 16 TB of rows included; numpy's own advice, to unpickle it, is not passed on."""
    (tmp_path / "d.npz").write_bytes(content)
    with pytest.raises(DataError, match=problem) as caught:
        read_data(tmp_path / "d.npz", INPUTS, 3)
    assert "savez" in caught.value.hint
    assert "allow_pickle" not in str(caught.value)


@pytest.mark.parametrize(("name", "problem"), [("none.npz", "does not exist"), (".", "is a directory")])
def test_data_that_is_not_there_or_a_folder_says_what_to_give(tmp_path: Path, name: str, problem: str) -> None:
    with pytest.raises(DataError, match=problem) as caught:
        read_data(tmp_path / name, INPUTS, 3)
    assert "an .npz file" in caught.value.hint
