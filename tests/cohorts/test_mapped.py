import mmap
from pathlib import Path
from typing import Literal

import numpy as np
import pytest

from server_bridge.cohorts.cohorter import CLMACohorter
from server_bridge.cohorts.mapped import release_pages


def _resident_kib(name: str) -> int:
    lines = Path("/proc/self/smaps").read_text().split(name, 1)[1].splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("Rss:"))


def test_read_only_files_leave_the_memory_and_keep_their_values(tmp_path: Path) -> None:
    values = np.random.default_rng(0).normal(size=(4, 100_000))
    np.save(tmp_path / "rows.npy", values)
    mapped = np.load(tmp_path / "rows.npy", mmap_mode="r")
    total = float(mapped.sum())
    assert _resident_kib("rows.npy") > 1_000
    release_pages([mapped[0], mapped[1]])
    assert _resident_kib("rows.npy") == 0
    assert float(mapped.sum()) == total


@pytest.mark.parametrize("mode", ["c", "r+"])
def test_what_was_written_to_a_mapping_stays(mode: Literal["c", "r+"], tmp_path: Path) -> None:
    np.save(tmp_path / "rows.npy", np.zeros(3 * mmap.PAGESIZE))
    mapped = np.load(tmp_path / "rows.npy", mmap_mode=mode)
    mapped[:] = 7
    release_pages([mapped, np.ones(3)])
    assert (mapped == 7).all()


@pytest.mark.parametrize("ordered", [True, False])
def test_cohorts_of_mapped_clients_are_those_of_the_same_clients_in_memory(ordered: bool, tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    reference = rng.normal(size=70_000).astype(np.float32)
    matrix = (reference + rng.normal(size=(2, 70_000))[[0, 0, 0, 1, 1, 1]] + 0.1).astype(np.float32)
    matrix += 0.01 * rng.standard_normal(matrix.shape, np.float32)
    ids = list(range(6)) if ordered else [5, 2, 0, 1, 4, 3]
    np.save(tmp_path / "matrix.npy", matrix)
    for number, row in enumerate(matrix):
        np.save(tmp_path / f"{number}.npy", row)
    whole = np.load(tmp_path / "matrix.npy", mmap_mode="r")
    files = [np.load(tmp_path / f"{number}.npy", mmap_mode="r") for number in range(6)]
    expected = CLMACohorter().cohort(ids, matrix, reference)
    assert expected.num_cohorts >= 2
    assert CLMACohorter().cohort(ids, whole, reference) == expected
    assert CLMACohorter().cohort(ids, files, reference) == expected
