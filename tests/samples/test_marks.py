"""Some rows of a chunk are read and checked without the others, however they came."""

from itertools import pairwise
from pathlib import Path
from zlib import crc32

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from edge_agent.errors import DataError
from edge_agent.samples.marks import BEGIN, STEP_BYTES, Mark, marked, stretches
from edge_agent.samples.segments import Segments

ROW_BYTES = 10_000
STEP = STEP_BYTES // ROW_BYTES


def rows_of(count: int) -> NDArray[np.uint8]:
    return np.random.default_rng(count).integers(0, 256, (count, ROW_BYTES), np.uint8)


def marks_of(whole: NDArray[np.uint8], portions: list[int]) -> list[Mark]:
    marks, start = [BEGIN], 0
    for portion in portions:
        marks = marked(marks, [whole[start : start + portion].data.cast("B")], ROW_BYTES)
        start += portion
    return marks


@given(portions=st.lists(st.integers(1, 3 * STEP), min_size=1, max_size=12))
@settings(max_examples=50, deadline=None)
def test_each_mark_is_the_checksum_of_what_lies_before_it_and_no_two_are_needlessly_close(portions: list[int]) -> None:
    whole = rows_of(sum(portions))
    marks = marks_of(whole, portions)
    assert marks[0] == BEGIN
    assert marks[-1] == (len(whole), crc32(whole.data))
    assert all(checksum == crc32(whole[:row].data) for row, checksum in marks)
    ends = [row for row, _ in marks]
    assert all(1 <= later - row <= STEP for row, later in pairwise(ends))
    assert all(later - row > STEP for row, later in zip(ends[:-2], ends[2:], strict=True))


@given(portions=st.lists(st.integers(1, 3 * STEP), min_size=1, max_size=8), data=st.data())
@settings(max_examples=50, deadline=None)
def test_stretches_hold_all_rows_that_are_asked_for_and_do_not_touch(portions: list[int], data: st.DataObject) -> None:
    marks = marks_of(rows_of(sum(portions)), portions)
    rows = np.array(sorted(data.draw(st.sets(st.integers(0, sum(portions) - 1), min_size=1))))
    found = list(stretches(marks, rows))
    assert all(any(begin[0] <= row < end[0] for begin, end in found) for row in rows)
    assert all(before[1][0] < after[0][0] for before, after in pairwise(found))


@pytest.mark.parametrize("damaged", [None, 3, 25])
def test_damage_is_found_where_it_is_read_and_costs_nothing_elsewhere(tmp_path: Path, damaged: int | None) -> None:
    segments, whole = Segments(tmp_path / "samples.db"), rows_of(40)
    segments.prepare()
    start = segments.append(1, [whole.data.cast("B")])
    marks, rows = marks_of(whole, [40]), np.array([0, 2, 14, 15, 39])
    if damaged is not None:
        with (tmp_path / "samples.features" / "1.rows").open("r+b") as file:
            file.seek(start + damaged * ROW_BYTES)
            file.write(bytes([int(whole[damaged, 0]) ^ 1]))
    if damaged == 3:
        with pytest.raises(DataError):
            segments.read_some(1, start, ROW_BYTES, marks, rows)
    else:
        assert np.array_equal(segments.read_some(1, start, ROW_BYTES, marks, rows), whole[rows])
    if damaged is not None:
        with pytest.raises(DataError):
            segments.read(1, start, 40, ROW_BYTES, marks[-1][1])
