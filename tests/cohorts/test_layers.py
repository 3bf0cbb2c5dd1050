import numpy as np
import pytest

from server_bridge.cohorts.evidence import Matrix, measure
from server_bridge.cohorts.layers import LEAST_CLIENTS, LEAST_SHARE, MOST_TYPICAL, layer_bounds, layer_cosines


def _cosines(*layers: Matrix) -> tuple[Matrix, ...]:
    """Of layers side by side, each told in two chunks."""
    whole = np.concatenate(layers, axis=1)
    chunks = [np.array_split(layer.copy(), 2, axis=1) for layer in layers]
    return layer_cosines(np.linalg.norm(whole, axis=1), np.abs(whole).sum(1), chunks)


def _draw(clients: int, seed: int = 0, width: int = 2_000) -> Matrix:
    rng = np.random.default_rng(seed)
    return rng.normal(size=width) + rng.standard_t(3, size=(clients, width))


def test_coordinates_are_cut_at_twice_the_median_client_s() -> None:
    rows = _draw(7)
    unit = rows / np.abs(rows).sum(1)[:, None]
    most = MOST_TYPICAL * np.median(np.abs(unit), axis=0)
    cut = np.clip(unit, -most, most)
    lengths = np.linalg.norm(cut, axis=1)
    (found,) = _cosines(rows)
    np.testing.assert_allclose(found, cut @ cut.T / np.outer(lengths, lengths), atol=1e-9)


def test_what_one_client_s_few_samples_make_hardly_decides() -> None:
    rows = _draw(8, width=20_000)
    (calm,) = _cosines(rows)
    rows[0, :100] += 200.0
    (found,) = _cosines(rows)
    assert measure(rows, []).cosines[0, 1] < 0.1
    assert found[0, 1] == pytest.approx(calm[0, 1], abs=0.1)


def test_only_layers_of_some_weight_are_looked_at() -> None:
    big, small = _draw(8, 1), _draw(8, 2)
    share = np.median(np.square(small).sum(1) / np.square(big).sum(1))
    assert len(_cosines(big, small)) == 2
    assert len(_cosines(big, small * 0.5 * np.sqrt(LEAST_SHARE / share))) == 1


def test_few_clients_say_nothing() -> None:
    assert len(_cosines(_draw(LEAST_CLIENTS))) == 1
    assert _cosines(_draw(LEAST_CLIENTS - 1)) == ()
    still = _draw(LEAST_CLIENTS)
    still[0] = 0.0
    assert _cosines(still) == ()


def test_a_change_of_zero_is_like_nobody() -> None:
    rows = _draw(8)
    rows[2] = 0.0
    (found,) = _cosines(rows)
    assert found[2, 2] == 1.0
    assert np.count_nonzero(found[2]) == 1


def test_layers_lie_where_their_sizes_say_and_small_ones_are_left_out() -> None:
    assert layer_bounds([32, 4_096, 6, 192], 4_326) == [(32, 4_128), (4_134, 4_326)]
    assert layer_bounds([], 4_326) == []
    with pytest.raises(ValueError, match="4326 parameters in all were told of, the matrix has 4000"):
        layer_bounds([32, 4_096, 6, 192], 4_000)
