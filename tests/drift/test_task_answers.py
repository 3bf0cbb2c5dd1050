"""What models of several tasks say, scored by each task's own reference."""

import numpy as np
import pytest
from numpy.typing import NDArray

from edge_agent.drift.task_answers import LEAST_ROWS, WIDTH, TaskAnswers
from edge_agent.errors import DataError

ROWS = 2000
CLASSES = (4, 2, None)


def outputs(seed: int, rows: int = ROWS) -> list[NDArray[np.float32]]:
    """Of a sure task of four classes, of a doubtful one of two (one logit), and of a regression of three values."""
    rng = np.random.default_rng(seed)
    sure, doubtful, values = (
        5 * rng.normal(size=(rows, 4)),
        0.3 * rng.normal(size=(rows, 1)),
        rng.normal(size=(rows, 3)),
    )
    return [sure.astype(np.float32), doubtful.astype(np.float32), (100 + 7 * values).astype(np.float32)]


def test_answers_of_every_task_have_the_same_level_and_deviation() -> None:
    answers = TaskAnswers.of(outputs(0), CLASSES)
    for task, said in enumerate(outputs(1)):
        scores = answers(task, said)
        assert scores.shape == (ROWS, WIDTH)
        # five standard errors of a mean of 2000, and of a deviation, of two samples
        assert np.abs(scores.mean(axis=0)).max() < 5 * np.sqrt(2 / ROWS)
        assert np.abs(scores.std(axis=0) - 1).max() < 0.1


def test_a_task_that_is_less_sure_scores_lower_and_another_mix_of_classes_shows() -> None:
    answers = TaskAnswers.of(outputs(0), CLASSES)
    sure, _, _ = outputs(1)
    assert answers(0, 0.3 * sure)[:, 0].mean() < -1
    more = sure + np.array([6, 0, 0, 0], np.float32)
    assert np.abs(answers(0, more)[:, 2:].mean(axis=0)).max() > 0.5


def test_what_is_not_finite_or_of_a_task_of_few_rows_has_no_score() -> None:
    few = [outputs(0)[0][: LEAST_ROWS - 1], *outputs(0)[1:]]
    answers = TaskAnswers.of(few, CLASSES)
    said = outputs(1)
    said[1][3] = np.nan
    assert not answers.judges(0)
    assert np.isnan(answers(0, said[0])).all()
    assert answers.judges(1)
    assert np.flatnonzero(np.isnan(answers(1, said[1])).all(axis=1)).tolist() == [3]


def test_arrays_give_it_back_and_those_of_other_tasks_are_refused() -> None:
    answers = TaskAnswers.of(outputs(0), CLASSES)
    again = TaskAnswers.from_arrays(answers.to_arrays(), CLASSES)
    assert again is not None
    for task, said in enumerate(outputs(2)):
        np.testing.assert_array_equal(again(task, said), answers(task, said))
    assert TaskAnswers.from_arrays({}, CLASSES) is None
    with pytest.raises(DataError, match="'task_values' does not fit the tasks"):
        TaskAnswers.from_arrays(answers.to_arrays(), CLASSES[:2])
