import numpy as np
import pytest

from edge_agent.drift.change_point import change_index


@pytest.mark.parametrize("at", [0, 1, 10, 20, 28])
def test_the_first_raised_loss_is_found(at: int) -> None:
    losses = np.where(np.arange(32) < at, 0.1, 1.5)
    assert change_index(losses, 0.1) == at


def test_one_early_outlier_does_not_move_the_change() -> None:
    losses = np.where(np.arange(32) < 20, 0.1, 1.5)
    losses[3] = 1.9
    assert change_index(losses, 0.1) == 20
