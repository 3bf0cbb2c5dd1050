import numpy as np

from edge_agent.drift.unlabelled.answers import log_residue
from edge_agent.drift.unlabelled.unseen import plane


def test_what_lies_outside_the_plane_is_measured_by_planes_of_other_rows() -> None:
    # seed 0; 200 rows of 30 directions, three of which are large: a plane of ten fits its own rows too well
    rng = np.random.default_rng(0)
    spread = np.where(np.arange(30) < 3, 3.0, 1.0)
    rows, fresh = rng.normal(size=(200, 30)) * spread, rng.normal(size=(4000, 30)) * spread

    centre, basis, lengths, residue = plane(rows, len(rows))

    def outside(some: np.ndarray) -> np.ndarray:
        away = some - centre
        return log_residue(away, np.square(away @ basis), np.square(lengths))

    error = residue.std() / np.sqrt(len(rows))
    assert basis.shape == (30, 10)
    assert abs(residue.mean() - outside(fresh).mean()) < 3 * error
    assert outside(rows).mean() < outside(fresh).mean() - 5 * error


def test_rows_that_are_not_finite_change_no_plane() -> None:
    rng = np.random.default_rng(1)
    rows = rng.normal(size=(300, 6)) * np.arange(1, 7)
    broken = np.concatenate([rows, np.full((3, 6), np.nan), np.full((2, 6), np.inf)])

    alone, beside = plane(rows, len(rows)), plane(broken, len(broken))

    np.testing.assert_allclose(np.abs(alone[1]), np.abs(beside[1]), rtol=1e-4, atol=1e-5)
    assert np.isfinite(beside[3]).all()


def test_without_embeddings_there_is_no_plane() -> None:
    centre, basis, lengths, residue = plane(None, 7)

    assert (centre.size, basis.size, lengths.size, residue.shape) == (0, 0, 0, (7, 0))
