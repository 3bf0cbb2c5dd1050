from itertools import pairwise

import numpy as np

from edge_agent.drift.unlabelled.history import AVERAGED, SINGLE, TOGETHER, History


def _pushed(count: int) -> History:
    history = History(2)
    for number in range(count):
        history = history.pushed(np.array([number, 1.0], np.float32))
    return history


def test_the_newest_are_single_and_older_ones_averaged() -> None:
    rows, weights = _pushed(SINGLE + 2 * TOGETHER).rows()

    assert rows[0, 0] == SINGLE + 2 * TOGETHER - 1
    assert weights.sum() == SINGLE + 2 * TOGETHER
    np.testing.assert_allclose(rows[-1, 0], (TOGETHER - 1) / 2)


def test_its_size_is_fixed_and_it_comes_back() -> None:
    sizes = set()
    for count in (0, 1, 9, 40, 500):
        history = _pushed(count)
        arrays = history.to_arrays()
        sizes.add(sum(array.nbytes for array in arrays.values()))
        again = History.from_arrays(**arrays)
        assert len(again.averaged) <= AVERAGED
        for one, two in zip(history.rows(), again.rows(), strict=True):
            np.testing.assert_array_equal(one, two)
    assert len(sizes) == 1


def test_many_rows_are_kept_as_if_they_came_one_by_one() -> None:
    rows = np.random.default_rng(3).normal(size=(150, 4)).astype(np.float32)
    one = other = History(4)
    cuts = [0, 3, 15, 16, 31, 80, 150]
    for begin, end in pairwise(cuts):
        for row in rows[begin:end]:
            one = one.pushed(row)
        other = other.pushed(*rows[begin:end])
        for name, array in one.to_arrays().items():
            assert array.tobytes() == other.to_arrays()[name].tobytes()
